//go:build !linux

package emulator

// newAlarm returns the most precise alarm there is.
func newAlarm() alarm { return newTimerAlarm() }
