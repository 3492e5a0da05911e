package emulator

import "time"

// alarm rings once at a set time. Where the system has them it uses kernel
// timers: the Go runtime's own wait in whole milliseconds when the process is
// idle, which at a speedup of 20 is most of an iteration.
type alarm interface {
	// set makes the alarm ring after d; a d of 0 or less means at once. It
	// replaces what was set before, but a ring that was due may still come.
	set(d time.Duration)
	// stop makes it not ring.
	stop()
	rings() <-chan struct{}
	// close releases the alarm and waits for what it runs.
	close()
}

// timerAlarm is the portable one.
type timerAlarm struct {
	c     chan struct{}
	timer *time.Timer
}

func newTimerAlarm() *timerAlarm {
	a := &timerAlarm{c: make(chan struct{}, 1)}
	a.timer = time.AfterFunc(time.Hour, a.ring)
	a.timer.Stop()
	return a
}

func (a *timerAlarm) ring() {
	select {
	case a.c <- struct{}{}:
	default:
	}
}

func (a *timerAlarm) set(d time.Duration)    { a.timer.Reset(max(d, 0)) }
func (a *timerAlarm) stop()                  { a.timer.Stop() }
func (a *timerAlarm) rings() <-chan struct{} { return a.c }
func (a *timerAlarm) close()                 { a.timer.Stop() }
