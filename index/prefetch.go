//go:build amd64 || arm64

package index

import "unsafe"

// prefetch asks the processor to fetch the line at p, which need not be valid,
// and doesn't wait for it. It is no access: it may be asked without a lock.
//
//go:noescape
func prefetch(p unsafe.Pointer)
