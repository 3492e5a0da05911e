package fleet

import (
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/kv"
)

// virtualClock says when a target should be through with the prefills that this
// replica has booked on it: F. A booking moves it on by the work it adds;
// evidence puts it right. It is a second opinion on the sum of queued tokens,
// which knows no time.
type virtualClock struct {
	finishAt clock.Instant // F
	// idleAt is when the worker was last seen with nothing waiting.
	idleAt clock.Instant
}

const (
	// unprovedShare of a prefill's work counts as left, when it should be done
	// and nothing shows that it is.
	unprovedShare = 0.05
	// reachGrace is how long a request may take from its booking to the worker's
	// own count of what waits.
	reachGrace = 100 * time.Millisecond
)

func micros(x float64) time.Duration { return time.Duration(x * float64(time.Microsecond)) }

// book moves the clock on by what b adds: F = max(now, F) + marginal work.
func (v *virtualClock) book(now clock.Instant, b *Booking) {
	v.finishAt = max(now, v.finishAt).Add(micros(b.WorkMicros))
	b.bookedAt, b.clockAt = now, v.finishAt
}

// proved puts the clock right by evidence that a prefill is over now, where
// those behind it bring so much work.
func (v *virtualClock) proved(now clock.Instant, behindMicros float64) {
	v.finishAt = now.Add(micros(behindMicros))
}

// withdrawn takes back the work of a prefill that is not to be done any more.
func (v *virtualClock) withdrawn(now clock.Instant, b *Booking) {
	v.finishAt = max(now, v.finishAt.Add(-micros(b.WorkMicros)))
}

// behindMicros is the work of the prefills behind the i-th of the queue.
func (l *Ledger) behindMicros(i int) float64 {
	sum := 0.0
	for _, b := range l.queue[i+1:] {
		sum += b.WorkMicros
	}
	return sum
}

// NothingWaits tells the ledger that the worker said at an instant that no
// request waits for its prefill to begin: whatever had reached it then is over
// but for the newest at most. Only a newer word than the last counts.
func (l *Ledger) NothingWaits(at clock.Instant) {
	if at <= l.clock.idleAt {
		return
	}
	l.clock.idleAt = at
	newest, later := 0.0, 0.0
	for _, b := range l.queue {
		if b.bookedAt.Add(reachGrace) <= at {
			newest = b.WorkMicros
		} else {
			later += b.WorkMicros
		}
	}
	l.clock.finishAt = min(l.clock.finishAt, at.Add(micros(newest+later)))
}

// ClockMicros is how long the prefills booked here should still take, by the
// virtual clock: max(0, F − now), and no more than all the work of those that
// are not known to be over. While the newest is not known to be over, a
// bit of it counts as left, until twice the time has passed that it should have
// taken.
func (l *Ledger) ClockMicros(now clock.Instant) float64 {
	n := len(l.queue)
	if n == 0 {
		return 0
	}
	left := float64(l.clock.finishAt.Sub(now)) / float64(time.Microsecond)
	if b := l.queue[n-1]; now < b.clockAt.Add(b.clockAt.Sub(b.bookedAt)) {
		left = max(left, unprovedShare*b.WorkMicros)
	}
	return max(0, min(left, l.sums.queuedMicros))
}

// NextSilent returns the first queued request that will show no first token,
// but whose last full prompt block the worker's KV events may show; nil where
// there is none near the head.
func (l *Ledger) NextSilent() *Booking {
	for _, b := range l.queue[:min(len(l.queue), settleScan)] {
		if b.Silent && b.LastBlock != kv.Key(0) {
			return b
		}
	}
	return nil
}
