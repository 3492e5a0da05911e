package core

import (
	"fmt"
	"math"
	"slices"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/crdt"
	"github.com/rhizome-router/rhizome/crdt/wire"
)

// A vector is how far a replica is with everything, and what of it two replicas
// can compare:
//
//	streams   id, counted, next, skips (from, to, …), marks (W, skips' hash, digest, …), …
//	pages     kind, writer, inc, version, deleted, …
//	tables    digest of each
//
// A truncated stream is not in it: it is not to be had here. Nor is one that is
// not followed here: see following.
const (
	vectorStreamFields = idFields + 4
	vectorPageFields   = 5
	// vectorMarks is how many of a stream's last marks a vector tells.
	vectorMarks = 4
)

func (c *Core) sendVector(now clock.Instant, p *peer, reply bool) {
	p.vectorAt, p.behind = now, false
	w := begin(frameVector, 4)
	w.Bool(reply)
	streams := c.sorted()
	streams = slices.DeleteFunc(streams, func(s *stream) bool { return s.log.Truncated() != 0 || !c.follows(s.id.Target) })
	w.Array(vectorStreamFields * len(streams))
	for _, s := range streams {
		if now.Sub(s.lastAt) >= quiet && !s.marked {
			s.log.Mark()
			s.marked = true
		}
		putID(w, s.id)
		w.Bool(s.cfg.Counted)
		w.Uint(s.log.Next())
		w.Array(2 * len(s.log.Skips()))
		for _, r := range s.log.Skips() {
			w.Uint(r.From)
			w.Uint(r.To)
		}
		marks := s.log.Marks()
		marks = marks[max(0, len(marks)-vectorMarks):]
		w.Array(3 * len(marks))
		for _, m := range marks {
			w.Uint(m.W)
			w.Uint(m.Skips)
			w.Uint(m.Digest)
		}
	}
	ids := c.pageIDs()
	w.Array(vectorPageFields * (NumKinds + len(ids)))
	put := func(k Kind, writer Replica, at crdt.Position) {
		w.Uint(uint64(k))
		w.String(writer.Name)
		w.Uint(writer.Inc)
		w.Uint(at.Version)
		w.Uint(at.Deleted)
	}
	for k := range Kind(NumKinds) {
		put(k, c.cfg.Self, c.own[k].page.At())
	}
	for _, id := range ids {
		put(id.kind, id.writer, c.pages[id].copy.At())
	}
	w.Array(NumTables)
	for _, t := range c.tables {
		w.Uint(t.Digest())
	}
	c.send(p.name, Sync, w.Bytes())
}

func (c *Core) pageIDs() []pageID {
	ids := make([]pageID, 0, len(c.pages))
	for id := range c.pages { // order-free: sorted below
		ids = append(ids, id)
	}
	slices.SortFunc(ids, comparePages)
	return ids
}

// readVector asks the peer for what it has and this replica doesn't.
func (c *Core) readVector(now clock.Instant, p *peer, r *wire.Reader) {
	reply := r.Bool()
	for range r.Array(vectorStreamFields) {
		v := theirs{id: readID(r), counted: r.Bool(), next: r.Uint(math.MaxUint64 - 1)}
		for range r.Array(2) {
			v.skips = append(v.skips, crdt.Range{From: r.Uint(math.MaxUint64 - 1), To: r.Uint(math.MaxUint64 - 1)})
		}
		for range r.Array(3) {
			v.marks = append(v.marks, crdt.Mark{W: r.Uint(math.MaxUint64), Skips: r.Uint(math.MaxUint64), Digest: r.Uint(math.MaxUint64)})
		}
		if r.Err() != nil {
			return
		}
		c.compareStream(now, p, &v)
	}
	for range r.Array(vectorPageFields) {
		k, writer := readPageID(r)
		at := readPosition(r)
		if r.Err() != nil {
			return
		}
		if k < NumKinds {
			c.comparePage(now, p, pageID{k, writer}, at)
		}
	}
	tables := r.Array(1)
	if tables < NumTables {
		r.Fail(fmt.Errorf("%d tables, want %d", tables, NumTables))
	}
	for t := range c.tables {
		if digest := r.Uint(math.MaxUint64); r.Err() == nil && digest != c.tables[t].Digest() {
			c.send(p.name, Sync, wantRows(Table(t)))
		}
	}
	r.Skip(tables - NumTables)
	if r.Err() != nil {
		return
	}
	if p.up {
		c.met = true
	} else {
		p.unheard = true
	}
	if reply {
		p.told = 0 // it may have missed them
		c.introduce(p)
		c.sendVector(now, p, false)
	}
}

// Warm reports whether this replica has caught up with a peer: it was told a
// vector, and has what it asked for since.
func (c *Core) Warm() bool {
	if c.warm || !c.met {
		return c.warm
	}
	for _, s := range c.streams { // order-free: any
		if s.asked != "" || s.further > s.log.Next() {
			return false
		}
	}
	for _, p := range c.pages { // order-free: any
		if p.asked != "" {
			return false
		}
	}
	c.warm = true
	return true
}

// theirs is what a peer's vector says of a stream.
type theirs struct {
	id      crdt.StreamID
	counted bool
	next    uint64
	skips   []crdt.Range
	marks   []crdt.Mark
}

// compareStream decides whether to ask for a peer's log or base. Of two logs
// that lost different batches the one that lost more gives way, as soon as the
// other is as far; where neither lost a part of what the other lost, the one
// that is further, and then the one that lost less.
func (c *Core) compareStream(now clock.Instant, p *peer, v *theirs) {
	boot, told := c.Boot(v.id.Target)
	s := c.streams[v.id]
	if s == nil {
		if v.next == 0 || told && boot != v.id.Boot || c.ignores(now, v.id.Target) {
			return
		}
		if s = c.open(now, v.id, v.counted); s == nil {
			return
		}
	}
	next, skips := s.log.Next(), s.log.Skips()
	both := min(next, v.next)
	mine, other := upTo(skips, both), upTo(v.skips, both)
	switch {
	case slices.Equal(mine, other):
		if m, o, ok := common(s.log.Marks(), v.marks); ok && m.Skips == o.Skips && m.Digest != o.Digest {
			c.stats.Corrupt++
			if first, _ := c.Reader(v.id.Target.Worker); first == p.name || first != c.cfg.Self.Name && p.name < c.cfg.Self.Name {
				c.wantSnapshot(now, p, s)
			}
			return
		}
		if v.next > next {
			s.further, s.by = max(s.further, v.next), p.name
			c.want(now, p, s)
		}
	case covers(mine, other): // we lost more
		c.stats.Incomplete++
		if v.next >= next {
			c.wantSnapshot(now, p, s)
		}
	case covers(other, mine): // they will take ours, and go on meanwhile
		c.stats.Incomplete++
		if v.next > next {
			c.want(now, p, s)
		}
	default:
		c.stats.Incomplete++
		if v.next > next || v.next == next && count(other) < count(mine) ||
			v.next == next && count(other) == count(mine) && p.name < c.cfg.Self.Name {
			c.stats.LostOps += count(other) - overlap(other, mine)
			c.wantSnapshot(now, p, s)
		}
	}
}

func (c *Core) comparePage(now clock.Instant, p *peer, id pageID, at crdt.Position) {
	if id.writer.Name == c.cfg.Self.Name || at == (crdt.Position{}) || c.void(id.writer) {
		return
	}
	w := c.peers[id.writer.Name]
	if w == nil || !w.alive {
		return
	}
	mine := c.pages[id]
	if mine == nil {
		mine = &page{copy: crdt.NewPage(c.cfg.Limits.PageValues), heard: now}
		c.pages[id] = mine
	}
	if have := mine.copy.At(); at.Deleted > have.Deleted || at.Deleted == have.Deleted && at.Version > have.Version {
		c.wantPage(now, p, id, mine)
	}
}

// upTo returns the parts of ranges before a number.
func upTo(ranges []crdt.Range, next uint64) []crdt.Range {
	var out []crdt.Range
	for _, r := range ranges {
		if r.From < next {
			out = append(out, crdt.Range{From: r.From, To: min(r.To, next-1)})
		}
	}
	return out
}

func count(ranges []crdt.Range) (n uint64) {
	for _, r := range ranges {
		n += r.To - r.From + 1
	}
	return n
}

// overlap counts the numbers that are in both; each is sorted and apart.
func overlap(a, b []crdt.Range) (n uint64) {
	for i, j := 0, 0; i < len(a) && j < len(b); {
		if from, to := max(a[i].From, b[j].From), min(a[i].To, b[j].To); from <= to {
			n += to - from + 1
		}
		if a[i].To < b[j].To {
			i++
		} else {
			j++
		}
	}
	return n
}

// covers reports whether every number of b is in a.
func covers(a, b []crdt.Range) bool { return overlap(a, b) == count(b) }

// common returns the last mark that two lists have both, of the same position.
func common(a, b []crdt.Mark) (x, y crdt.Mark, ok bool) {
	for i, j := len(a)-1, len(b)-1; i >= 0 && j >= 0; {
		switch {
		case a[i].W > b[j].W:
			i--
		case a[i].W < b[j].W:
			j--
		default:
			return a[i], b[j], true
		}
	}
	return x, y, false
}
