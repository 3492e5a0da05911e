//go:build lab

package state

import (
	"os"
	"strings"
	"time"
)

// SlowVariable names the file that says how long a write takes in a lab build, as
// time.ParseDuration reads it. Where there is none the disk is as fast as it is.
const SlowVariable = "RHIZOME_TEST_SLOW_DISK"

func slowDisk() {
	text, err := os.ReadFile(os.Getenv(SlowVariable))
	if err != nil {
		return
	}
	if d, err := time.ParseDuration(strings.TrimSpace(string(text))); err == nil {
		time.Sleep(d)
	}
}
