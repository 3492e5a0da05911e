package index_test

import (
	"testing"

	"github.com/rhizome-router/rhizome/index"
	"github.com/rhizome-router/rhizome/kv"
	"pgregory.net/rapid"
)

// TestLongBatchesKeepTheirOrder: a batch does what its changes do one by one,
// however long it is and whatever comes and goes in it.
func TestLongBatchesKeepTheirOrder(t *testing.T) {
	keys := chain(40)
	rapid.Check(t, func(t *rapid.T) {
		whole, single := index.New(index.Config{}), index.New(index.Config{})
		s := whole.Open(index.HBMThenOneTier)
		single.Open(index.HBMThenOneTier)
		drawn := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) index.Change {
			return index.Change{
				Key: rapid.SampledFrom(keys).Draw(t, "key"), Group: rapid.Uint16Range(0, 1).Draw(t, "group"),
				Tier: kv.Tier(rapid.IntRange(0, kv.NumTiers).Draw(t, "tier")), Present: rapid.Bool().Draw(t, "present"),
			}
		}), 1, 60).Draw(t, "changes")
		var changes []index.Change
		for length := rapid.SampledFrom([]int{1, 300, 9000}).Draw(t, "length"); len(changes) < length; {
			changes = append(changes, drawn...)
		}
		whole.Apply(s, changes)
		for _, c := range changes {
			single.Apply(s, []index.Change{c})
		}
		for _, k := range keys {
			for group := range uint16(2) {
				if got, want := whole.Tiers(s, group, k), single.Tiers(s, group, k); got != want {
					t.Fatalf("key %x, group %d: tiers %b, want %b", k, group, got, want)
				}
			}
		}
	})
}
