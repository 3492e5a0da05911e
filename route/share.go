package route

import (
	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/fleet"
	"github.com/rhizome-router/rhizome/kv"
)

// MemberShare is what this router has in flight on one member.
type MemberShare struct {
	Target kv.Target
	fleet.Share
}

// Shares appends what this router has in flight, one entry for each member of
// the fleet, in the view's order.
func (r *Router) Shares(dst []MemberShare) []MemberShare {
	view := r.deps.Fleet.View()
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.deps.Clock.Now()
	for _, m := range view.Members {
		dst = append(dst, MemberShare{m.Target, r.share(now, m)})
	}
	return dst
}

// share is what is in flight on a member. It needs r.mu.
func (r *Router) share(now clock.Instant, m *fleet.Member) fleet.Share {
	n := m.Ledger.InFlight()
	if n == 0 {
		return fleet.Share{}
	}
	class := r.constants(m)
	load := m.Ledger.Load(now, &class, tokenTime(&class, n), false)
	return fleet.ShareOf(&load, n)
}
