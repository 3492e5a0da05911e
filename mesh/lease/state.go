package lease

import (
	"encoding/binary"

	"github.com/zeebo/xxh3"
)

const (
	// maxLeases bounds the state; the leader keeps it well below, see
	// [Config.MaxLeases].
	maxLeases = 1 << 18
	// maxOrigins bounds how many incarnations are remembered; the one that was
	// heard longest ago goes first.
	maxOrigins = 1 << 12
)

// State is what was agreed on so far. Equal logs lead to equal states.
type State struct {
	gen     uint64
	index   uint64
	leases  map[Key]*Lease
	origins map[Origin]*origin
	digest  uint64 // sum of the leases' hashes
	past    []Begin
	ended   []End
}

// origin is what is remembered of an incarnation.
type origin struct {
	last   uint64 // number of its last proposal
	heard  uint64 // where in the log
	fenced bool
	low    uint64 // its promises below are settled
}

// NewState returns the state before the log's first entry.
func NewState() *State {
	return &State{leases: make(map[Key]*Lease), origins: make(map[Origin]*origin)}
}

// EventKind is what a command came to.
type EventKind uint8

// The kinds of events.
const (
	Granted EventKind = iota + 1 // Lease is new, or has another holder
	Renewed
	Revoked
	Conflict // Lease is what stood against the command; zero if there is none
	Full
	Fenced
	Checkpointed
	Begun // a generation
	Noted // Ended
	Ignored
	numEvents
)

// Event is what came of one command.
type Event struct {
	Kind    EventKind
	Command *Command
	From    Origin // who proposed it
	Lease   Lease
}

// Gen returns the generation.
func (s *State) Gen() uint64 { return s.gen }

// Index returns where in the log the state is.
func (s *State) Index() uint64 { return s.index }

// Len returns how many leases there are.
func (s *State) Len() int { return len(s.leases) }

// Lease returns a workflow's lease.
func (s *State) Lease(k Key) (Lease, bool) {
	if l := s.leases[k]; l != nil {
		return *l, true
	}
	return Lease{}, false
}

// Digest is equal for equal leases and generations.
func (s *State) Digest() uint64 { return s.digest + s.gen }

// Fenced reports whether an incarnation was killed.
func (s *State) Fenced(o Origin) bool {
	x := s.origins[o]
	return x != nil && x.fenced
}

// Low returns up to where an incarnation's promises are settled.
func (s *State) Low(o Origin) uint64 {
	if x := s.origins[o]; x != nil {
		return x.low
	}
	return 0
}

// Apply takes the log's entry at index, which must be greater than all before,
// and returns what came of each command, in order. Bytes that are no proposal
// change nothing but the index: all replicas see them alike.
func (s *State) Apply(index uint64, entry []byte) ([]Event, error) {
	p, err := ReadProposal(entry)
	if err != nil {
		s.index = index
		return nil, err
	}
	return s.Take(index, &p), nil
}

// Take is Apply of a proposal that was read already. The events point into it.
func (s *State) Take(index uint64, p *Proposal) []Event {
	s.index = index
	if p.No != 0 {
		o := s.origin(p.From)
		if o.fenced || p.No <= o.last {
			return []Event{{Kind: Ignored, From: p.From}}
		}
		o.last = p.No
	}
	events := make([]Event, len(p.Commands))
	for i := range p.Commands {
		c := &p.Commands[i]
		events[i] = s.command(c)
		events[i].Command, events[i].From = c, p.From
	}
	return events
}

func (s *State) command(c *Command) Event {
	switch c.Kind {
	case Acquire:
		return s.acquire(c)
	case Renew, Revoke:
		l := s.leases[c.Key]
		if l == nil || l.Token != c.Expect || c.Kind == Revoke && c.From != 0 && l.Used > c.From {
			return s.conflict(l)
		}
		if c.Kind == Renew {
			l.Used = s.index
			return Event{Kind: Renewed, Lease: *l}
		}
		s.drop(l)
		return Event{Kind: Revoked, Lease: *l}
	case Fence:
		o := s.origin(c.Origin)
		o.fenced = true
		return Event{Kind: Fenced}
	case Checkpoint:
		for _, l := range c.Lows {
			o := s.origin(l.Origin)
			o.low = max(o.low, l.Ticket)
		}
		return Event{Kind: Checkpointed}
	case Generation:
		if c.Gen <= s.gen {
			return Event{Kind: Conflict}
		}
		s.begin(c)
		return Event{Kind: Begun}
	case Bring:
		return s.bring(c)
	case Ended:
		s.note(End{c.Cluster, c.Expect})
		return Event{Kind: Noted}
	}
	return Event{Kind: Ignored}
}

func (s *State) acquire(c *Command) Event {
	l := s.leases[c.Key]
	switch {
	case l == nil && c.Expect != (Token{}), l != nil && c.Expect != l.Token:
		return s.conflict(l)
	case l == nil && len(s.leases) >= maxLeases:
		return Event{Kind: Full}
	case l != nil:
		s.drop(l)
	}
	// Of two grants in one entry the later one is of another workflow, or expects
	// the token of the first, which nobody could know: tokens are unique.
	return s.grant(c, Birth{})
}

func (s *State) grant(c *Command, born Birth) Event {
	l := &Lease{Key: c.Key, Holder: c.Holder, Owner: c.Owner, Token: Token{s.gen, s.index}, Used: s.index, Born: born}
	s.put(l)
	return Event{Kind: Granted, Lease: *l}
}

func (s *State) conflict(l *Lease) Event {
	if l == nil {
		return Event{Kind: Conflict}
	}
	return Event{Kind: Conflict, Lease: *l}
}

func (s *State) put(l *Lease) {
	s.leases[l.Key] = l
	s.digest += l.hash()
}

func (s *State) drop(l *Lease) {
	delete(s.leases, l.Key)
	s.digest -= l.hash()
}

// hash covers what two replicas must agree on.
func (l *Lease) hash() uint64 {
	var b [16 + 8 + 2 + 8 + 8 + 16]byte
	copy(b[:], l.Key[:])
	for i, v := range [...]uint64{uint64(l.Holder.Target.Worker), uint64(l.Holder.Boot), l.Owner, l.Token.Gen, l.Token.Index} {
		binary.BigEndian.PutUint64(b[16+8*i:], v)
	}
	binary.BigEndian.PutUint16(b[56:], uint16(l.Holder.Target.Rank))
	return xxh3.Hash(b[:])
}

// origin returns what is remembered of an incarnation, made if need be.
func (s *State) origin(id Origin) *origin {
	o := s.origins[id]
	if o == nil {
		if len(s.origins) >= maxOrigins {
			s.forgetOrigin()
		}
		o = new(origin)
		s.origins[id] = o
	}
	o.heard = s.index
	return o
}

// forgetOrigin forgets the incarnation that was heard longest ago.
func (s *State) forgetOrigin() {
	var oldest Origin
	for id, o := range s.origins { // order-free: the minimum of an order
		if x := s.origins[oldest]; x == nil || o.heard < x.heard || o.heard == x.heard && less(id, oldest) {
			oldest = id
		}
	}
	delete(s.origins, oldest)
}

func less(a, b Origin) bool { return a.Name < b.Name || a.Name == b.Name && a.Inc < b.Inc }
