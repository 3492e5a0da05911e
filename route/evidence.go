package route

import (
	"math"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/fleet"
	"github.com/rhizome-router/rhizome/kv"
)

// takeEvidence brings a candidate's ledger up to what its worker has shown of
// the prefills booked there: by its KV events, by its own count of what waits,
// and else by the time that passed.
func (r *Router) takeEvidence(now clock.Instant, c *candidate) {
	l := &c.member.Ledger
	r.showSilent(now, c)
	if waiting := c.signals.Waiting; waiting.Source == fleet.Scraped && waiting.Value == 0 {
		l.NothingWaits(waiting.At)
	}
	l.Settle(now, tokenTime(&c.class, l.InFlight()))
	c.clockMicros = l.ClockMicros(now)
}

// showSilent counts the prefills of responses that show no first token as done
// whose last block the member's KV events have shown by now.
func (r *Router) showSilent(now clock.Instant, c *candidate) {
	m := c.member
	if !c.cache.Live || c.cache.Batches == m.BatchesSeen {
		return
	}
	m.BatchesSeen = c.cache.Batches
	for {
		b := m.Ledger.NextSilent()
		if b == nil || !r.deps.Index.Tiers(c.cache.Slot, 0, b.LastBlock).Has(kv.HBM) {
			return
		}
		m.Ledger.FirstToken(now, b, tokenTime(&c.class, m.Ledger.InFlight()))
	}
}

// lastBlock returns the last full block of a prompt, where the events of a
// candidate will show when it is computed; else 0.
func (r *Router) lastBlock(c *candidate, keys []kv.Key) kv.Key {
	if !c.cache.Live || len(keys) == 0 {
		return 0
	}
	last := keys[len(keys)-1]
	if r.deps.Index.Tiers(c.cache.Slot, 0, last).Has(kv.HBM) {
		return 0 // there already: says nothing of this request
	}
	return last
}

// doubtedPrecision is the precision from which down a member's hits count for
// less: single errors are no reason to mistrust all that it says.
const doubtedPrecision = 0.9

// discount takes off what experience says is not there of a hit that the index
// tells.
func (c *candidate) discount() {
	p := c.member.Precision()
	if c.source != fromEvents && c.source != fromLearned || p >= doubtedPrecision {
		return
	}
	block := float64(max(1, c.cache.BlockTokens))
	whole := func(x float64) float64 { return math.Floor(p*x/block) * block }
	before := c.hit.Tokens()
	c.hit.HBMTokens, c.hit.LowerTokens = whole(c.hit.HBMTokens), whole(c.hit.LowerTokens)
	c.discounted = int(before - c.hit.Tokens())
}
