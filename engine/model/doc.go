// Package model is the engine model: one worker of an inference engine with
// continuous batching, chunked prefill, prefix caching and KV offloading, as
// pure arithmetic. It reads no clock, starts no goroutine, draws no random
// number of its own and does no I/O, so a simulator runs a fleet of it in
// virtual time and package emulator puts it behind real sockets.
//
// The central type is [Worker]. A driver calls Submit and Cancel as requests
// come and go, asks Next when something will happen, and calls Advance to let
// it happen; what happened arrives as [Event] values. Start reading at
// worker.go, then step.go (one iteration), admit.go (caching and loading),
// and preset.go for the physical constants.
//
// A router's cost model must not be judged on an engine of its own form only,
// so what an engine does can be of several kinds:
//
//   - how long an iteration takes: [Timing], with [Linear], [Padded], [Mocker]
//     and [Windowed], and Config.Noise;
//   - when a request is admitted and who goes first: [Admission], [Schedule];
//   - what is cached: a pool or a tree, and for hybrid models a second group of
//     blocks that limits what a hit can use (window.go);
//   - how blocks reach lower tiers, by eviction or by write-through (evict.go),
//     and come back over a link, in turn or at once (link.go).
//
// What the world does to a worker is told to it: SetLink for other traffic on
// a link, SetSlowdown for a machine that falls behind, Reset for a crash. Stats
// has what real engines report, for observers that may know no more. Check
// says whether the books agree.
//
// Times are float64 microseconds of modelled time since the driver's own zero.
// Tokens, blocks and bytes are counts. Tier transfers upwards take time on the
// link of their tier; going down is free, since buses are full duplex and
// engines copy down in the background.
package model
