package index_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/rhizome-router/rhizome/index"
	"github.com/rhizome-router/rhizome/kv"
	"pgregory.net/rapid"
)

func TestApproxAgainstNaive(t *testing.T) {
	keys := chain(10)
	rapid.Check(t, func(t *rapid.T) {
		a := index.NewApprox(index.ApproxConfig{MaxEntries: 1 << 14, Seed: rapid.Uint64().Draw(t, "seed")})
		touched := map[index.Slot]map[kv.Key]uint64{}
		slots := rapid.Uint32Range(0, 4)
		t.Repeat(map[string]func(*rapid.T){
			"touch": func(t *rapid.T) {
				s := index.Slot(slots.Draw(t, "slot"))
				lo := max(0, rapid.IntRange(-3, 9).Draw(t, "lo"))
				hi := rapid.IntRange(lo, len(keys)).Draw(t, "hi")
				now := rapid.Uint64Range(0, 100).Draw(t, "clock")
				a.Touch(s, keys[lo:hi], now)
				if touched[s] == nil {
					touched[s] = map[kv.Key]uint64{}
				}
				for _, k := range keys[lo:hi] {
					touched[s][k] = now
				}
			},
			"drop": func(t *rapid.T) {
				s := index.Slot(slots.Draw(t, "slot"))
				a.Drop(s)
				delete(touched, s)
			},
			"": func(t *rapid.T) {
				horizon := func(s index.Slot) index.Horizon {
					return index.Horizon{Now: 60 + 10*uint64(s), HBM: 30, Total: 30 * uint64(s), Lower: kv.CPU}
				}
				var want []index.Hit
				for _, s := range slices.Sorted(maps.Keys(touched)) {
					h, r := horizon(s), index.Run{}
					for _, k := range keys {
						at, ok := touched[s][k]
						age := max(0, int(h.Now)-int(at))
						if !ok || r.Lower > 0 && age >= int(h.Total) || age >= int(max(h.HBM, h.Total)) {
							break
						}
						if r.Lower == 0 && age < int(h.HBM) {
							r.HBM++
						} else {
							r.Lower++
							r.Tier = kv.CPU
						}
					}
					if r.Len() > 0 {
						want = append(want, index.Hit{Slot: s, Run: r, Promised: r})
					}
				}
				if d := gocmp.Diff(want, a.Match(keys, horizon, nil)); d != "" {
					t.Fatalf("(-want +got):\n%s", d)
				}
			},
		})
	})
}

// TestApproxForgetsTheOldest fills the table twice over: what is left must be
// mostly the later half, and of that most.
func TestApproxForgetsTheOldest(t *testing.T) {
	const size = 1 << 12
	a := index.NewApprox(index.ApproxConfig{MaxEntries: size})
	keys := chain(2 * size)
	for i := range keys {
		a.Touch(index.Slot(i%3), keys[i:i+1], 0)
	}
	held := func(keys []kv.Key) (n int) {
		for i := range keys {
			n += len(a.Match(keys[i:i+1], always, nil))
		}
		return n
	}
	old, young, youngest := held(keys[:size]), held(keys[size:]), held(keys[size+size/2:])
	if st := a.Stats(); old+young > size || uint64(2*size-old-young) != st.Evicted {
		t.Errorf("%d + %d of %d held, %+v", old, young, size, st)
	}
	if young < size*3/4 || youngest < size/2*95/100 {
		t.Errorf("%d of the younger and %d of the youngest %d are left", young, youngest, size/2)
	}
}

// TestApproxReusesTheDead: what was sent to a dropped slot gives way first.
func TestApproxReusesTheDead(t *testing.T) {
	const size = 1 << 10
	a := index.NewApprox(index.ApproxConfig{MaxEntries: size})
	keys := chain(size / 32)
	a.Touch(0, keys, 0)
	for s := index.Slot(1); s < 50; s++ {
		a.Touch(s, keys, 0)
		a.Drop(s)
	}
	if len(a.Match(keys[:1], always, nil)) != 1 || a.Stats().Evicted != 0 {
		t.Errorf("%+v", a.Stats())
	}
}

func always(index.Slot) index.Horizon { return index.Horizon{HBM: 1} }

func BenchmarkApprox(b *testing.B) {
	for _, slots := range []int{8, 64} {
		a := index.NewApprox(index.ApproxConfig{})
		keys := chain(400)
		for s := range slots {
			a.Touch(index.Slot(s), keys[:20+380*(s%8/7)], 0)
		}
		b.Run(fmt.Sprintf("Match/chunks=400/slots=%d", slots), func(b *testing.B) {
			b.ReportAllocs()
			var dst []index.Hit
			for b.Loop() {
				dst = a.Match(keys, always, dst[:0])
			}
		})
		b.Run(fmt.Sprintf("Touch/chunks=400/slots=%d", slots), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				a.Touch(3, keys, 0)
			}
		})
	}
}

// Merging what others saw gives the same whatever comes first, and makes
// nothing younger or older than the latest that anybody saw.
func TestApproxMergeKeepsTheLatest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := index.NewApprox(index.ApproxConfig{MaxEntries: 1 << 10})
		latest := make(map[kv.Key]uint64)
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			k, clock := kv.Key(rapid.Uint64Range(1, 8).Draw(t, "key")), rapid.Uint64Range(1, 1000).Draw(t, "clock")
			a.Merge(3, []kv.Key{k}, clock)
			latest[k] = max(latest[k], clock)
		}
		for k, clock := range latest {
			if s := a.Stale(3, []kv.Key{k}, clock, nil); len(s) != 0 {
				t.Fatalf("key %d is older than %d", k, clock)
			}
			if s := a.Stale(3, []kv.Key{k}, clock+1, nil); len(s) != 1 {
				t.Fatalf("key %d is younger than %d", k, clock)
			}
		}
		if s := a.Stale(4, []kv.Key{1}, 0, nil); len(s) != 1 {
			t.Fatal("what was never sent to a slot is not stale there")
		}
	})
}

// A search costs the more the more slots were sent the prompt, not the more there
// are.
func BenchmarkApproxManySlots(b *testing.B) {
	for _, slots := range []int{10, 1000} {
		a := index.NewApprox(index.ApproxConfig{})
		keys := chain(10 * slots)
		for s := range slots {
			a.Touch(index.Slot(s), keys[10*s:][:10], 0)
		}
		b.Run(fmt.Sprint(slots), func(b *testing.B) {
			var dst []index.Hit
			for b.Loop() {
				dst = a.Match(keys[:10], always, dst[:0])
			}
		})
	}
}
