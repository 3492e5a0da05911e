// Package engine is what a worker is: where it listens, what it says about its
// KV cache and its load, and how a request is sent to it.
//
// The central types are [Spec], one worker as an operator writes it, and
// [Feed], which follows a worker's KV events. Subpackages: zmtp speaks the
// ZeroMQ wire, vllm decodes vLLM's events, model is the pure engine model,
// emulator a stand-in worker on it. Start reading at spec.go.
package engine
