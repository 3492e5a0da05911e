// Package load plays a workload as a client over HTTP and measures what a user
// would feel: time to the first token, time per output token, whole answers,
// how many prompt tokens came from a cache, and what failed.
//
// It has three doors. [Replay] sends one recorded trace to several base URLs at
// once, each with its own fleet behind it, and compares them in a [Report]:
// start reading there. [Demo] starts emulated workers and a router, holds
// multi-turn conversations with them, and shows a live table. [BenchGateway]
// measures what a router adds to a request.
//
// The first two stand on one client, which reads a streamed answer off the wire without
// decoding it event by event, so that the client does not take the machine
// from the fleet it measures.
//
// Times are modelled time unless said otherwise: emulated workers run faster
// than life by some factor (speed), and modelled time is wall time × speed.
package load
