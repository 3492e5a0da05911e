// Package kvwire holds what the KV-event streams of all engines have in
// common: how a message is framed, what a decoded batch is, which memory a
// medium's name means, and how a hash is read.
//
// The central type is [Reader], a cursor over one msgpack payload. The adapters
// (engine/vllm and its siblings) read events with it; engine.Feed reads frames
// with [Live] and [Replay]. Start reading at reader.go.
//
// Why no msgpack library: events are read where they stand, in memory, token by
// token, on a hot path, and what foreign bytes announce must never be believed
// before it is there. See BenchmarkDecode in engine/vllm.
package kvwire
