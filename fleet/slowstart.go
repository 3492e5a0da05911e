package fleet

import (
	"sync/atomic"
	"time"

	"github.com/rhizome-router/rhizome/clock"
)

// welcome remembers since when a member has been fit without a break. Only what
// decisions saw counts: a worker that nobody asked for anything is as new as
// ever.
type welcome struct {
	since atomic.Int64 // the instant + 1; 0: not fit
}

// Seen tells the member what grade a decision found it in.
func (m *Member) Seen(now clock.Instant, g Grade) {
	switch g {
	case Fit:
		m.welcome.since.CompareAndSwap(0, int64(now)+1)
	case Suspect, Draining:
		m.welcome.since.Store(0)
	}
}

// FitFor returns how long the member has been fit, 0 while it is not.
func (m *Member) FitFor(now clock.Instant) time.Duration {
	since := m.welcome.since.Load()
	if since == 0 {
		return 0
	}
	return max(0, now.Sub(clock.Instant(since-1)))
}

// mostSlow is how much more a newcomer's load counts at first.
const mostSlow = 10

// SlowFactor is how many times the load of a member counts that has been fit so
// long, where it takes ramp to be like the others: ramp/fitFor, from 10 down
// to 1. With a ramp of 0 it is always 1.
func SlowFactor(fitFor, ramp time.Duration) float64 {
	switch {
	case fitFor >= ramp:
		return 1
	case fitFor*mostSlow <= ramp:
		return mostSlow
	}
	return float64(ramp) / float64(fitFor)
}
