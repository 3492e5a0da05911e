// Package kvwire holds what the KV-event streams of all engines have in
// common: how a message is framed, how its events are decoded into operations
// on the tree of prefixes, which memory a medium's name means, and how a hash
// is read.
//
// The central type is [Dialect], what one engine's events have to themselves;
// engine/vllm and its siblings hold one each. Start reading at decode.go, which
// reads a batch; event.go knows where the fields stand in the array and the map
// form, stored.go the rules of a BlockStored. Beneath is [Reader], a cursor over
// one msgpack payload. engine.Feed reads frames with [Live] and [Replay].
//
// Why no msgpack library: events are read where they stand, in memory, token by
// token, on a hot path, and what foreign bytes announce must never be believed
// before it is there. See BenchmarkDecode in engine/vllm and engine/sglang.
package kvwire
