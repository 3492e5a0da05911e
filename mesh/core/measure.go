package core

import (
	"github.com/rhizome-router/rhizome/crdt"
	"github.com/rhizome-router/rhizome/index"
	"github.com/rhizome-router/rhizome/kv"
)

// Churn makes the batches of engines whose caches are full, for those who
// measure: each batch is a run of blocks that come and, once the cache is full,
// as many that go. An op is a block that comes or goes.
type Churn struct {
	blocks, held int
	native       bool
	engines      []churning
}

type churning struct {
	next   uint64
	key    kv.Key
	hashes []kv.EngineHash // in the cache, oldest first
}

// NewChurn returns engines with empty caches of held blocks, which store that
// many blocks a batch. The hashes of native ones are the router's own keys.
func NewChurn(engines, blocks, held int, native bool) *Churn {
	c := &Churn{blocks: blocks, held: held, native: native, engines: make([]churning, engines)}
	for e := range c.engines {
		c.engines[e].key = kv.Root("m", "", "")
	}
	return c
}

// Engines returns how many there are.
func (c *Churn) Engines() int { return len(c.engines) }

// FillBatches is how many batches of an engine fill its cache.
func (c *Churn) FillBatches() int { return (c.held + c.blocks - 1) / c.blocks }

// ID names the stream of an engine.
func (c *Churn) ID(engine int) crdt.StreamID {
	return crdt.StreamID{Target: kv.Target{Worker: kv.WorkerID(engine + 1), Rank: kv.NoRank}, Boot: 1}
}

// EngineOf is the inverse of ID.
func (c *Churn) EngineOf(id crdt.StreamID) int { return int(id.Target.Worker) - 1 }

// Next returns an engine's next batch, its number and how many ops are in it.
func (c *Churn) Next(engine int) (seq uint64, batch []kv.Op, ops int) {
	e := &c.engines[engine]
	seq = e.next
	e.next++
	in := kv.Op{Kind: kv.Insert, BlockTokens: 16, Root: kv.Root("m", "", "")}
	if n := len(e.hashes); n > 0 {
		in.HasParent, in.Parent = true, e.hashes[n-1]
	}
	for k := range c.blocks {
		content := kv.Content((uint64(engine)<<40 + seq*uint64(c.blocks) + uint64(k)) * 0x9e3779b97f4a7c15)
		e.key = kv.Next(e.key, content)
		h := kv.EngineHash(e.key)
		if !c.native {
			h = ^h
		}
		e.hashes = append(e.hashes, h)
		in.Blocks = append(in.Blocks, kv.Block{Hash: h, Content: content})
	}
	batch, ops = []kv.Op{in}, c.blocks
	if gone := len(e.hashes) - c.held; gone > 0 {
		batch = append(batch, kv.Op{Kind: kv.Remove, Hashes: append([]kv.EngineHash{}, e.hashes[:gone]...)})
		e.hashes = e.hashes[gone:]
		ops += gone
	}
	return seq, batch, ops
}

// Shown is a sink that keeps an index as a router does, for those who measure.
// Without an index it does nothing.
type Shown struct {
	Index *index.Index
	slots map[source]index.Slot
}

// Changed is part of Sink.
func (s *Shown) Changed(id crdt.StreamID, changes []index.Change) {
	if s.Index != nil {
		s.Index.Apply(s.slots[source{id.Target, id.Source}], changes)
	}
}

// Replaced is part of Sink.
func (s *Shown) Replaced(id crdt.StreamID, st *crdt.Stream) {
	if s.Index == nil {
		return
	}
	if s.slots == nil {
		s.slots = make(map[source]index.Slot)
	}
	at := source{id.Target, id.Source}
	if old, ok := s.slots[at]; ok {
		s.Index.Drop(old)
	}
	slot := s.Index.Open(index.HBMThenOneTier)
	s.slots[at] = slot
	if st != nil {
		st.Each(func(c index.Change) { s.Index.Apply(slot, []index.Change{c}) })
	}
}

// Trimmed is part of Sink.
func (s *Shown) Trimmed(crdt.StreamID, kv.Tier, int) {}

// Page is part of Sink.
func (s *Shown) Page(Kind, Replica, string, *crdt.PageItem) {}

// Row is part of Sink.
func (s *Shown) Row(Table, crdt.Register) {}

// Readers is part of Sink.
func (s *Shown) Readers() {}

// Told is part of Sink.
func (s *Shown) Told(string, Topic, []byte) {}
