package route

import (
	"github.com/rhizome-router/rhizome/fleet"
	"github.com/rhizome-router/rhizome/kv"
)

// MemberShare is what this router has in flight on one member.
type MemberShare struct {
	Target kv.Target
	fleet.Share
}

// Shares appends what this router has in flight, one entry for each member of
// the fleet, in the view's order: what its peers should know of it.
func (r *Router) Shares(dst []MemberShare) []MemberShare {
	view := r.deps.Fleet.View()
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.deps.Clock.Now()
	for _, m := range view.Members {
		class := r.constants(m)
		load := m.Ledger.Load(now, &class, tokenTime(&class, m.Ledger.InFlight()), false)
		dst = append(dst, MemberShare{m.Target, fleet.ShareOf(&load, m.Ledger.InFlight())})
	}
	return dst
}
