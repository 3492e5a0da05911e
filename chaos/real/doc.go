// Package real is the chaos ground of real things: `rhizome serve` and
// `rhizome emulate` as processes in network namespaces of their own, with real
// sockets, files and signals.
//
// The central type is [Ground]. A run makes a hub namespace with a bridge, one
// namespace for each replica and one for all workers, and plays the load from
// the hub. Packets between replicas are dropped by nft, links are narrowed by
// tbf, and where delay, loss, doubles, order or MTU go wrong the mesh runs over
// a switch of our own between TUN devices, since many kernels lack netem.
//
// Nothing is loaded outside of these namespaces. Processes die with the run (the
// kernel sends them SIGKILL when its thread is gone); namespaces and files carry
// the run's process id and start time in their names, and a Ground begins by
// sweeping away what dead runs left: see [Sweep]. It needs Linux, root, iproute2
// and nftables; [Ground.Ready] says what is missing.
package real
