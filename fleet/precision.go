package fleet

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/rhizome-router/rhizome/clock"
)

const (
	// precisionMemory is how many requests the precision of a member reaches
	// back.
	precisionMemory = 32
	// leastPrecision is what a member is trusted at least: below it what is
	// known of its cache is wrong and must be learned anew.
	leastPrecision = 0.5
	// resyncPause is the least time between two such restarts.
	resyncPause = time.Minute
)

// precision is how much of what the index said of a member's cache was there,
// on average: it pays for what left the cache unseen.
type precision struct {
	lost     atomic.Uint64 // 1 − precision, as the bits of a float
	resynced clock.Instant
	resyncs  atomic.Uint64
}

// Precision returns how much of what the index says of the member's cache is
// there, 0.5 to 1.
func (m *Member) Precision() float64 {
	return max(leastPrecision, 1-math.Float64frombits(m.precision.lost.Load()))
}

// Resyncs counts how often the member's KV events were followed anew for a low
// precision.
func (m *Member) Resyncs() uint64 { return m.precision.resyncs.Load() }

// Kept charges the member with n requests that found so much of what the index
// said its cache had, 0 to 1. Below half on average its events are followed
// anew, if they arrive at all, which Kept reports; the router calls it, under
// its lock.
func (m *Member) Kept(now clock.Instant, share float64, n int) (resync bool) {
	p := &m.precision
	lost, old := math.Float64frombits(p.lost.Load()), math.Pow(1-1./precisionMemory, float64(n))
	lost = lost*old + (1-min(1, max(0, share)))*(1-old)
	if c := m.Cache(); 1-lost < leastPrecision && c.Live && !m.Stalled(now) && (p.resynced == 0 || now.Sub(p.resynced) >= resyncPause) {
		p.resynced, lost, resync = now, 0, true
		p.resyncs.Add(1)
		if feed := m.feed.Load(); feed != nil {
			feed.Resync()
		}
	}
	p.lost.Store(math.Float64bits(lost))
	return resync
}

// FeedState says how far what is known of a member's cache goes back without a
// break: two that are equal have nothing lost between them.
type FeedState struct {
	Slot      uint32
	FreshAt   clock.Instant
	BadEvents uint64
	Gaps      uint64
	Healthy   bool // events arrive
}

// FeedState returns the state of the member's KV events.
func (m *Member) FeedState(now clock.Instant) FeedState {
	c := m.Cache()
	s := FeedState{Slot: uint32(c.Slot), FreshAt: c.FreshAt, BadEvents: c.BadEvents,
		Healthy: c.Known == ByEvents && c.Live && !m.Outdated() && !m.Stalled(now)}
	if feed := m.feed.Load(); feed != nil {
		s.Gaps = feed.Stats().Gaps
	}
	return s
}
