//go:build !linux

package indexbench

import (
	"runtime"
	"time"
)

// threadCPU returns 0: this system is not asked.
func threadCPU() time.Duration { return 0 }

// residentBytes returns what the Go runtime holds of the system's memory.
func residentBytes() int64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.Sys - m.HeapReleased)
}
