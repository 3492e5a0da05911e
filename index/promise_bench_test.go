package index_test

import (
	"testing"

	"github.com/rhizome-router/rhizome/index"
	"github.com/rhizome-router/rhizome/kv"
)

// BenchmarkPromise promises 8192 blocks of a prompt, the first half of them
// confirmed, and ends that: 64 prompts in turns, so that caches don't hold them.
func BenchmarkPromise(b *testing.B) {
	const prompts, blocks = 64, 8192
	x := index.New(index.Config{Seed: 1})
	var slots [prompts]index.Slot
	var keys [prompts][]kv.Key
	for i := range prompts {
		slots[i] = x.Open(index.HBMThenOneTier)
		parent := kv.Root("m", "", string(rune('a'+i)))
		for j := range blocks {
			parent = kv.Next(parent, kv.Content(j))
			keys[i] = append(keys[i], parent)
		}
		fill(x, slots[i], keys[i][:blocks/2], kv.HBM)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		x.End(x.Begin(slots[i%prompts], keys[i%prompts], 1))
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/blocks, "ns/block")
}
