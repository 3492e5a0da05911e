package crdt

import (
	"github.com/rhizome-router/rhizome/index"
	"github.com/rhizome-router/rhizome/kv"
)

// bare returns an empty base that goes on from this one.
func (b *base) bare() base {
	return base{counted: b.counted, max: b.max, truncated: b.truncated, main: b.main, rooted: b.rooted, refused: b.refused}
}

// reserve makes room for n entries in an empty base's tables.
func (b *base) reserve(n int) {
	b.byHash.resize(n)
	b.byKey.resize(n)
}

// compact moves the entries to memory that they fill.
func (b *base) compact() {
	old := *b
	*b = old.bare()
	b.reserve(old.blocks)
	for i := range old.unused {
		if e := old.at(i); e.state != vacant {
			o := old.orphans[i]
			b.put(*e, orphan{parent: o.parent, same: o.same})
		}
	}
}

// put adds a whole entry that isn't there yet. There must be room for it.
func (b *base) put(e entry, o orphan) {
	i, ok := b.create(e.group, e.hash)
	if !ok {
		panic("crdt: no room for an entry that was counted before")
	}
	b.at(i).copies = e.copies
	if e.keyed() {
		b.setKey(i, kv.Key(e.val))
	} else {
		b.orphan(i, e.val, o)
	}
	b.digest += b.sum(i)
	for t, n := range e.copies {
		if n > 0 {
			b.count(&e, kv.Tier(t), true)
		}
	}
}

// truncate empties a tier and takes nothing on it from now on.
func (b *base) truncate(t kv.Tier, emit func(index.Change)) {
	b.clear(t.Mask(), emit)
	b.truncated |= t.Mask()
	b.purge()
	b.compact()
}
