package core

import (
	"cmp"
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/crdt"
	"github.com/rhizome-router/rhizome/index"
	"github.com/rhizome-router/rhizome/kv"
)

// stream is what this replica holds of one engine's log.
type stream struct {
	id  crdt.StreamID
	cfg crdt.StreamConfig
	log *crdt.Stream

	number int // ours, in live frames; -1 until we published

	lastAt  clock.Instant // of the last change
	marked  bool          // since then
	stale   clock.Instant // since when another boot is current; 0: it is current
	left    clock.Instant // since when its target is not followed; 0: it is
	asked   string        // the peer that was asked for what is missing
	askedAt clock.Instant
	gapAt   clock.Instant // since when batches wait for others; 0: none do
	ahead   string        // the peer that sent the last of them
	further uint64        // how far a peer's vector said that peer is
	by      string        // that peer
	skip    *skipping
}

// ErrTooMany says that as many streams are held as may be.
var ErrTooMany = errors.New("too many streams")

// Open returns the stream of an engine's log, begun at batch 0 if it was not
// held. It is for the replica that reads the engine; others' streams open when
// they are heard of.
func (c *Core) Open(now clock.Instant, id crdt.StreamID, counted bool) (*crdt.Stream, error) {
	s := c.open(now, id, counted)
	if s == nil {
		return nil, ErrTooMany
	}
	return s.log, nil
}

func (c *Core) open(now clock.Instant, id crdt.StreamID, counted bool) *stream {
	if s := c.streams[id]; s != nil {
		return s
	}
	if len(c.streams) >= c.cfg.Limits.Streams {
		c.stats.Refused++
		return nil
	}
	cfg := crdt.StreamConfig{Counted: counted, MaxBlocks: c.cfg.StreamBlocks}
	s := &stream{id: id, cfg: cfg, log: c.log.Open(id, cfg), number: -1, lastAt: now}
	c.streams[id] = s
	at := source{id.Target, id.Source}
	if boot, ok := c.Boot(id.Target); ok && boot != id.Boot {
		s.stale = now
	} else if shown, ok := c.current[at]; !ok || boot == id.Boot && ok && shown != id {
		c.show(at, s)
	}
	return s
}

// show makes a stream the one that counts for its target and source.
func (c *Core) show(at source, s *stream) {
	c.current[at] = s.id
	s.stale = 0
	c.sink.Replaced(s.id, s.log)
}

// emit returns what tells the sink of a stream's changes; done sends them.
func (c *Core) emit(s *stream) (emit func(index.Change), done func()) {
	if c.current[source{s.id.Target, s.id.Source}] != s.id {
		return func(index.Change) {}, func() {}
	}
	c.changes = c.changes[:0]
	return func(ch index.Change) { c.changes = append(c.changes, ch) }, func() {
		if len(c.changes) > 0 {
			c.sink.Changed(s.id, c.changes)
		}
	}
}

// take applies an entry to a stream.
func (c *Core) take(now clock.Instant, s *stream, e crdt.Entry) crdt.Outcome {
	emit, done := c.emit(s)
	before := s.log.Next()
	var o crdt.Outcome
	if e.Skipped {
		o = s.log.Skip(e.From, e.To, emit)
	} else {
		o = s.log.Apply(e.From, e.Ops, emit)
	}
	done()
	if s.log.Next() != before {
		s.lastAt, s.marked = now, false
		c.trim()
	}
	switch {
	case s.log.Stats().PendingBatches == 0:
		s.gapAt = 0
	case s.gapAt == 0:
		s.gapAt = now
	}
	return o
}

// trim makes room where the logs are over their limit: the coldest tier of a
// stream goes.
func (c *Core) trim() {
	var gone []index.Change
	var of crdt.StreamID
	flush := func() {
		if len(gone) > 0 && c.current[source{of.Target, of.Source}] == of {
			c.sink.Changed(of, gone)
			c.sink.Trimmed(of, gone[0].Tier, len(gone))
		}
		gone = gone[:0]
	}
	c.log.Trim(func(id crdt.StreamID, ch index.Change) {
		if id != of || len(gone) > 0 && gone[0].Tier != ch.Tier {
			flush()
			of = id
		}
		gone = append(gone, ch)
	})
	flush()
}

// Publish takes a batch that this replica read from an engine, and sends it to
// all peers unless it was here already. A batch too large to be sent becomes a
// skip: see crdt.Oversized.
func (c *Core) Publish(now clock.Instant, id crdt.StreamID, counted bool, seq uint64, ops []kv.Op) (crdt.Outcome, error) {
	e := crdt.Entry{Range: crdt.Range{From: seq, To: seq}, Ops: ops}
	if crdt.Oversized(ops) {
		e.Skipped, e.Ops = true, nil
		c.stats.Refused++
	}
	return c.publish(now, id, counted, e)
}

func (c *Core) publish(now clock.Instant, id crdt.StreamID, counted bool, e crdt.Entry) (crdt.Outcome, error) {
	s := c.open(now, id, counted)
	if s == nil {
		return crdt.Overflow, ErrTooMany
	}
	o := c.take(now, s, e)
	if o == crdt.Duplicate || o == crdt.Overflow || len(c.names) == 0 {
		return o, nil
	}
	if s.number < 0 {
		s.number = c.numbered
		c.numbered++
		c.numbers = append(c.numbers, number{s.number, id, s.cfg.Counted})
	}
	if c.batch.add(now, s, e) >= c.cfg.BatchBytes {
		c.flush()
	}
	return o, nil
}

// Boot returns the current boot of a target, if anybody told one.
func (c *Core) Boot(t kv.Target) (kv.Boot, bool) {
	b, _, ok := c.BootNote(t)
	return b, ok
}

// BootNote returns it with what was told of it.
func (c *Core) BootNote(t kv.Target) (b kv.Boot, note string, ok bool) {
	r, ok := c.tables[Boots].Get(TargetKey(t))
	if !ok || len(r.Value) < 8 {
		return 0, "", false
	}
	return kv.Boot(binary.LittleEndian.Uint64(r.Value)), string(r.Value[8:]), true
}

// Booted says that a live connection to a target's engine is to another boot
// than the current one. Its stream counts from now on. The note is for the next
// reader, to tell whether the engine is still the same.
func (c *Core) Booted(now clock.Instant, t kv.Target, b kv.Boot, note string) {
	if old, was, ok := c.BootNote(t); ok && old == b && was == note {
		return
	}
	value := append(binary.LittleEndian.AppendUint64(nil, uint64(b)), note...)
	c.Set(now, Boots, TargetKey(t), uint64(b), value)
}

// rebooted follows a change of the table Boots, and reports whether nothing is
// known of the life that is current now.
func (c *Core) rebooted(now clock.Instant, key string) (unknown bool) {
	t, ok := TargetOf(key)
	if !ok {
		return false
	}
	unknown = true
	boot, _ := c.Boot(t)
	for src := range crdt.Source(numSources) {
		at := source{t, src}
		old, shown := c.current[at]
		if shown && old.Boot == boot {
			unknown = false
			continue
		}
		if shown {
			c.streams[old].stale = now
			delete(c.current, at)
		}
		if s := c.streams[crdt.StreamID{Target: t, Source: src, Boot: boot}]; s != nil {
			unknown = false
			c.show(at, s)
		} else if shown {
			c.sink.Replaced(crdt.StreamID{Target: t, Source: src, Boot: boot}, nil)
		}
	}
	return unknown
}

const numSources = 3

// sweepStreams marks streams that are at rest and closes those whose boot has
// not been current for a while.
func (c *Core) sweepStreams(now clock.Instant) {
	for _, s := range c.sorted() {
		if s.stale != 0 && now.Sub(s.stale) >= c.cfg.Keep {
			c.Close(s.id)
		}
	}
	c.sweepLeft(now)
}

// Close forgets a stream: that of a worker which is no more.
func (c *Core) Close(id crdt.StreamID) {
	s := c.streams[id]
	if s == nil {
		return
	}
	c.keep(s)
	delete(c.streams, id)
	c.log.Close(id)
	c.batch.forget(s)
	if s.number >= 0 {
		c.numbers = slices.DeleteFunc(c.numbers, func(n number) bool { return n.n == s.number })
	}
	at := source{id.Target, id.Source}
	if c.current[at] == id {
		delete(c.current, at)
		c.sink.Replaced(id, nil)
	}
}

// sorted returns the streams in the order of their ids.
func (c *Core) sorted() []*stream {
	all := make([]*stream, 0, len(c.streams))
	for id := range c.log.All() {
		all = append(all, c.streams[id])
	}
	return all
}

// quiet is how long a stream is at rest before its state is marked, so that
// replicas can compare it.
const quiet = 200 * time.Millisecond

// batch is what was published and is not sent yet: pieces of logs, the streams
// by their numbers.
type batch struct {
	since  clock.Instant
	pieces []piece
	at     map[int]int // piece by stream number
	bytes  int
}

type piece struct {
	number      int
	first, next uint64
	entries     []byte
}

func (b *batch) empty() bool { return len(b.pieces) == 0 }

// add appends an entry and returns the size of the batch.
func (b *batch) add(now clock.Instant, s *stream, e crdt.Entry) int {
	if b.at == nil {
		b.at = make(map[int]int)
	}
	if b.empty() {
		b.since = now
	}
	i, ok := b.at[s.number]
	if !ok || b.pieces[i].next != e.From {
		i = len(b.pieces)
		b.at[s.number] = i
		b.pieces = append(b.pieces, piece{number: s.number, first: e.From})
	}
	p := &b.pieces[i]
	before := len(p.entries)
	p.entries = crdt.AppendEntry(p.entries, e)
	p.next = e.To + 1
	b.bytes += len(p.entries) - before + 8
	return b.bytes
}

// forget takes a stream's pieces out.
func (b *batch) forget(s *stream) {
	for i := range b.pieces {
		if b.pieces[i].number == s.number {
			b.pieces[i].entries = nil
		}
	}
	delete(b.at, s.number)
}

// flush sends the batch to all peers.
func (c *Core) flush() {
	b := &c.batch
	if b.empty() {
		return
	}
	for _, name := range c.names {
		if p := c.peers[name]; p.up {
			c.introduce(p)
		}
	}
	c.send("", Live, encodeLive(b.pieces))
	*b = batch{at: b.at}
	clear(b.at)
}

// introduce tells a peer the numbers of our streams that it doesn't know.
func (c *Core) introduce(p *peer) {
	if p.told == c.numbered {
		return
	}
	i, _ := slices.BinarySearchFunc(c.numbers, p.told, func(n number, told int) int { return cmp.Compare(n.n, told) })
	for run := c.numbers[i:]; len(run) > 0; {
		n := 1
		for n < len(run) && n < maxNumbersAFrame && run[n].n == run[0].n+n {
			n++
		}
		c.send(p.name, Live, encodeNumbers(run[:n]))
		run = run[n:]
	}
	p.told = c.numbered
}

// number is what live frames call one of our streams. None is used twice, for a
// peer that missed the frame that says so would take one stream for another.
type number struct {
	n       int
	id      crdt.StreamID
	counted bool
}

// maxNumbersAFrame bounds a frame of numbers, at some 30 bytes each.
const maxNumbersAFrame = 1 << 15

// TargetKey is a target as the key of a value or row.
func TargetKey(t kv.Target) string {
	b := binary.BigEndian.AppendUint64(nil, uint64(t.Worker))
	return string(binary.BigEndian.AppendUint16(b, uint16(t.Rank)))
}

// TargetOf returns the target that TargetKey named.
func TargetOf(key string) (kv.Target, bool) {
	if len(key) != 10 {
		return kv.Target{}, false
	}
	rank := binary.BigEndian.Uint16([]byte(key[8:]))
	t := kv.Target{Worker: kv.WorkerID(binary.BigEndian.Uint64([]byte(key))), Rank: int16(rank)}
	return t, rank <= math.MaxInt16 || t.Rank == kv.NoRank
}
