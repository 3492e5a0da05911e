// Package workload holds what clients ask of a fleet, as plain data: recorded
// traces, and generators whose every draw follows from a seed. The demo, the
// load player and the simulator share it, so that all three mean the same work
// by the same name.
//
// Over HTTP the central type is [Request], one line of a trace; start reading
// at [ReadTrace]. [Chat] generates multi-turn conversations instead, one
// [Session] at a time. [Text] turns block ids into prompts whose bytes are
// equal exactly where the ids are.
//
// In the simulator the central type is [Plan]: all prompts and answers
// beforehand, as spans of contents in place of text; start reading there.
// [TracePlan] makes one of a trace; [Agents], [ChatFleet] and [SyntheticChat]
// generate one; [Bursts], [Diurnal] and [Hide] change one. [BlockKeys] gives
// the names of its blocks, [InfiniteCache] the bound on what can be reused.
//
// Nothing here reads a clock, starts a goroutine or does I/O beyond reading a
// trace from an io.Reader.
package workload
