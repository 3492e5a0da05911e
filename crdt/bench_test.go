package crdt

import (
	"testing"

	"github.com/rhizome-router/rhizome/index"
	"github.com/rhizome-router/rhizome/kv"
)

// BenchmarkChurn is what full caches do all day: each batch inserts 750 blocks
// in HBM, moves the 750 oldest there to CPU memory, and drops the 750 oldest
// there. 16 streams of 64k blocks take turns, so that caches don't hold them.
func BenchmarkChurn(b *testing.B) {
	const streams, held, run = 16, 64 << 10, 750
	hash := func(n uint64) kv.EngineHash { return kv.EngineHash(n * 0x9e3779b97f4a7c15) }
	var ss [streams]*Stream
	var ends [streams]uint64
	changes := 0
	emit := func(index.Change) { changes++ }
	step := func(s int) []kv.Op {
		n := ends[s]
		ends[s] += run
		in := kv.Op{Root: 1, Blocks: make([]kv.Block, run)}
		for i := range in.Blocks {
			in.Blocks[i] = kv.Block{Hash: hash(n + uint64(i)), Content: kv.Content(n + uint64(i))}
		}
		hashes := func(n uint64) (hs []kv.EngineHash) {
			for i := range uint64(run) {
				hs = append(hs, hash(n+i))
			}
			return hs
		}
		return []kv.Op{in,
			{Kind: kv.Remove, Hashes: hashes(n - held/2)},
			{Kind: kv.Also, Tier: kv.CPU, Hashes: hashes(n - held/2)},
			{Kind: kv.Remove, Tier: kv.CPU, Hashes: hashes(n - held)}}
	}
	for s := range ss {
		ss[s] = NewStream(StreamConfig{Counted: true})
		ends[s] = uint64(s+1) << 40
		for range 2 * held / run {
			ss[s].Apply(ss[s].Next(), step(s), emit)
		}
	}
	b.ReportAllocs()
	s := 0
	for b.Loop() {
		b.StopTimer()
		ops := step(s)
		b.StartTimer()
		ss[s].Apply(ss[s].Next(), ops, emit)
		s = (s + 1) % streams
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/(4*run), "ns/op-block")
}
