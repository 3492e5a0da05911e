package cost

import (
	"math"

	"github.com/rhizome-router/rhizome/kv"
)

// Pressure is what a worker's cache is under: what new blocks push out of it,
// and how soon. The zero value is that of a cache of which nothing is known,
// which costs nothing.
type Pressure struct {
	// UnusedTokens is the part of the KV pool that never held anything yet: it
	// fills up before anything goes.
	UnusedTokens float64
	// ReuseProbability is that of the oldest decile of what is held being used
	// again, if it stayed: see [Reuse]. 0 to 1.
	ReuseProbability float64
	// ContextTokens is the mean context before a token of what goes.
	ContextTokens float64
	// Spill is the tier that it goes to; HBM: none, it is lost.
	Spill kv.Tier
	// LifeMicros is how long a block that is used now will stay on the worker,
	// on whatever tier, at the rate at which it stores; 0: for ever.
	LifeMicros float64
}

// resident is the probability that a context used now is still there when its
// workflow comes back. A block stays until it is evicted, and no longer (LRU);
// what is unsure is the time of return, taken to be exponential with the mean
// that is expected.
func (p *Pressure) resident(after float64) float64 {
	if p.LifeMicros <= 0 || after <= 0 {
		return 1
	}
	return -math.Expm1(-p.LifeMicros / after)
}

// tierTokenMicros is how long a token's load from a tier takes, without what
// starts the load; infinite where nothing can be loaded.
func (c *Class) tierTokenMicros(l *Load, t kv.Tier) float64 {
	if t == kv.HBM || c.Links[t].BytesPerMicro <= 0 {
		return math.Inf(1)
	}
	return c.KVBytes / (c.Links[t].BytesPerMicro * available(l.Rho[t]))
}

// eviction is what the request displaces: the tokens that find no unused room,
// each at the time that having it back will take, if it is wanted back.
func (c *Class) eviction(l *Load, r Request, p float64) float64 {
	displaced := max(0, p+max(1, r.Choices)*r.OutputTokens-l.Cache.UnusedTokens)
	if displaced == 0 || l.Cache.ReuseProbability <= 0 {
		return 0
	}
	again := min(c.TokenMicros+c.PairMicros*l.Cache.ContextTokens, c.tierTokenMicros(l, l.Cache.Spill))
	return displaced * l.Cache.ReuseProbability * again
}

// workflow is the expected loss when the workflow comes back and the worker has
// lost its context in the meantime: computing it all, less the cheapest load
// that would have been needed otherwise. Nothing else rewards a session's last
// worker: its hits already do.
func (c *Class) workflow(l *Load, r Request) float64 {
	back := r.Return
	if back.Probability <= 0 || back.ContextTokens <= 0 {
		return 0
	}
	lost := 1 - l.Cache.resident(back.AfterMicros)
	if lost <= 0 {
		return 0
	}
	again := c.TokenMicros*back.ContextTokens + c.PairMicros*Pairs(back.ContextTokens, 0)
	if l.Cache.Spill != kv.HBM && c.Links[l.Cache.Spill].BytesPerMicro > 0 {
		again -= c.Links[l.Cache.Spill].SetupMicros + back.ContextTokens*c.tierTokenMicros(l, l.Cache.Spill)
	}
	return min(1, back.Probability) * lost * max(0, again)
}

// Micros prices the way to a worker: a round trip, and what the bytes that a hit
// brings up from the remote pool take of the link between data centers, at
// their shadow price. How long that transfer takes is in the load.
func (d *Distance) Micros(c *Class, h Hit) float64 {
	if h.Tier != kv.Remote {
		return d.RTTMicros
	}
	return d.RTTMicros + d.ShadowMicrosPerByte*h.LowerTokens*c.KVBytes
}
