//go:build !unix

package load

import "time"

// cpuTime returns 0: this system is not asked.
func cpuTime() time.Duration { return 0 }
