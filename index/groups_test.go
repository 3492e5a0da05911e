package index_test

import (
	"fmt"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/rhizome-router/rhizome/index"
	"github.com/rhizome-router/rhizome/kv"
)

func fillGroup(x *index.Index, s index.Slot, group uint16, keys []kv.Key, tier kv.Tier) {
	for _, k := range keys {
		x.Apply(s, []index.Change{{Key: k, Group: group, Tier: tier, Present: true}})
	}
}

func TestMatchStopsWhereWindowsDo(t *testing.T) {
	keys := chain(10)
	sliding, recurrent := index.Group{ID: 1, WindowBlocks: 3}, index.Group{ID: 4, WindowBlocks: 1}
	for _, c := range []struct {
		name   string
		rule   index.TierRule
		groups []index.Group
		fill   func(x *index.Index, s index.Slot)
		want   index.Run
	}{
		{"nobody named groups", 0, nil, func(*index.Index, index.Slot) {}, index.Run{HBM: 6, Lower: 4, Tier: kv.CPU}},
		{"a named group holds nothing", 0, []index.Group{sliding}, func(*index.Index, index.Slot) {}, index.Run{}},
		{"the window at the end is there", 0, []index.Group{sliding}, func(x *index.Index, s index.Slot) {
			fillGroup(x, s, 1, keys[7:], kv.HBM)
		}, index.Run{HBM: 6, Lower: 4, Tier: kv.CPU}},
		{"a window in the middle", 0, []index.Group{sliding}, func(x *index.Index, s index.Slot) {
			fillGroup(x, s, 1, keys[2:5], kv.HBM)
			fillGroup(x, s, 1, keys[8:], kv.HBM)
		}, index.Run{HBM: 5}},
		{"a short prefix needs a short window", 0, []index.Group{sliding}, func(x *index.Index, s index.Slot) {
			fillGroup(x, s, 1, keys[:2], kv.CPU)
		}, index.Run{HBM: 2}},
		{"states are where they are", 0, []index.Group{recurrent}, func(x *index.Index, s index.Slot) {
			fillGroup(x, s, 4, []kv.Key{keys[3], keys[7]}, kv.CPU)
		}, index.Run{HBM: 6, Lower: 2, Tier: kv.CPU}},
		{"all groups at once", 0, []index.Group{recurrent, sliding}, func(x *index.Index, s index.Slot) {
			fillGroup(x, s, 4, []kv.Key{keys[3], keys[7], keys[9]}, kv.HBM)
			fillGroup(x, s, 1, keys[:8], kv.HBM)
		}, index.Run{HBM: 6, Lower: 2, Tier: kv.CPU}},
		{"a tier that isn't read", index.DeviceThenHost, []index.Group{recurrent}, func(x *index.Index, s index.Slot) {
			fillGroup(x, s, 4, []kv.Key{keys[3]}, kv.CPU)
			fillGroup(x, s, 4, []kv.Key{keys[7]}, kv.Disk)
		}, index.Run{HBM: 4}},
	} {
		x := index.New(index.Config{})
		s, other := x.Open(c.rule), x.Open(c.rule)
		for _, s := range []index.Slot{s, other} {
			fill(x, s, keys[:6], kv.HBM)
			fill(x, s, keys[4:], kv.CPU)
		}
		if err := x.SetGroups(s, c.groups); err != nil {
			t.Fatal(err)
		}
		c.fill(x, s)
		var want []index.Hit
		if c.want.Len() > 0 {
			want = append(want, index.Hit{Slot: s, Run: c.want, Promised: c.want})
		}
		whole := index.Run{HBM: 6, Lower: 4, Tier: kv.CPU}
		want = append(want, index.Hit{Slot: other, Run: whole, Promised: whole})
		if d := gocmp.Diff(want, sorted(x.Match(keys, nil))); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, d)
		}
	}
}

// TestPromisesHoldForAllGroups: what a request computes, it computes for every
// group.
func TestPromisesHoldForAllGroups(t *testing.T) {
	x, keys := index.New(index.Config{}), chain(10)
	s := x.Open(index.HBMThenOneTier)
	if err := x.SetGroups(s, []index.Group{{ID: 1, WindowBlocks: 4}}); err != nil {
		t.Fatal(err)
	}
	fill(x, s, keys[:5], kv.HBM)
	fillGroup(x, s, 1, keys[:3], kv.HBM)
	x.Begin(s, keys[5:], 1)
	want := []index.Hit{{Slot: s, Run: index.Run{HBM: 3}, Promised: index.Run{HBM: 10}}}
	if d := gocmp.Diff(want, x.Match(keys, nil)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestGroupsEndWithTheSlot(t *testing.T) {
	x, keys := index.New(index.Config{}), chain(3)
	s := x.Open(index.HBMThenOneTier)
	if err := x.SetGroups(s, []index.Group{{ID: 1, WindowBlocks: 1}}); err != nil {
		t.Fatal(err)
	}
	x.Drop(s)
	x.Sweep(1 << 30)
	if again := x.Open(index.HBMThenOneTier); again != s {
		t.Fatalf("slot %d, want %d again", again, s)
	}
	fill(x, s, keys, kv.HBM)
	if hits := x.Match(keys, nil); len(hits) != 1 || hits[0].HBM != 3 {
		t.Errorf("%+v", hits)
	}
}

func TestSenselessGroups(t *testing.T) {
	x := index.New(index.Config{})
	s := x.Open(index.HBMThenOneTier)
	many := make([]index.Group, index.MaxGroups+1)
	for i := range many {
		many[i] = index.Group{ID: uint16(i + 1), WindowBlocks: 1}
	}
	for _, groups := range [][]index.Group{{{ID: 0, WindowBlocks: 1}}, {{ID: 1}}, many} {
		if x.SetGroups(s, groups) == nil {
			t.Errorf("%v are taken", groups)
		}
	}
	if err := x.SetGroups(99, many[1:]); err != nil {
		t.Errorf("a slot that isn't open: %v", err)
	}
}

// BenchmarkMatchGroups is a prompt of 750 blocks on slots of a hybrid model
// with six groups of 64-block windows (1024 tokens).
func BenchmarkMatchGroups(b *testing.B) {
	for _, holders := range []int{1, 8} {
		b.Run(fmt.Sprintf("blocks=750/holders=%d", holders), func(b *testing.B) {
			keys := chain(750)
			x := fleet(keys, holders, true)
			var groups []index.Group
			for id := uint16(1); id <= 6; id++ {
				groups = append(groups, index.Group{ID: id, WindowBlocks: 64})
			}
			for s := range index.Slot(holders) {
				for _, g := range groups {
					fillGroup(x, s, g.ID, keys[600:], kv.HBM)
				}
				if err := x.SetGroups(s, groups); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportAllocs()
			var dst []index.Hit
			for b.Loop() {
				dst = x.Match(keys, dst[:0])
			}
			if dst[0].HBM != 750 {
				b.Fatal(dst[0])
			}
		})
	}
}
