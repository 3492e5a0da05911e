// Package engine is what a worker is: where it listens, what it says about its
// KV cache and its load, and how a request is sent to it.
//
// The central types are [Spec], one worker as an operator writes it, [Worker],
// the way to talk to it, and [Feed], which follows a worker's KV events through
// lost messages, restarts and short replay buffers. Subpackages: zmtp speaks
// the ZeroMQ wire, kvwire decodes event streams, vllm and sglang know what each
// engine's have to themselves, model is the pure engine model, emulator a
// stand-in worker on it.
//
// Start reading at spec.go. What a worker says of itself is in detect.go, what
// it shows of its load in telemetry.go, which tokens a prompt has in render.go. For the feed read feed.go (the shell: connections,
// timers), then follow.go (the order of batches, and every trap in it); inbox.go
// and replay.go are its two sources.
package engine
