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
// Times are float64 microseconds of modelled time since the driver's own zero.
// Tokens, blocks and bytes are counts. Tier transfers upwards take time on the
// link of their tier; spilling down is free, since buses are full duplex and
// engines copy down in the background.
package model
