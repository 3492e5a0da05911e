package route

import (
	"cmp"
	"slices"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/crdt"
	"github.com/rhizome-router/rhizome/mesh/core"
)

// Promise is a promise of blocks that its origin told its peers of, for those who
// look whether it ends in time.
type Promise struct {
	Origin   core.Replica
	No       uint64
	Deadline clock.Instant // by this replica's clock
}

// HeldPromises returns the promises of peers that count here, by origin and
// number.
func (r *Router) HeldPromises() (held []Promise) {
	p := r.peering
	if p == nil {
		return nil
	}
	p.mesh.Do(func(clock.Instant, *core.Core) {
		for id, no := range p.tickets { // order-free: sorted below
			if at, open := r.deps.Index.Deadline(no); open {
				held = append(held, Promise{id.writer, core.TicketNo(id.key), at})
			}
		}
	})
	slices.SortFunc(held, func(a, b Promise) int {
		return cmp.Or(cmp.Compare(a.Origin.Name, b.Origin.Name), cmp.Compare(a.Origin.Inc, b.Origin.Inc), cmp.Compare(a.No, b.No))
	})
	return held
}

// ToldPromises returns the promises of this replica that peers were told of and
// that are not over, by number.
func (r *Router) ToldPromises() (told []Promise) {
	p := r.peering
	if p == nil {
		return nil
	}
	p.mesh.Do(func(now clock.Instant, c *core.Core) {
		c.Own(core.Tickets).Each(int64(now), func(it *crdt.PageItem) bool {
			told = append(told, Promise{c.Self(), core.TicketNo(it.Key), clock.Instant(it.Until)})
			return true
		})
	})
	slices.SortFunc(told, func(a, b Promise) int { return cmp.Compare(a.No, b.No) })
	return told
}
