package index

import (
	"testing"

	"github.com/rhizome-router/rhizome/kv"
	"pgregory.net/rapid"
)

// Slots are listed for a chunk as long as an entry says that it began a prompt
// there, whatever gave way to what, and no others are.
func TestBeginningsAreThoseOfTheEntries(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := NewApprox(ApproxConfig{MaxEntries: 64})
		key := rapid.Uint64Range(1, 40)
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			s := Slot(rapid.Uint32Range(0, 9).Draw(t, "slot"))
			keys := make([]kv.Key, rapid.IntRange(1, 3).Draw(t, "keys"))
			for i := range keys {
				keys[i] = kv.Key(key.Draw(t, "key"))
			}
			clock := rapid.Uint64Range(0, 100).Draw(t, "clock")
			switch rapid.IntRange(0, 5).Draw(t, "event") {
			case 0:
				a.Drop(s)
			case 1:
				a.Merge(s, keys, clock)
			default:
				a.Touch(s, keys, clock)
				if got := a.Match(keys[:1], func(Slot) Horizon { return Horizon{Now: clock, HBM: 1} }, nil); !holds(got, s) {
					t.Fatalf("%v is not among %v right after it was sent the chunk", s, got)
				}
			}
		}
		want, got := 0, 0
		for i := range a.sets {
			set := &a.sets[i]
			for j, mark := range set.marks {
				if mark == 0 || set.clocks[j]&begins == 0 {
					continue
				}
				want++
				if _, ok := search(a.begin.slots(kv.Key(set.keys[j])), slotOf(mark)); !ok {
					t.Fatalf("slot %d is not listed for %d", slotOf(mark), set.keys[j])
				}
			}
		}
		if a.begin != nil {
			for i := range a.begin.shards {
				got += int(a.begin.shards[i].holders)
			}
		}
		if got != want {
			t.Fatalf("%d are listed, %d are right", got, want)
		}
	})
}

func holds(hits []Hit, s Slot) bool {
	for _, h := range hits {
		if h.Slot == s {
			return true
		}
	}
	return false
}
