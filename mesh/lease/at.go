package lease

import (
	"context"
	"slices"
)

// At is how far in which cluster's log something is, for those who judge what
// callers were told: of one cluster only what it came to, and what its past holds,
// is one history.
type At struct {
	Cluster Cluster
	Index   uint64
}

// DoAt is Do, and says where in which log it was done.
func (g *Group) DoAt(ctx context.Context, c ...Command) ([]Event, At, error) {
	o, err := g.do(ctx, c)
	return o.events, At{o.at.cluster, o.at.index}, err
}

// VerifiedAt is Verified, and says how far which cluster's leader was.
func (g *Group) VerifiedAt(ctx context.Context, k Key) (Lease, At, error) {
	a, err := g.verify(ctx, k)
	return a.lease, At{a.at.cluster, a.at.index}, err
}

// Stand returns how far this replica's table is, and from which clusters its own
// one comes.
func (g *Group) Stand() (At, []Begin) {
	m := g.table.Load()
	m.mu.RLock()
	defer m.mu.RUnlock()
	return At{m.cluster, m.state.index}, slices.Clone(m.state.past)
}
