//go:build amd64 || arm64

// Package prefetch asks the processor for memory ahead of its use. The tables of
// index and crdt are larger than its caches, and who looks up many things in turn
// waits for each of them unless all were asked for before.
package prefetch

import "unsafe"

// Lines asks the processor to fetch the cache lines at p and q, which need not be
// valid, and doesn't wait for them. It is no access: what is there may be changed
// by others meanwhile.
//
//go:noescape
func Lines(p, q unsafe.Pointer)

// ToWrite is Lines for what will be written: no other core then has the lines.
//
//go:noescape
func ToWrite(p, q unsafe.Pointer)
