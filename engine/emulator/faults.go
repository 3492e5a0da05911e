package emulator

import (
	"math/rand/v2"
	"time"

	"github.com/rhizome-router/rhizome/clock"
)

// faults are what goes wrong with the events on purpose: they leave late, in
// order, and some are never sent live. Replay has all that have left, but those
// of a time in which the feed was mute.
type faults struct {
	clock clock.Clock
	delay time.Duration
	loss  float64    // share of batches, 0…1
	rnd   *rand.Rand // of the loss
	late  []lateBatch
	mute  bool // all are lost, for good
}

// lateBatch is a batch that waits, oldest first.
type lateBatch struct {
	due     clock.Instant
	payload []byte
}

func newFaults(cfg Config) faults {
	return faults{clock: cfg.Clock, delay: cfg.EventDelay, loss: cfg.EventLoss, rnd: clock.Rand(cfg.Seed, "emulator: lost events")}
}

// hold keeps a batch back if events are to be late.
func (f *faults) hold(payload []byte) bool {
	if f.delay == 0 {
		return false
	}
	f.late = append(f.late, lateBatch{f.clock.Now().Add(f.delay), payload})
	return true
}

// lose says whether the next batch is lost on its way to subscribers.
func (f *faults) lose() bool { return f.loss > 0 && f.rnd.Float64() < f.loss }

// release publishes the late batches that are due.
func (f *feed) release(now clock.Instant) {
	late := f.faults.late
	n := 0
	for n < len(late) && late[n].due <= now {
		f.publish(late[n].payload)
		n++
	}
	clear(late[:n])
	f.faults.late = late[n:]
}

// nextDue returns when the next late batch is to leave; ok is false when none
// waits.
func (f *feed) nextDue() (due clock.Instant, ok bool) {
	if len(f.faults.late) == 0 {
		return 0, false
	}
	return f.faults.late[0].due, true
}
