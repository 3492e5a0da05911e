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
	b.holes = old.holes
	b.reserve(old.blocks)
	moved := make([]uint32, old.unused) // new number + 1
	for i := range old.unused {
		if e := old.load(i); e.state != vacant {
			o := old.orphans[i]
			moved[i] = b.put(e, orphan{parent: o.parent, same: o.same}) + 1
		}
	}
	for i, to := range moved {
		if to == 0 || b.holes {
			continue
		}
		l := old.at(uint32(i)).link()
		if before := l.before(); before != 0 {
			l = l&^(1<<numberBits-1) | link(moved[before-1])
		}
		b.at(to - 1).setLink(l)
	}
}

// put adds a whole entry that isn't there yet and returns its number. There
// must be room for it.
func (b *base) put(e entry, o orphan) uint32 {
	i, ok := b.create(place(uint64(e.hash), e.group), e.group, e.hash)
	if !ok {
		panic("crdt: no room for an entry that was counted before")
	}
	made := b.load(i)
	made.copies = e.copies
	b.store(i, &made)
	if e.keyed() {
		b.setKey(i, kv.Key(e.val), place(e.val, e.group))
	} else {
		b.orphan(i, e.val, o)
	}
	e = b.load(i)
	b.digest += b.sum(i, &e)
	for t := range kv.Tier(kv.NumTiers) {
		if e.copies.on(t) > 0 {
			b.count(&e, t, true)
		}
	}
	return i
}

// truncate empties a tier and takes nothing on it from now on.
func (b *base) truncate(t kv.Tier, emit func(index.Change)) {
	b.clear(t.Mask(), emit)
	b.truncated |= t.Mask()
	b.purge()
	b.compact()
}
