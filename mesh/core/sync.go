package core

import (
	"cmp"
	"math"
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/crdt"
	"github.com/rhizome-router/rhizome/crdt/wire"
)

// How what is missing is fetched: whoever lacks something asks one peer, and
// asks another only if that one falls silent, so that it comes once.
const (
	// patience is how long a peer that was asked may say nothing.
	patience = 2 * time.Second
	// gapPatience is how long batches may wait for one that is on its way.
	gapPatience = 50 * time.Millisecond
	// pieceBytes is how much one frame brings of what was asked for.
	pieceBytes = 256 << 10
	// snapshotEntryBytes is what an entry of a snapshot takes, about.
	snapshotEntryBytes = 16
)

// task is a thing that a peer asked for: a stream's log from next on, a page, or
// (if table is not 0) the table of number table - 1.
type task struct {
	stream   crdt.StreamID
	next     uint64
	page     *pageID
	at       crdt.Position
	table    Table
	snapshot []byte // what is left of one that is being sent
	part     int
	parts    int
}

// anyLog is the next that asks for a snapshot, whatever the log could do.
const anyLog = math.MaxUint64 - 1

func (c *Core) addTask(p *peer, r *wire.Reader, t task) {
	if r.Err() == nil {
		c.queueTask(p, t)
	}
}

func (c *Core) queueTask(p *peer, t task) {
	if len(p.tasks) >= c.cfg.Limits.Wants {
		c.stats.Refused++
		return
	}
	p.tasks = append(p.tasks, t)
}

// want asks for the log from where it ends here.
func (c *Core) want(now clock.Instant, p *peer, s *stream) { c.ask(now, p, s, s.log.Next()) }

// chase asks the peer that was said to be furthest, if the one that was asked
// did not bring us there.
func (c *Core) chase(now clock.Instant, s *stream) {
	if p := c.peers[s.by]; s.further > s.log.Next() && p != nil {
		c.want(now, p, s)
	}
}

// wantSnapshot asks for the base, with its log's position.
func (c *Core) wantSnapshot(now clock.Instant, p *peer, s *stream) { c.ask(now, p, s, anyLog) }

func (c *Core) ask(now clock.Instant, p *peer, s *stream, next uint64) {
	if s.asked != "" && now.Sub(s.askedAt) < patience || !p.up {
		return
	}
	s.asked, s.askedAt = p.name, now
	c.stats.Asked++
	w := begin(frameWant, idFields+1)
	putID(w, s.id)
	w.Uint(next)
	c.send(p.name, Sync, w.Bytes())
}

func (c *Core) wantPage(now clock.Instant, p *peer, id pageID, copied *page) {
	if copied.asked != "" && now.Sub(copied.askedAt) < patience || !p.up {
		return
	}
	copied.asked, copied.askedAt = p.name, now
	c.stats.Asked++
	w := begin(frameWantPage, 5)
	w.Uint(uint64(id.kind))
	w.String(id.writer.Name)
	w.Uint(id.writer.Inc)
	w.Uint(copied.copy.At().Version)
	w.Uint(copied.copy.At().Deleted)
	c.send(p.name, Sync, w.Bytes())
}

func wantRows(t Table) []byte {
	w := begin(frameWantRows, 1)
	w.Uint(uint64(t))
	return w.Bytes()
}

// forgetAsked lets others be asked for what a peer was asked for.
func (c *Core) forgetAsked(name string) {
	for _, s := range c.streams { // order-free: each by itself
		if s.asked == name {
			s.asked = ""
		}
	}
	for _, p := range c.pages { // order-free: each by itself
		if p.asked == name {
			p.asked = ""
		}
	}
}

// lookForGaps asks for the batches that others wait for, from whoever sent those,
// else the reader of the engine, and otherwise anyone; and exchanges vectors with
// peers from which something was lost.
func (c *Core) lookForGaps(now clock.Instant) {
	for _, name := range c.names {
		if p := c.peers[name]; p.up && p.behind && now.Sub(p.vectorAt) >= 20*c.cfg.Batch {
			c.introduce(p)
			c.sendVector(now, p, true)
		}
	}
	if now.Sub(c.chased) < gapPatience {
		return
	}
	c.chased = now
	for _, s := range c.sorted() {
		c.chase(now, s)
		if s.gapAt == 0 || now.Sub(s.gapAt) < gapPatience || s.asked != "" && now.Sub(s.askedAt) < patience {
			continue
		}
		p := c.peers[s.ahead]
		if p == nil || !p.up || s.asked == s.ahead {
			first, _ := c.Reader(s.id.Target.Worker)
			p = c.peers[first]
		}
		if p == nil || !p.up || s.asked == p.name {
			p = c.anyPeer()
		}
		if p != nil {
			s.asked = ""
			c.want(now, p, s)
		}
	}
}

// serve sends a peer what it asked for, at the rate that each peer gets.
func (c *Core) serve(now clock.Instant, p *peer) {
	rate := float64(c.cfg.SyncBytesPerSecond)
	p.credit = min(p.credit+rate*now.Sub(p.creditAt).Seconds(), max(rate/20, 2*pieceBytes))
	p.creditAt = now
	for p.up && len(p.tasks) > 0 && p.credit > 0 {
		t := &p.tasks[0]
		var frame []byte
		var done bool
		switch {
		case t.table > 0:
			frame, done = encodeRows(t.table-1, c.toldRows(t.table-1)), true
		case t.page != nil:
			frame, done = c.pagePart(now, t)
		case t.parts > 0:
			frame, done = t.snapshotPart()
		default:
			frame, done = c.logPart(t)
		}
		if frame != nil {
			p.credit -= float64(len(frame))
			bytes := c.send(p.name, Sync, frame)
			if t.page != nil {
				c.stats.BytesByKind[t.page.kind] += bytes
			}
		}
		if done {
			p.tasks[0] = task{}
			p.tasks = p.tasks[1:]
		}
	}
	if len(p.tasks) == 0 {
		p.tasks = nil
	}
}

func (c *Core) pagePart(now clock.Instant, t *task) (frame []byte, done bool) {
	of, writer := (*crdt.Page)(nil), t.page.writer
	if writer == c.cfg.Self {
		of = c.own[t.page.kind].page
	} else if p := c.pages[*t.page]; p != nil {
		of = p.copy
	} else {
		return nil, true
	}
	d := of.Since(int64(now), t.at, pieceBytes)
	t.at = d.To
	return encodePage(t.page.kind, writer, &d), d.To == of.At()
}

// logPart sends the next piece of a log, or begins a snapshot where the log is
// not kept that far back or would be longer.
func (c *Core) logPart(t *task) (frame []byte, done bool) {
	s := c.streams[t.stream]
	if s == nil || s.log.Truncated() != 0 || t.next != anyLog && t.next >= s.log.Next() {
		return nil, true
	}
	entries, ok := s.log.From(t.next)
	if t.next == anyLog || !ok || s.log.PieceBytes(t.next) > 4096+snapshotEntryBytes*s.log.Stats().Blocks {
		snapshot, err := s.log.Snapshot()
		if err != nil || len(snapshot) == 0 {
			return nil, true
		}
		c.stats.SnapshotsSent++
		t.snapshot, t.parts = snapshot, (len(snapshot)+pieceBytes-1)/pieceBytes
		return nil, false
	}
	first := t.next
	var b []byte
	for e := range entries {
		if len(b) >= pieceBytes {
			break
		}
		if b == nil && e.Skipped {
			first = e.From
		}
		b = crdt.AppendEntry(b, e)
		t.next = e.To + 1
	}
	w := begin(framePiece, idFields+3)
	putID(w, t.stream)
	w.Bool(s.cfg.Counted)
	w.Uint(first)
	w.Data(b)
	return w.Bytes(), t.next >= s.log.Next()
}

func (t *task) snapshotPart() (frame []byte, done bool) {
	n := min(len(t.snapshot), pieceBytes)
	w := begin(frameSnapshot, idFields+4)
	putID(w, t.stream)
	w.Uint(uint64(t.part))
	w.Uint(uint64(t.parts))
	w.Uint(uint64(len(t.snapshot)))
	w.Data(t.snapshot[:n])
	t.snapshot = t.snapshot[n:]
	t.part++
	return w.Bytes(), t.part == t.parts
}

func (c *Core) readPiece(now clock.Instant, p *peer, r *wire.Reader) {
	id, counted := readID(r), r.Bool()
	first, entries := r.Uint(math.MaxUint64-1), r.Data(MaxFrameBytes)
	if r.Err() == nil {
		c.takeEntries(now, p, numbered{id, counted}, first, entries, r)
	}
}

// takeEntries applies a piece of a log.
func (c *Core) takeEntries(now clock.Instant, p *peer, n numbered, first uint64, entries []byte, r *wire.Reader) {
	if c.streams[n.id] == nil && c.ignores(now, n.id.Target) {
		return
	}
	s := c.open(now, n.id, n.counted)
	if s == nil {
		return
	}
	if s.asked == p.name {
		s.askedAt = now
	}
	for len(entries) > 0 {
		e, rest, err := crdt.ReadEntry(entries, first)
		if err != nil {
			r.Fail(err)
			return
		}
		switch c.take(now, s, e) {
		case crdt.Duplicate:
			c.stats.Duplicates++
		case crdt.Overflow: // of what waits: it will be asked for again
			c.stats.Refused++
		default:
			c.stats.Ops += opsOf(&e)
			c.heldAgain(s, e.Range)
		}
		first, entries = e.To+1, rest
	}
	if s.ahead = p.name; s.gapAt == 0 {
		s.asked = ""
		c.chase(now, s)
	}
}

func opsOf(e *crdt.Entry) (n uint64) {
	for i := range e.Ops {
		n += uint64(len(e.Ops[i].Blocks) + len(e.Ops[i].Hashes))
	}
	return n
}

// assembly is a snapshot of which parts have come.
type assembly struct {
	bytes []byte
	next  int
}

func (c *Core) readSnapshot(now clock.Instant, p *peer, r *wire.Reader) {
	id := readID(r)
	part, parts := int(r.Uint(math.MaxInt32)), int(r.Uint(math.MaxInt32))
	left, b := r.Uint(math.MaxInt64), r.Data(MaxFrameBytes)
	s := c.streams[id]
	if r.Err() != nil || s == nil || s.asked != p.name {
		return
	}
	s.askedAt = now
	a := p.parts[id]
	if have := 0; part == 0 || a != nil {
		if part > 0 {
			have = len(a.bytes)
		}
		if most := uint64(c.cfg.Limits.SnapshotBytes); left > most || uint64(have+len(b)) > most {
			c.stats.Refused++
			delete(p.parts, id)
			return
		}
	}
	if part == 0 {
		a = &assembly{bytes: make([]byte, 0, left)}
		p.parts[id] = a
	}
	if a == nil || part != a.next {
		delete(p.parts, id)
		return // a part was lost: patience runs out, and it is asked for again
	}
	a.bytes = append(a.bytes, b...)
	if a.next++; a.next < parts {
		return
	}
	delete(p.parts, id)
	s.asked = ""
	c.restore(now, s, a.bytes)
}

// restore takes a snapshot that was asked for, unless the stream got past it
// meanwhile without losing more.
func (c *Core) restore(now clock.Instant, s *stream, snapshot []byte) {
	if err := s.log.Restore(snapshot); err != nil {
		c.stats.Refused++
		return
	}
	c.stats.SnapshotsUsed++
	s.lastAt, s.marked, s.gapAt = now, false, 0
	if c.current[source{s.id.Target, s.id.Source}] == s.id {
		c.sink.Replaced(s.id, s.log)
	}
}

func comparePages(a, b pageID) int {
	return cmp.Or(cmp.Compare(a.writer.Name, b.writer.Name), cmp.Compare(a.writer.Inc, b.writer.Inc), cmp.Compare(a.kind, b.kind))
}
