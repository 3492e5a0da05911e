package index_test

import (
	"fmt"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/index"
	"github.com/rhizome-router/rhizome/kv"
	"pgregory.net/rapid"
)

// branches returns two chains that share their first blocks.
func branches(n, shared int) [2][]kv.Key {
	a := chain(n)
	b := append([]kv.Key{}, a[:shared]...)
	for i := shared; i < n; i++ {
		parent := kv.Root("m", "", "")
		if i > 0 {
			parent = b[i-1]
		}
		b = append(b, kv.Next(parent, kv.Content(1000+i)))
	}
	return [2][]kv.Key{a, b}
}

// leaper plays the same changes into two indexes, vouching for wholeness in
// the first alone, so that only there Match leaps.
type leaper struct {
	leaps, walks *index.Index
	on           []map[kv.Key]bool // by slot: what is in HBM
	before       map[kv.Key]kv.Key // 0 before the first
}

func (l *leaper) change(s index.Slot, keys []kv.Key, tier kv.Tier, present bool) {
	for _, k := range keys {
		c := index.Change{Key: k, Tier: tier, Present: present}
		l.walks.Apply(s, []index.Change{c})
		if tier == kv.HBM {
			l.on[s][k] = present
		}
		c.Whole = true
		for k, on := range l.on[s] {
			if b := l.before[k]; on && b != 0 && !l.on[s][b] {
				c.Whole = false
			}
		}
		l.leaps.Apply(s, []index.Change{c})
	}
}

// TestLeapsAreWalks: where changes vouch that HBM is whole, Match finds by leaps
// what it finds by looking at each block: with prefixes of any lengths, branches,
// lower tiers, promises, groups, and slots that nobody vouches for among others.
func TestLeapsAreWalks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.SampledFrom([]int{3, 30, 100}).Draw(t, "blocks")
		chains := branches(n, rapid.IntRange(0, n).Draw(t, "shared"))
		l := &leaper{leaps: index.New(index.Config{}), walks: index.New(index.Config{}), before: map[kv.Key]kv.Key{}}
		for _, keys := range chains {
			for i, k := range keys[1:] {
				l.before[k] = keys[i]
			}
		}
		few := rapid.IntRange(1, 5).Draw(t, "slots")
		slots := few + rapid.SampledFrom([]int{0, 0, 0, 32}).Draw(t, "crowd") // that has the beginning
		for range slots {
			l.leaps.Open(index.HBMThenOneTier)
			l.walks.Open(index.HBMThenOneTier)
			l.on = append(l.on, map[kv.Key]bool{})
		}
		held := make([][2]int, slots) // by slot and chain: how many of its first blocks were inserted
		begin := rapid.IntRange(1, n/2).Draw(t, "begin")
		for s := few; s < slots; s++ {
			l.change(index.Slot(s), chains[0][:begin], kv.HBM, true)
			held[s][0] = begin
		}
		for range rapid.SampledFrom([]int{3, 15}).Draw(t, "steps") {
			s := index.Slot(rapid.IntRange(0, slots-1).Draw(t, "slot"))
			which := rapid.IntRange(0, 1).Draw(t, "chain")
			keys, upTo := chains[which], rapid.IntRange(0, n).Draw(t, "up to")
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0, 1, 2, 3:
				l.change(s, keys[:upTo], kv.HBM, true)
				held[s][which] = max(held[s][which], upTo)
			case 4, 5: // from the end on
				for i := held[s][which] - 1; i >= upTo; i-- {
					l.change(s, keys[i:i+1], kv.HBM, false)
				}
				held[s][which] = min(held[s][which], upTo)
			case 6:
				l.change(s, keys[upTo:], kv.CPU, true)
			case 7:
				from := rapid.IntRange(0, upTo).Draw(t, "from")
				l.leaps.Begin(s, keys[from:upTo], clock.Instant(1))
				l.walks.Begin(s, keys[from:upTo], clock.Instant(1))
			case 8:
				groups := []index.Group{{ID: 1, WindowBlocks: 2}}[:rapid.IntRange(0, 1).Draw(t, "groups")]
				if err := l.leaps.SetGroups(s, groups); err != nil {
					t.Fatal(err)
				}
				if err := l.walks.SetGroups(s, groups); err != nil {
					t.Fatal(err)
				}
			case 9: // anywhere
				if upTo < n && rapid.Bool().Draw(t, "hole") {
					l.change(s, keys[upTo:upTo+1], kv.HBM, rapid.Bool().Draw(t, "present"))
				}
			}
			for _, keys := range chains {
				want, got := l.walks.Match(keys, nil), l.leaps.Match(keys, nil)
				if d := gocmp.Diff(want, got, cmpopts.EquateEmpty()); d != "" {
					t.Fatalf("by looking at each (-), by leaps (+):\n%s", d)
				}
			}
		}
	})
}

// BenchmarkMatchWhole is what most lookups are: slots whose HBM is whole, with
// prefixes of other lengths each.
func BenchmarkMatchWhole(b *testing.B) {
	for _, blocks := range []int{64, 750, 8192} {
		for _, holders := range []int{8, 64} {
			keys := chain(blocks)
			x := index.New(index.Config{})
			for s := range holders {
				slot := x.Open(index.HBMThenOneTier)
				var changes []index.Change
				for _, k := range keys[:blocks-(s%8)*blocks/16] {
					changes = append(changes, index.Change{Key: k, Present: true, Whole: true})
				}
				x.Apply(slot, changes)
			}
			b.Run(fmt.Sprintf("blocks=%d/holders=%d", blocks, holders), func(b *testing.B) {
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
