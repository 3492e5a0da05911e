package prefetch

import (
	"testing"
	"unsafe"
)

// TestFetchingIsNoAccess: any address may be asked for, also where nothing is, and
// what is there stays.
func TestFetchingIsNoAccess(t *testing.T) {
	line := [8]uint64{1, 2, 3, 4, 5, 6, 7, 8}
	p := uintptr(unsafe.Pointer(&line))
	for _, f := range []func(p, q uintptr){Lines, ToWrite, ToLock} {
		f(p, p+uintptr(len(line)*8-1))
		f(0, ^uintptr(0))
	}
	if line != [8]uint64{1, 2, 3, 4, 5, 6, 7, 8} {
		t.Errorf("a line is %v after it was fetched", line)
	}
}
