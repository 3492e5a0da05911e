package crdt

import (
	"testing"

	"github.com/rhizome-router/rhizome/kv"
)

func TestCopies(t *testing.T) {
	for tiers := range uint16(1 << kv.NumTiers) {
		c := onEach(tiers)
		if c.tiers() != tiers {
			t.Errorf("of tiers %05b it says %05b", tiers, c.tiers())
		}
		for tier := range kv.Tier(kv.NumTiers) {
			if got := c.on(tier); got != uint8(tiers>>tier&1) {
				t.Errorf("tiers %05b: %d on %v", tiers, got, tier)
			}
			for _, n := range []uint8{0, 1, 2, 127, 128, 255} {
				if d := c.with(tier, n); d.on(tier) != n || d.with(tier, c.on(tier)) != c || d.tiers()>>tier&1 != uint16(min(n, 1)) {
					t.Errorf("tiers %05b with %d on %v: %x", tiers, n, tier, d)
				}
			}
		}
	}
}
