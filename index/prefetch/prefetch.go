//go:build amd64 || arm64

// Package prefetch asks the processor for memory ahead of its use. The tables of
// index and crdt are larger than its caches, and who looks up many things in turn
// waits for each of them unless all were asked for before.
package prefetch

// Lines asks the processor to fetch the cache lines at the addresses p and q, and
// doesn't wait for them. It is no access: what is there may be changed by others
// meanwhile, or nothing may be there. So they are no pointers.
func Lines(p, q uintptr)

// ToWrite is Lines for what will be written: no other core then has the lines.
func ToWrite(p, q uintptr)

// ToLock is ToWrite of p, a lock, and Lines of q, which will only be read.
func ToLock(p, q uintptr)
