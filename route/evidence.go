package route

import (
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
