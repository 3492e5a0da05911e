package lease

import (
	"cmp"
	"slices"
	"time"

	"github.com/rhizome-router/rhizome/clock"
)

// legend is what is known of a cluster that ended, until it is known in the one
// that goes on.
type legend struct {
	of     Cluster
	leases []Lease       // by birth; those in front go once they are settled there
	ends   []End         // by cluster: what whoever takes the leases knows then
	told   clock.Instant // when something was proposed last
	until  clock.Instant // what is unused by then is not worth bringing
}

const (
	// maxLegends bounds the clusters whose leases are kept to be brought; that of
	// the oldest goes first.
	maxLegends = 3
	// maxBrought bounds the leases of one proposal, but for those of one birth.
	maxBrought = 2048
	// bringAgain is after how long what was proposed and isn't known is proposed
	// anew.
	bringAgain = 2 * time.Second
)

// newLegend returns what a state knows, to be told to another cluster once it is
// sorted.
func newLegend(of Cluster, s *State) *legend {
	old := &legend{of: of, leases: make([]Lease, 0, len(s.leases))}
	ends := make(map[Cluster]Token)
	known := func(e End) {
		if ends[e.Cluster].Less(e.Known) {
			ends[e.Cluster] = e.Known
		}
	}
	for i := range s.past {
		known(s.part(i))
	}
	for _, e := range s.ended {
		known(e)
	}
	for _, l := range s.leases { // order-free: to be sorted
		born := *l
		born.Born = s.birth(l)
		known(End{born.Born.Cluster, born.Born.Token})
		old.leases = append(old.leases, born)
	}
	for c, upTo := range ends { // order-free: to be sorted
		old.ends = append(old.ends, End{c, upTo})
	}
	return old
}

func (old *legend) sort() {
	slices.SortFunc(old.leases, func(a, b Lease) int {
		return cmp.Or(cmp.Compare(a.Born.Cluster, b.Born.Cluster), cmp.Compare(a.Born.Token.Gen, b.Born.Token.Gen), cmp.Compare(a.Born.Token.Index, b.Born.Token.Index),
			slices.Compare(a.Key[:], b.Key[:]))
	})
	slices.SortFunc(old.ends, func(a, b End) int { return cmp.Compare(a.Cluster, b.Cluster) })
}

// bring keeps the leases that are known here, to be proposed to the cluster that
// this one ends for, once what was agreed there is known: the others may have
// taken this replica for dead meanwhile.
func (g *Group) bring(now clock.Instant) {
	m, of := g.table.Load(), Cluster(g.shown.Load())
	m.mu.RLock()
	old := newLegend(of, m.state)
	m.mu.RUnlock()
	old.sort()
	old.until = now.Add(g.cfg.TTL)
	g.brought = append(slices.DeleteFunc(g.brought, func(o *legend) bool { return o.of == of }), old)
	g.brought = slices.Delete(g.brought, 0, max(0, len(g.brought)-maxLegends))
}

// unpack proposes what was brought along, a part at a time, until it is known in
// the cluster that this replica is in now: a proposal may be lost.
func (g *Group) unpack(now clock.Instant) {
	for len(g.brought) > 0 && Cluster(g.shown.Load()) == g.own.Cluster {
		old := g.brought[0]
		m := g.table.Load()
		m.mu.RLock()
		commands, over := old.next(now, m.state)
		m.mu.RUnlock()
		if !over && now < old.until {
			if len(commands) > 0 {
				g.Propose(commands...)
			}
			return
		}
		g.brought = slices.Delete(g.brought, 0, 1)
	}
}

// next returns what to propose now to a cluster with that state, and whether all is
// known there. Leases that were born before up to where the state knows better, or
// whose workflow has one there, are left out.
func (old *legend) next(now clock.Instant, s *State) (commands []Command, over bool) {
	settled := 0
	for settled < len(old.leases) {
		l := &old.leases[settled]
		if s.knows(l.Born.Cluster).Less(l.Born.Token) && s.leases[l.Key] == nil {
			break
		}
		settled++
	}
	old.leases = old.leases[settled:]
	unknown := func(e End) bool { return s.knows(e.Cluster).Less(e.Known) }
	switch {
	case len(old.leases) == 0 && !slices.ContainsFunc(old.ends, unknown):
		return nil, true
	case old.told != 0 && settled == 0 && now.Sub(old.told) < bringAgain:
		return nil, false
	}
	old.told = max(now, 1)
	n := min(len(old.leases), maxBrought)
	for 0 < n && n < len(old.leases) && old.leases[n].Born == old.leases[n-1].Born {
		n++
	}
	for _, l := range old.leases[:n] {
		commands = append(commands, Command{Kind: Bring, Key: l.Key, Expect: l.Born.Token, Holder: l.Holder, Owner: l.Owner, Cluster: l.Born.Cluster})
	}
	// All of a cluster's are there if those of a later one follow, or nothing does.
	for _, e := range old.ends {
		if n < len(old.leases) && e.Cluster >= old.leases[n].Born.Cluster {
			if old.leases[n-1].Born.Cluster != e.Cluster {
				break
			}
			e.Known = old.leases[n-1].Born.Token
		}
		if unknown(e) {
			commands = append(commands, Command{Kind: Ended, Cluster: e.Cluster, Expect: e.Known})
		}
	}
	return commands, false
}
