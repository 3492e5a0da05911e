//go:build !lab

package clock

import "time"

// Lab says that this is a lab build, which can be told to have the time of day
// wrong. It is not for use.
const Lab = false

func wall() time.Time { return time.Now() }
