package crdt

import "github.com/rhizome-router/rhizome/kv"

// copies is how many copies of a block are on each tier, a byte a tier.
type copies uint64

const (
	eachTier = 0x0101010101 // 1 on each tier
	topTiers = eachTier << 7
)

func (c copies) on(t kv.Tier) uint8 { return uint8(c >> (8 * t)) }

func (c copies) with(t kv.Tier, n uint8) copies {
	return c&^(0xff<<(8*t)) | copies(n)<<(8*t)
}

// onEach returns one copy on each tier of a set: the product has bit t of the
// set at 8·t, for 7·t is one of its shifts.
func onEach(tiers uint16) copies {
	return copies(tiers&tierBits) * (1 | 1<<7 | 1<<14 | 1<<21 | 1<<28) & eachTier
}

// tiers returns the set of tiers with copies: a byte that isn't 0 carries into
// its top bit, and the product gathers these.
func (c copies) tiers() uint16 {
	some := (c | (c&^topTiers + topTiers - eachTier)) & topTiers >> 7
	return uint16(some*(1<<28|1<<21|1<<14|1<<7|1)>>28) & tierBits
}
