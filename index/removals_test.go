package index_test

import (
	"testing"

	"github.com/rhizome-router/rhizome/index"
	"github.com/rhizome-router/rhizome/kv"
	"pgregory.net/rapid"
)

// TestRemovalsAgainstNaive: what the witness says is what a full list of all
// removals says, or that it forgot, which it may only after many.
func TestRemovalsAgainstNaive(t *testing.T) {
	const forgets = 2048 // recentRemovals
	keys := chain(12)
	rapid.Check(t, func(t *rapid.T) {
		x := index.New(index.Config{})
		slots := []index.Slot{x.Open(index.HBMThenOneTier), x.Open(index.HBMThenOneTier)}
		type removed struct {
			slot index.Slot
			key  kv.Key
		}
		var all []removed
		type mark struct {
			index.Mark
			at int
		}
		marks := []mark{{x.Mark(), 0}}
		flood := chain(13)[12]
		t.Repeat(map[string]func(*rapid.T){
			"mark": func(*rapid.T) { marks = append(marks, mark{x.Mark(), len(all)}) },
			"apply": func(t *rapid.T) {
				s := rapid.SampledFrom(slots).Draw(t, "slot")
				var changes []index.Change
				for range rapid.IntRange(1, 4).Draw(t, "n") {
					c := index.Change{Key: rapid.SampledFrom(keys).Draw(t, "key"), Tier: kv.Tier(rapid.IntRange(0, 1).Draw(t, "tier")), Present: rapid.Bool().Draw(t, "present")}
					changes = append(changes, c)
					if !c.Present {
						all = append(all, removed{s, c.Key})
					}
				}
				x.Apply(s, changes)
			},
			"flood": func(t *rapid.T) {
				s := rapid.SampledFrom(slots).Draw(t, "slot")
				changes := make([]index.Change, rapid.SampledFrom([]int{100, 1000, 3000}).Draw(t, "n"))
				for i := range changes {
					changes[i].Key = flood
					all = append(all, removed{s, flood})
				}
				x.Apply(s, changes)
			},
			"": func(t *rapid.T) {
				m := rapid.SampledFrom(marks).Draw(t, "mark")
				s := rapid.SampledFrom(slots).Draw(t, "slot")
				of := keys[:rapid.IntRange(0, len(keys)).Draw(t, "of")]
				some, since := false, 0
				for _, r := range all[m.at:] {
					if r.slot != s {
						continue
					}
					since++
					for _, k := range of {
						some = some || r.key == k
					}
				}
				switch got := x.RemovedSince(m.Mark, s, of); {
				case got == index.RemovalsForgotten && since > forgets:
				case got == index.NoneRemoved && !some && since <= forgets:
				case got == index.SomeRemoved && some:
				default:
					t.Fatalf("says %d of %d removals since, some of the %d blocks: %v", got, since, len(of), some)
				}
			},
		})
		x.Drop(slots[0])
		if got := x.RemovedSince(x.Mark(), slots[0], nil); got != index.SomeRemoved {
			t.Fatalf("a slot that is gone says %d", got)
		}
	})
}
