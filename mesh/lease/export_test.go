package lease

import "github.com/rhizome-router/rhizome/mesh/core"

// Invite has a replica run Raft in a cluster whether the leader wants it or not.
func (g *Group) Invite(name string, c Cluster) bool {
	return g.deps.Node.Tell(name, core.Agreement, inviteWords(c))
}

// Transfer has this leader hand over for no reason.
func (g *Group) Transfer() error { return g.voter.Load().raft.LeadershipTransfer().Error() }
