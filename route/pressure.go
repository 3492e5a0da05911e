package route

import (
	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/cost"
	"github.com/rhizome-router/rhizome/fleet"
)

// addPressure says what a candidate's cache is under, where a term asks for it.
func (r *Router) addPressure(now clock.Instant, c *candidate, request cost.Request) {
	m := c.member
	pace := m.Pace.Observe(now, m.Clock(c.cache))
	if r.cfg.Weights.Eviction <= 0 && request.Return.Probability <= 0 {
		return
	}
	c.load.Cache = fleet.PressureOf(c.cache, m.Horizon(c.cache), c.class.CapacityTokens, pace, &c.group.reuse, r.typical.promptTokens/2)
}

// addPromised takes into account that part of a hit is only promised: it counts
// as far as promises are kept, and those who made it have to be waited for.
func (r *Router) addPromised(now clock.Instant, c *candidate, h *matched, parts *fleet.Parts, request cost.Request) {
	if h.source != fromEvents && h.source != fromLearned {
		return
	}
	block := float64(h.cache.BlockTokens)
	c.promised = min(c.hit.Tokens(), block*float64(h.run.Len())) - block*float64(h.sure)
	if c.promised <= 0 {
		c.promised = 0
		return
	}
	c.hit.UnsureTokens = (1 - c.group.confirm.Probability()) * c.promised
	// What comes before its own prefill passes meanwhile.
	own := c.class.OverheadMicros + c.class.PromptTokenMicros*request.PromptTokens
	c.hit.ProducerMicros = max(0, float64(c.member.Ledger.ReadyIn(now, parts).Microseconds())-own)
}

// observeConfirm learns from the cached tokens of a response whether what was
// promised came true.
func (d *Decision) observeConfirm(u *Usage) {
	if d.promised <= 0 || u.CachedTokens < 0 {
		return
	}
	sure := float64(d.PredictedCachedTokens) - d.promised // and what was sent beyond blocks
	d.seen.class.confirm.Observe((float64(u.CachedTokens) - sure) / d.promised)
}

// observeReuse learns at what ages sessions come back to their contexts, when
// one is about to be placed on a candidate.
func (r *Router) observeReuse(name string, to *candidate) {
	if name == "" {
		return
	}
	to.group.reuse.Left()
	last, known := r.sessions.get(name)
	if !known || last.restored {
		return
	}
	for i := range r.cands {
		if c := &r.cands[i]; c.member.Target == last.target {
			if clock := c.member.Clock(c.cache); clock >= last.clock {
				c.group.reuse.Again(float64(clock - last.clock))
			}
			return
		}
	}
}
