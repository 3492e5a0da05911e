//go:build amd64 || arm64

package index

import "unsafe"

// prefetch asks the processor to fetch the lines at p and q, which need not be
// valid, and doesn't wait for them. It is no access: it may be asked without a
// lock.
//
//go:noescape
func prefetch(p, q unsafe.Pointer)
