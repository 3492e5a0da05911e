//go:build !amd64 && !arm64

package index

import "unsafe"

// prefetch does nothing where we don't know how.
func prefetch(p, q unsafe.Pointer) {}
