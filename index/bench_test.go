package index_test

import (
	"fmt"
	"testing"

	"github.com/rhizome-router/rhizome/index"
	"github.com/rhizome-router/rhizome/kv"
)

// fleet returns an index of 20,000 other blocks for each of 64 slots, and keys
// held by the first holders of them: alike says that all hold the whole chain
// in HBM, else they hold runs of different lengths on different tiers.
func fleet(keys []kv.Key, holders int, alike bool) *index.Index {
	x := index.New(index.Config{})
	for s := range 64 {
		slot := x.Open(index.HBMThenOneTier)
		noise := make([]kv.Key, 20_000)
		for i := range noise {
			noise[i] = kv.Next(kv.Key(s), kv.Content(i))
		}
		fill(x, slot, noise, kv.HBM)
		switch {
		case s >= holders:
		case alike:
			fill(x, slot, keys, kv.HBM)
		default:
			cut := 1 + (s*37)%len(keys)
			fill(x, slot, keys[:cut], kv.HBM)
			fill(x, slot, keys[cut/2:], kv.CPU)
		}
	}
	return x
}

func BenchmarkMatch(b *testing.B) {
	for _, blocks := range []int{64, 750} {
		for _, holders := range []int{8, 64} {
			for _, shape := range []string{"alike", "mixed"} {
				keys := chain(blocks)
				x := fleet(keys, holders, shape == "alike")
				b.Run(fmt.Sprintf("blocks=%d/holders=%d/%s", blocks, holders, shape), func(b *testing.B) {
					b.ReportAllocs()
					var dst []index.Hit
					for b.Loop() {
						dst = x.Match(keys, dst[:0])
					}
					if len(dst) != holders {
						b.Fatal(len(dst))
					}
				})
			}
		}
	}
}

func BenchmarkMatchParallel(b *testing.B) {
	keys := chain(750)
	x := fleet(keys, 8, false)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		var dst []index.Hit
		for pb.Next() {
			dst = x.Match(keys, dst[:0])
		}
	})
}

// BenchmarkApply puts 750 blocks on a slot and takes them off again.
func BenchmarkApply(b *testing.B) {
	for _, holders := range []int{0, 8, 63} {
		keys := chain(750)
		x := fleet(keys, holders, true)
		in := make([]index.Change, len(keys))
		out := make([]index.Change, len(keys))
		for i, k := range keys {
			in[i] = index.Change{Key: k, Present: true}
			out[i] = index.Change{Key: k}
		}
		b.Run(fmt.Sprintf("others=%d", holders), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				x.Apply(63, in)
				x.Apply(63, out)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1500, "ns/change")
		})
	}
}

// BenchmarkFill reports the memory of a block that one slot holds.
func BenchmarkFill(b *testing.B) {
	keys := chain(1_000_000)
	for b.Loop() {
		x := index.New(index.Config{})
		fill(x, x.Open(index.HBMThenOneTier), keys, kv.HBM)
		st := x.Stats()
		b.ReportMetric(float64(st.Bytes)/float64(st.Keys), "B/block")
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1e6, "ns/block")
}

func TestMatchAllocatesNothing(t *testing.T) {
	keys := chain(64)
	x := fleet(keys, 8, false)
	dst := make([]index.Hit, 0, 8)
	if n := testing.AllocsPerRun(100, func() { dst = x.Match(keys, dst[:0]) }); n != 0 {
		t.Errorf("Index.Match: %v allocations, want 0", n)
	}
	a := index.NewApprox(index.ApproxConfig{MaxEntries: 1000})
	a.Touch(3, keys, 0)
	if n := testing.AllocsPerRun(100, func() { dst = a.Match(keys, always, dst[:0]) }); n != 0 {
		t.Errorf("Approx.Match: %v allocations, want 0", n)
	}
	if n := testing.AllocsPerRun(100, func() { a.Touch(3, keys, 1) }); n != 0 {
		t.Errorf("Approx.Touch: %v allocations, want 0", n)
	}
}
