//go:build !amd64 && !arm64

// Package prefetch asks the processor for memory ahead of its use; here it does
// nothing, where we don't know how.
package prefetch

// Lines does nothing.
func Lines(p, q uintptr) {}

// ToWrite does nothing.
func ToWrite(p, q uintptr) {}

// ToLock does nothing.
func ToLock(p, q uintptr) {}
