package route

import (
	"encoding/binary"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/crdt"
	"github.com/rhizome-router/rhizome/mesh/core"
)

// LowestPromise returns the number below which all promises that peers were told
// of are over; 0 for a router that is alone.
func (r *Router) LowestPromise() (low uint64) {
	p := r.peering
	if p == nil {
		return 0
	}
	p.mesh.Do(func(now clock.Instant, c *core.Core) {
		low = p.lastTicket + 1
		c.Own(core.Tickets).Each(int64(now), func(it *crdt.PageItem) bool {
			low = min(low, ticketNo(it.Key))
			return true
		})
	})
	return low
}

// Settle ends a peer's promises numbered below low, whose end was agreed on: what
// tells of each end may have been lost.
func (r *Router) Settle(origin core.Replica, low uint64) {
	p := r.peering
	if p == nil {
		return
	}
	p.mesh.Do(func(clock.Instant, *core.Core) {
		for id, no := range p.tickets { // order-free: each promise ends by itself
			if id.writer == origin && ticketNo(id.key) < low {
				r.deps.Index.End(no)
				delete(p.tickets, id)
			}
		}
	})
}

// ticketNo is the number that ticketKey made a key of; 0 for no such key.
func ticketNo(key string) uint64 {
	if len(key) != 8 {
		return 0
	}
	return binary.BigEndian.Uint64([]byte(key))
}
