package fleet

import (
	"math"
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/cost"
	"github.com/rhizome-router/rhizome/index"
	"github.com/rhizome-router/rhizome/kv"
)

// Pace averages how fast a cache takes in tokens, by [Member.Clock]. The zero
// value has seen nothing. It is not safe for concurrent use.
type Pace struct {
	seen     bool
	at       clock.Instant
	tokens   uint64
	perMicro float64
}

const (
	// paceEvery is how often a new reading is taken, paceHalfLife how fast old
	// ones are forgotten.
	paceEvery    = time.Second
	paceHalfLife = 30 * time.Second
)

// Observe takes the clock's present reading and returns tokens per µs. A clock
// that went back is another cache's.
func (p *Pace) Observe(now clock.Instant, tokens uint64) float64 {
	elapsed := now.Sub(p.at)
	switch {
	case !p.seen || tokens < p.tokens:
		*p = Pace{seen: true, at: now, tokens: tokens, perMicro: p.perMicro}
	case elapsed >= paceEvery:
		rate := float64(tokens-p.tokens) / float64(elapsed.Microseconds())
		p.perMicro += (1 - math.Exp2(-float64(elapsed)/float64(paceHalfLife))) * (rate - p.perMicro)
		p.at, p.tokens = now, tokens
	}
	return p.perMicro
}

// oldestDecile is how old, as a share of the horizon, what an LRU cache evicts
// next is: the middle of its oldest tenth.
const oldestDecile = 0.95

// PressureOf says what a cache is under: c as its events show it, h its
// horizon, capacityTokens its pool in HBM (0 where unknown), pace its [Pace] and
// reuse what is known of uses by age. contextTokens is the mean context of what
// goes.
func PressureOf(c *Cache, h index.Horizon, capacityTokens, pace float64, reuse *cost.Reuse, contextTokens float64) cost.Pressure {
	p := cost.Pressure{ContextTokens: contextTokens, UnusedTokens: math.MaxFloat64}
	switch {
	case c.Known == ByEvents && c.Evicting[kv.HBM]:
		p.UnusedTokens = 0
	case c.Known == ByEvents && capacityTokens > 0:
		p.UnusedTokens = max(0, capacityTokens-float64(c.HeldTokens[kv.HBM]))
	case capacityTokens > 0: // by what was sent there
		p.UnusedTokens = max(0, capacityTokens-float64(h.Now))
	}
	if h.HBM < math.MaxUint64 {
		p.ReuseProbability = reuse.Probability(oldestDecile * float64(h.HBM))
	}
	all := h.HBM
	if h.Total > h.HBM {
		all, p.Spill = h.Total, h.Lower
	}
	if all < math.MaxUint64 && pace > 0 {
		p.LifeMicros = float64(all) / pace
	}
	return p
}
