package route

import (
	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/mesh/core"
)

// LowestPromise returns the number below which all promises that peers were told
// of are over; 0 for a router that is alone.
func (r *Router) LowestPromise() (low uint64) {
	p := r.peering
	if p == nil {
		return 0
	}
	p.mesh.Do(func(now clock.Instant, c *core.Core) { low = c.LowestTicket(now, p.lastTicket+1) })
	return low
}

// Settle ends a peer's promises numbered below low, for good: their end was agreed
// on, and what tells of each may have been lost.
func (r *Router) Settle(origin core.Replica, low uint64) {
	if p := r.peering; p != nil {
		p.mesh.Do(func(_ clock.Instant, c *core.Core) { c.Checkpoint(origin, low) })
	}
}
