package lease

import (
	"fmt"

	"github.com/hashicorp/raft"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/mesh/core"
)

// take does what was planned.
func (g *Group) take(now clock.Instant, s step) {
	log := g.deps.Log
	v := g.voter.Load()
	if s.do != yield {
		g.own.YieldTo = 0
	}
	switch s.do {
	case begin:
		log.Warn("begin a cluster for leases", "from generation", g.own.Gen, "index", g.own.Index)
		g.stopVoter()
		g.start(now, Cluster(g.rand.Uint64()|1), true)
	case follow:
		log.Info("follow another cluster for leases", "cluster", s.to)
		if g.own.Leads || v != nil && g.watch.lastSeen != nil && now.Sub(g.watch.leader) >= reviveAfter {
			g.bring(now)
		}
		g.stopVoter()
		g.own.Cluster = s.to
	case yield:
		if g.own.YieldTo != s.to {
			log.Warn("leave the own cluster for leases for another, once that has begun a later generation", "cluster", s.to)
			g.own.YieldTo = s.to
		}
	case retire:
		log.Info("vote no more")
		g.stopVoter()
	case invite:
		g.deps.Node.Tell(s.name, core.Agreement, inviteWords(g.own.Cluster))
	case add:
		g.addedAt = v.raft.CommitIndex()
		g.alter(v, s, func() error {
			return v.raft.AddNonvoter(raft.ServerID(s.id), nominal(s.id), 0, changeTimeout).Error()
		})
	case promote:
		g.alter(v, s, func() error {
			return v.raft.AddVoter(raft.ServerID(s.id), nominal(s.id), 0, changeTimeout).Error()
		})
	case remove:
		g.alter(v, s, func() error { return v.raft.RemoveServer(raft.ServerID(s.id), 0, changeTimeout).Error() })
	case transfer:
		g.alter(v, s, func() error { return v.raft.LeadershipTransfer().Error() })
	}
}

// alter changes the voters, unless a change is under way.
func (g *Group) alter(v *voter, s step, f func() error) {
	if g.change != nil {
		select {
		case err := <-g.change:
			if err != nil {
				g.deps.Log.Info("the voters did not change", "err", err)
			}
		default:
			return
		}
	}
	done := make(chan error, 1)
	g.change = done
	g.deps.Log.Info("change who votes on leases", "what", s.do, "server", s.id)
	g.work.Go(func() { done <- v.await(f) })
}

// start runs Raft in a cluster, as a server that never was before.
func (g *Group) start(now clock.Instant, cluster Cluster, first bool) {
	g.servers++
	id := fmt.Sprintf("%s/%d", g.deps.Self, g.servers)
	m := newMachine(cluster, NewState(), g.applied)
	v, err := startVoter(g.port, cluster, id, first, g.cfg.Heartbeat, m, g.deps.Log)
	if err != nil {
		g.deps.Log.Error("no part in agreeing on leases", "err", err)
		return
	}
	v.began = now
	g.own.Cluster, g.own.Server = cluster, id
	var legacy legacy
	if first {
		legacy.begin = Command{Kind: Generation, Gen: g.nextGen(), Cluster: cluster}
		legacy.copy, legacy.begin.From = g.copy()
	}
	g.voter.Store(v)
	v.watcher.Go(func() { g.follow(v, legacy) })
}

// copy returns a snapshot of what is known here, and up to where in the log that
// is; nil if that is nothing.
func (g *Group) copy() ([]byte, uint64) {
	m := g.table.Load()
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.state.Index() == 0 {
		return nil, 0
	}
	return m.state.Append(nil), m.state.Index()
}

// Save returns what is agreed on as [Deps.Saved] takes it; nil for nothing. A nil
// group has agreed on nothing.
func (g *Group) Save() []byte {
	if g == nil {
		return nil
	}
	b, _ := g.copy()
	return b
}

// nextGen is later than any generation that was heard of.
func (g *Group) nextGen() uint64 {
	gen := g.own.Gen
	for _, p := range g.peers { // order-free: a maximum
		gen = max(gen, p.Gen)
	}
	return gen + 1
}

func (g *Group) stopVoter() {
	v := g.voter.Swap(nil)
	if v == nil {
		return
	}
	if err := v.stop(); err != nil {
		g.deps.Log.Warn("stop to vote on leases", "err", err)
	}
	g.own.Server = ""
}

// address returns where a server is now, if its replica lives and is connected.
func (g *Group) address(id string) (raft.ServerAddress, bool) {
	a, ok := (*g.addresses.Load())[id]
	return a, ok
}
