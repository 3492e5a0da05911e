//go:build !amd64 && !arm64

// Package prefetch asks the processor for memory ahead of its use; here it does
// nothing, where we don't know how.
package prefetch

import "unsafe"

// Lines does nothing.
func Lines(p, q unsafe.Pointer) {}

// ToWrite does nothing.
func ToWrite(p, q unsafe.Pointer) {}
