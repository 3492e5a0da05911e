package core

import (
	"testing"

	"github.com/rhizome-router/rhizome/crdt"
	"github.com/rhizome-router/rhizome/index"
	"github.com/rhizome-router/rhizome/kv"
)

// shownIn is a sink that keeps an index, as a router does.
type shownIn struct {
	index *index.Index
	slots map[source]index.Slot
}

func (s *shownIn) Changed(id crdt.StreamID, changes []index.Change) {
	s.index.Apply(s.slots[source{id.Target, id.Source}], changes)
}
func (s *shownIn) Replaced(id crdt.StreamID, _ *crdt.Stream) {
	s.slots[source{id.Target, id.Source}] = s.index.Open(index.HBMThenOneTier)
}
func (s *shownIn) Page(Kind, Replica, string, *crdt.PageItem) {}
func (s *shownIn) Row(Table, crdt.Register)                   {}
func (s *shownIn) Readers()                                   {}
func (s *shownIn) Trimmed(crdt.StreamID, kv.Tier, int)        {}

// BenchmarkReceive is what a replica does with the batches that a peer read:
// 16 engines whose caches are full, so that as many blocks go as come, 16 a
// batch. An op is a block that comes or goes, decoded, applied and shown in the
// index.
func BenchmarkReceive(b *testing.B) {
	for _, native := range []bool{true, false} {
		name := map[bool]string{true: "native", false: "engine hashes"}[native]
		b.Run(name, func(b *testing.B) {
			const engines, blocks, held = 16, 16, 5000
			from := New(Config{Self: Replica{Name: "a"}}, new(discard))
			to := New(Config{Self: Replica{Name: "b"}}, &shownIn{index.New(index.Config{}), map[source]index.Slot{}})
			from.Up(1, "b")
			to.Up(1, "a")
			var hashes [engines][]kv.EngineHash
			var keys [engines]kv.Key
			next, bytes, ops := uint64(0), 0, 0
			var frames [][]byte
			round := func(n int) {
				for i := range n {
					e := i % engines
					if e == 0 {
						next++
					}
					op := kv.Op{Kind: kv.Insert, BlockTokens: 16, Root: kv.Root("m", "", "")}
					key := op.Root
					if len(hashes[e]) > 0 {
						op.HasParent, op.Parent, key = true, hashes[e][len(hashes[e])-1], keys[e]
					}
					for k := range blocks {
						content := kv.Content(next*1000 + uint64(e*100+k))
						key = kv.Next(key, content)
						h := kv.EngineHash(key)
						if !native {
							h = ^h
						}
						hashes[e] = append(hashes[e], h)
						op.Blocks = append(op.Blocks, kv.Block{Hash: h, Content: content})
					}
					keys[e] = key
					batch := []kv.Op{op}
					ops += blocks
					if len(hashes[e]) > held {
						batch = append(batch, kv.Op{Kind: kv.Remove, Hashes: append([]kv.EngineHash{}, hashes[e][:blocks]...)})
						hashes[e] = hashes[e][blocks:]
						ops += blocks
					}
					id := crdt.StreamID{Target: kv.Target{Worker: kv.WorkerID(e + 1), Rank: kv.NoRank}, Boot: 1}
					if _, err := from.Publish(1, id, true, next-1, batch); err != nil {
						b.Fatal(err)
					}
				}
				from.flush()
				for _, m := range from.Out() {
					if m.Class == Live {
						frames = append(frames, m.Frame)
						bytes += len(m.Frame)
					}
				}
			}
			receive := func() {
				for _, f := range frames {
					if err := to.Receive(1, "a", f); err != nil {
						b.Fatal(err)
					}
				}
				frames = frames[:0]
			}
			round(engines * (held/blocks + 10))
			receive()
			bytes, ops = 0, 0
			for b.Loop() {
				b.StopTimer()
				round(engines * 10)
				b.StartTimer()
				receive()
			}
			b.ReportMetric(float64(ops)/b.Elapsed().Seconds(), "ops/s")
			b.ReportMetric(float64(bytes)/float64(ops), "bytes/op")
			if to.stats.Duplicates > 0 || to.stats.Refused > 0 {
				b.Fatalf("%+v", to.stats)
			}
		})
	}
}

// discard is a sink of nothing.
type discard struct{}

func (discard) Changed(crdt.StreamID, []index.Change)      {}
func (discard) Replaced(crdt.StreamID, *crdt.Stream)       {}
func (discard) Page(Kind, Replica, string, *crdt.PageItem) {}
func (discard) Row(Table, crdt.Register)                   {}
func (discard) Readers()                                   {}
func (discard) Trimmed(crdt.StreamID, kv.Tier, int)        {}
