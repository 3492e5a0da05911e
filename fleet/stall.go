package fleet

import (
	"sync"
	"time"

	"github.com/rhizome-router/rhizome/clock"
)

const (
	// stallTokens is how many first tokens must have gone unconfirmed.
	stallTokens = 3
	// stallWait is how long after each of them a batch may take.
	stallWait = 2 * time.Second
)

// stall notices a KV-event feed that has fallen silent: requests that had to
// compute blocks got their first tokens, and no batch told of the blocks.
type stall struct {
	mu     sync.Mutex
	since  int           // unconfirmed first tokens since the last batch
	latest clock.Instant // when the stallTokens'th of them came
}

// firstToken records that a request which computed a whole block got its first
// token.
func (s *stall) firstToken(now clock.Instant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.since++; s.since == stallTokens {
		s.latest = now
	}
}

// batch records that the feed lives.
func (s *stall) batch() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.since = 0
}

// stalled reports whether the feed should be doubted.
func (s *stall) stalled(now clock.Instant) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.since >= stallTokens && now.Sub(s.latest) > stallWait
}

// Told tells the member that a batch of its KV events came.
func (m *Member) Told() { m.stall.batch() }

// FirstToken tells the member that a request of ours got its first token, and
// how many prompt tokens had to be computed for it.
func (m *Member) FirstToken(now clock.Instant, uncachedTokens float64) {
	m.largestPrefill.Store(max(m.largestPrefill.Load(), uint64(max(0, uncachedTokens))))
	if c := m.cache.Load(); c.BlockTokens > 0 && uncachedTokens >= float64(c.BlockTokens) {
		m.stall.firstToken(now)
	}
}

// BudgetTokens returns how many tokens a step of the engine computes at most,
// given what is assumed of it: more if its events show more, less if they show
// less and a prompt that had to be cut at that size went through.
func (m *Member) BudgetTokens(c *Cache, assumed int) int {
	if c.StepTokens > assumed || c.StepTokens > 0 && 2*m.largestPrefill.Load() >= 3*uint64(c.StepTokens) {
		return c.StepTokens
	}
	return assumed
}

// Stalled reports whether the member's KV events have fallen silent though
// they should not have: what the index holds of it counts half.
func (m *Member) Stalled(now clock.Instant) bool {
	return m.cache.Load().Known == ByEvents && m.stall.stalled(now)
}
