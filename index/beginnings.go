package index

import (
	"math"

	"github.com/rhizome-router/rhizome/kv"
)

// beginnings say to which slots prompts with a first chunk were sent, so that
// Approx need not ask about each slot. They are a table of blocks as the index's
// is, but guarded as a whole, and keep what they are told until they are told
// otherwise: a slot stands here while a set holds the chunk for it, alive or not.
type beginnings struct {
	shards [numShards]shard
	mult   uint64
	common
}

func newBeginnings(mult uint64) *beginnings {
	b := &beginnings{mult: mult}
	b.max = math.MaxInt64
	b.bed.init()
	for i := range b.shards {
		b.shards[i].no = uint32(i)
	}
	return b
}

func (b *beginnings) at(key uint64) (*shard, place) {
	h := hash(key, b.mult)
	return &b.shards[h>>placeBits], placeOf(h)
}

// slots returns those of a chunk, in order; valid until the next change.
func (b *beginnings) slots(k kv.Key) []holder {
	sh, at := b.at(uint64(k))
	if bu, c := sh.find(at); bu != nil {
		return sh.view(bu, c)
	}
	return nil
}

func (b *beginnings) note(key uint64, s Slot) {
	sh, at := b.at(key)
	sh.update(at, s, onHBM, 0, &b.common)
}

func (b *beginnings) forget(key uint64, s Slot) {
	sh, at := b.at(key)
	sh.update(at, s, 0, onHBM, &b.common)
}
