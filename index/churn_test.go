package index_test

import (
	"testing"

	"github.com/rhizome-router/rhizome/index"
	"github.com/rhizome-router/rhizome/kv"
)

// BenchmarkChurn is what full caches do all day: each batch brings 750 blocks
// to HBM, moves the 750 oldest there to CPU memory, and drops the 750 oldest
// there. 16 slots of 64k blocks take turns, so that caches don't hold them.
func BenchmarkChurn(b *testing.B) {
	const slots, held, run = 16, 64 << 10, 750
	key := func(n uint64) kv.Key { return kv.Next(7, kv.Content(n)) }
	x := index.New(index.Config{})
	var ends [slots]uint64
	step := func(s int) (changes []index.Change) {
		n := ends[s]
		ends[s] += run
		add := func(first uint64, t kv.Tier, present bool) {
			for i := range uint64(run) {
				changes = append(changes, index.Change{Key: key(first + i), Tier: t, Present: present})
			}
		}
		add(n, kv.HBM, true)
		add(n-held/2, kv.HBM, false)
		add(n-held/2, kv.CPU, true)
		add(n-held, kv.CPU, false)
		return changes
	}
	for s := range slots {
		x.Open(index.HBMThenOneTier)
		ends[s] = uint64(s+1) << 40
		for range 2 * held / run {
			x.Apply(index.Slot(s), step(s))
		}
	}
	b.ReportAllocs()
	s := 0
	for b.Loop() {
		b.StopTimer()
		changes := step(s)
		b.StartTimer()
		x.Apply(index.Slot(s), changes)
		s = (s + 1) % slots
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/(4*run), "ns/change")
}

// TestMemoryStaysFlat fills and drops slots again and again, with other blocks
// each time: slots are used again, and the tables get no larger.
func TestMemoryStaysFlat(t *testing.T) {
	const rounds, blocks = 40, 8000
	x := index.New(index.Config{})
	slots := []index.Slot{x.Open(index.HBMThenOneTier), x.Open(index.HBMThenOneTier), x.Open(index.DeviceThenHost)}
	var early, late int64
	for round := range uint64(rounds) {
		for i, s := range slots {
			keys := make([]kv.Key, blocks)
			for n := range keys {
				keys[n] = kv.Next(kv.Key(round), kv.Content(n/(1+i%2))) // some of them shared
			}
			fill(x, s, keys, kv.HBM)
			fillGroup(x, s, 2, keys[:blocks/4], kv.CPU)
			x.End(x.Begin(s, keys[blocks/2:], 1))
			out := make([]index.Change, blocks/2)
			for n := range out {
				out[n] = index.Change{Key: keys[n]}
			}
			x.Apply(s, out)
			if round%2 == uint64(i)%2 {
				x.Drop(s)
				slots[i] = x.Open(index.HBMThenOneTier)
				if err := x.SetGroups(slots[i], []index.Group{{ID: 2, WindowBlocks: 3}}); err != nil {
					t.Fatal(err)
				}
			} else {
				for n := range keys {
					x.Apply(s, []index.Change{{Key: keys[n]}, {Key: keys[n], Group: 2, Tier: kv.CPU}})
				}
			}
		}
		if st := x.Stats(); round < rounds/2 {
			early = max(early, st.Bytes)
		} else {
			late = max(late, st.Bytes)
		}
	}
	if late > early*12/10 { // each shard keeps room for its fullest moment
		t.Errorf("at most %d B in the first half of the rounds, %d B in the second", early, late)
	}
	if top := max(slots[0], slots[1], slots[2]); top > 12 {
		t.Errorf("slot %d is open: numbers aren't used again", top)
	}
}
