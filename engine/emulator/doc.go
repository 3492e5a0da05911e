// Package emulator is a stand-in worker: the HTTP API, KV events and metrics of
// vLLM or SGLang over real sockets, in front of the pure engine model. It
// computes nothing and answers with made-up text, but it waits, queues, caches,
// evicts, loads and announces as an engine would, in real time or faster. Demos,
// load tests and the tests of the router run against it.
//
// The central type is [Worker]: one engine with one owner goroutine (owner.go)
// that alone touches its model. Start reading at worker.go; generate.go shows a
// request's way through it, dialect.go what the engines differ in, template.go how
// messages become a prompt. A [Group] is several workers on consecutive ports.
//
// Modelled time is wall time × speedup: everything a client measures on the
// wall, /metrics included, is shorter by that factor. The response headers
// x-emulator-clock-micros and x-emulator-busy-micros give modelled time.
//
// It fails on request. [Config] says how late events leave and how many are
// lost, and
//
//	POST /emulator/restart?mode=drained|hard
//
// does what [Worker.Restart] does, and answers when the new life has begun. A
// drained restart lets running requests end and answers new ones with 503 and
// Retry-After meanwhile; a hard one cuts all connections but the one that asks.
// /health answers throughout.
//
//	POST /emulator/slow?factor=4
//	POST /emulator/mute?on=true|false
//
// make its steps take longer, and its events be lost for good: [Worker.Slow],
// [Worker.Mute].
//
// What a real engine does and this one does not: sampling parameters, stop
// strings, LoRA adapters, logprobs and priorities are ignored, and images are
// three tokens in the prompt each. Copies in lower tiers are made and told when
// blocks leave HBM, where SGLang's default writes them through at once.
package emulator
