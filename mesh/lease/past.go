package lease

import (
	"cmp"
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

// End says that of a cluster all is known that it came to up to Known.
type End struct {
	Cluster Cluster
	Known   Token
}

// Birth is a lease's grant by the cluster that gave it first. A lease that is
// brought from cluster to cluster keeps it, so that whoever knows what became of
// that grant knows the lease, by whatever way it comes.
type Birth struct {
	Cluster Cluster
	Token   Token
}

// maxPast and maxEnded bound what is remembered; the oldest goes first.
const (
	maxPast  = 64
	maxEnded = 256
)

func (s *State) begin(c *Command) {
	from := cmp.Or(c.From, s.index)
	s.gen = c.Gen
	s.past = append(s.past, Begin{c.Gen, c.Cluster, from})
	if over := len(s.past) - maxPast; over > 0 {
		for i := range over {
			s.note(s.part(i))
		}
		s.past = slices.Delete(s.past, 0, over)
	}
}

// Cluster is the one that agreed on it; 0 for none.
func (s *State) Cluster() Cluster {
	if len(s.past) == 0 {
		return 0
	}
	return s.past[len(s.past)-1].Cluster
}

// part is up to where what a cluster came to counts here, by a part of the past.
func (s *State) part(i int) End {
	b := s.past[i]
	if i+1 == len(s.past) {
		return End{b.Cluster, Token{b.Gen, s.index}}
	}
	return End{b.Cluster, Token{b.Gen, s.past[i+1].From}}
}

// note notes up to where it is known what a cluster came to.
func (s *State) note(e End) {
	for i := range s.ended {
		if was := &s.ended[i]; was.Cluster == e.Cluster {
			if was.Known.Less(e.Known) {
				was.Known = e.Known
			}
			return
		}
	}
	s.ended = append(s.ended, e)
	s.ended = slices.Delete(s.ended, 0, max(0, len(s.ended)-maxEnded))
}

// knows is up to where it is known here what a cluster came to: what it granted
// until then is held here, or was ended.
func (s *State) knows(c Cluster) (upTo Token) {
	for i := range s.past {
		if e := s.part(i); e.Cluster == c && upTo.Less(e.Known) {
			upTo = e.Known
		}
	}
	for _, e := range s.ended {
		if e.Cluster == c && upTo.Less(e.Known) {
			upTo = e.Known
		}
	}
	return upTo
}

// birth is where a lease was granted first. Of one that is older than the past
// that is remembered, the oldest cluster of that answers for it.
func (s *State) birth(l *Lease) Birth {
	if l.Born != (Birth{}) {
		return l.Born
	}
	if len(s.past) == 0 {
		return Birth{Token: l.Token}
	}
	i := slices.IndexFunc(s.past, func(b Begin) bool { return b.Gen == l.Token.Gen })
	return Birth{s.past[max(i, 0)].Cluster, l.Token}
}

func (s *State) bring(c *Command) Event {
	l := s.leases[c.Key]
	switch {
	case l != nil, !s.knows(c.Cluster).Less(c.Expect):
		return s.conflict(l)
	case len(s.leases) >= maxLeases:
		return Event{Kind: Full}
	}
	return s.grant(c, Birth{c.Cluster, c.Expect})
}
