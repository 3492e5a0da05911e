package emulator

import (
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// fdAlarm is a timerfd read through the runtime's poller, which a timer that
// expires wakes at once.
type fdAlarm struct {
	fd   int
	file *os.File
	c    chan struct{}
	wg   sync.WaitGroup
}

// newAlarm returns the most precise alarm there is.
func newAlarm() alarm {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return newTimerAlarm()
	}
	a := &fdAlarm{fd: fd, file: os.NewFile(uintptr(fd), "timerfd"), c: make(chan struct{}, 1)}
	a.wg.Go(a.run)
	return a
}

// run passes the expirations on until close.
func (a *fdAlarm) run() {
	var expirations [8]byte
	for {
		if _, err := a.file.Read(expirations[:]); err != nil {
			return
		}
		select {
		case a.c <- struct{}{}:
		default:
		}
	}
}

func (a *fdAlarm) set(d time.Duration) {
	// A value of 0 would disarm it.
	a.arm(unix.ItimerSpec{Value: unix.NsecToTimespec(max(d.Nanoseconds(), 1))})
}

func (a *fdAlarm) stop() { a.arm(unix.ItimerSpec{}) }

// arm cannot fail: the descriptor is a timerfd until close, and the owner does
// not set the alarm after that.
func (a *fdAlarm) arm(spec unix.ItimerSpec) { _ = unix.TimerfdSettime(a.fd, 0, &spec, nil) }

func (a *fdAlarm) rings() <-chan struct{} { return a.c }

func (a *fdAlarm) close() {
	a.file.Close()
	a.wg.Wait()
}
