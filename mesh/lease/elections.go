package lease

import "github.com/rhizome-router/rhizome/clock"

// elections tells those without need from others. An election was without need if
// the leader before it, in the same cluster, was neither dead nor leaving nor cut
// off from the one who won: what it tells of itself twice a second came all the
// while, never [unheard] apart. If it was cut off from others only, that can't be
// seen from here. The winner counts, so the sum over replicas is that of
// elections.
type elections struct {
	won    clock.Instant // when the last one was won whose need isn't known yet; 0 for none
	before string        // who led before
	heard  clock.Instant // when it was heard last before
}

// unheard is for how long a leader may be silent and count as there; one that leads
// no more tells that at once.
const unheard = 3 * advertsEvery

// look is called before the leader of now is noted.
func (e *elections) look(g *Group, now clock.Instant, v *view) {
	if was := g.leader.Load(); v.own.Leads && was != nil && was.cluster == v.own.Cluster && was.term != 0 && was.term < v.own.Term {
		e.won, e.before, e.heard = now, was.name, was.at
		if p := g.peers[was.name]; p != nil && p.at > e.heard {
			e.heard = p.at
		}
	}
	if e.won == 0 {
		return
	}
	p := g.peers[e.before]
	switch {
	case e.before == g.deps.Self:
		if e.won.Sub(e.heard) < unheard {
			g.counts.spurious.Add(1)
		}
	case p != nil && p.at > e.won:
		if p.at.Sub(e.heard) < unheard && !p.Leaving {
			g.counts.spurious.Add(1)
		}
	case now.Sub(e.won) < unheard:
		return
	}
	e.won = 0
}
