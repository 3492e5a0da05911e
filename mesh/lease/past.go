package lease

import (
	"cmp"
	"math"
	"slices"
)

// Clusters end, and others begin from copies of what they agreed on; two may go on
// from one copy for a while, on both sides of a split. What is here lets the one
// that stays tell what of the other's it doesn't know better itself.

// Begin is where a generation began: what was agreed up to From, in the log as it
// was then, counts, and then what Cluster agreed on. Equal ones have equal pasts.
type Begin struct {
	Gen     uint64
	Cluster Cluster
	From    uint64
}

// End says that of a cluster that ended all is known that it came to up to Known.
type End struct {
	Cluster Cluster
	Known   Token
}

// maxPast and maxEnded bound what is remembered; the oldest goes first.
const (
	maxPast  = 64
	maxEnded = 64
)

func (s *State) begin(c *Command) {
	from := cmp.Or(c.From, s.index)
	s.gen = c.Gen
	s.past = append(s.past, Begin{c.Gen, c.Cluster, from})
	s.past = slices.Delete(s.past, 0, max(0, len(s.past)-maxPast))
}

// Cluster is the one that agreed on it; 0 for none.
func (s *State) Cluster() Cluster {
	if len(s.past) == 0 {
		return 0
	}
	return s.past[len(s.past)-1].Cluster
}

// Shared returns the last grant of another state, which has that past, that may be
// in s's own log; s knows what became of those up to it.
func (s *State) Shared(past []Begin) Token {
	for _, b := range slices.Backward(past) {
		switch i := slices.Index(s.past, b); {
		case i == len(s.past)-1 && i >= 0:
			return Token{b.Gen, math.MaxUint64} // what came later there is of a later generation
		case i >= 0:
			return Token{b.Gen, s.past[i+1].From}
		}
	}
	return Token{}
}

// note notes up to where it is known what a cluster came to that ended.
func (s *State) note(c Cluster, upTo Token) {
	for i := range s.ended {
		if e := &s.ended[i]; e.Cluster == c {
			if e.Known.Less(upTo) {
				e.Known = upTo
			}
			return
		}
	}
	s.ended = append(s.ended, End{c, upTo})
	s.ended = slices.Delete(s.ended, 0, max(0, len(s.ended)-maxEnded))
}

// known is up to where it is known what a cluster came to that ended.
func (s *State) known(c Cluster) Token {
	for _, e := range s.ended {
		if e.Cluster == c {
			return e.Known
		}
	}
	return Token{}
}

func (s *State) bring(c *Command) Event {
	l := s.leases[c.Key]
	switch {
	case l != nil, !s.known(c.Cluster).Less(c.Expect):
		return s.conflict(l)
	case len(s.leases) >= maxLeases:
		return Event{Kind: Full}
	}
	return s.grant(c)
}

// legend is what is known of a cluster that ended.
type legend struct {
	cluster Cluster
	end     Token
	past    []Begin
	leases  []Lease
}

// bring keeps the leases that are known here, to be proposed to the cluster that
// this one ends for, once what was agreed there is known: the others may have
// taken this replica for dead meanwhile.
func (g *Group) bring() {
	m := g.table.Load()
	m.mu.RLock()
	defer m.mu.RUnlock()
	s := m.state
	g.brought = &legend{Cluster(g.shown.Load()), Token{s.gen, s.index}, slices.Clone(s.past), s.Leases()}
}

// unpack proposes the leases that were brought along, those that may be in the log
// here left out: if they are held no more, they were ended since. Workflows that
// have a lease here keep that.
func (g *Group) unpack() {
	old := g.brought
	if old == nil || Cluster(g.shown.Load()) != g.own.Cluster {
		return
	}
	g.brought = nil
	m := g.table.Load()
	m.mu.RLock()
	shared := m.state.Shared(old.past)
	m.mu.RUnlock()
	for _, commands := range old.unpack(shared) {
		g.Propose(commands...)
	}
}

// unpack returns what to propose of leases granted after shared: in the order of
// their grants, each proposal closed by up to where it goes, which no two grants of
// one entry are on both sides of.
func (old *legend) unpack(shared Token) (proposals [][]Command) {
	leases := slices.DeleteFunc(old.leases, func(l Lease) bool { return !shared.Less(l.Token) })
	slices.SortFunc(leases, func(a, b Lease) int {
		return cmp.Or(cmp.Compare(a.Token.Gen, b.Token.Gen), cmp.Compare(a.Token.Index, b.Token.Index))
	})
	var commands []Command
	for i, l := range leases {
		commands = append(commands, Command{Kind: Bring, Key: l.Key, Expect: l.Token, Holder: l.Holder, Owner: l.Owner, Cluster: old.cluster})
		if i+1 < len(leases) && len(commands) >= maxBatch && l.Token.Less(leases[i+1].Token) {
			proposals = append(proposals, append(commands, Command{Kind: Ended, Cluster: old.cluster, Expect: l.Token}))
			commands = nil
		}
	}
	if shared.Less(old.end) {
		proposals = append(proposals, append(commands, Command{Kind: Ended, Cluster: old.cluster, Expect: old.end}))
	}
	return proposals
}
