package crdt

import "github.com/rhizome-router/rhizome/kv"

// link ties a block of group 0 that is in HBM to the one before it: that one's
// number + 1, 0 if there is none, in 24 bits; above them how many blocks in HBM
// are tied to this one. As many as fit stay as many, whatever leaves.
//
// Engines evict a prefix from its end, so as a rule what they have in HBM is
// whole: with a block also all before it. Package index then needs to look at a
// few of a prompt's blocks only. A base follows whether it is so; at the first
// block that comes to HBM without the one before, or leaves it before the ones
// after, it has holes and looks no more, until it is cleared or empty. While it
// has none, the links are right, for a block in HBM keeps its number.
type link uint32

const maxTied = 255

func (l link) before() uint32 { return uint32(l & (1<<numberBits - 1)) }
func (l link) tied() uint32   { return uint32(l >> numberBits) }

// come ties block i, which is about to be inserted in HBM, to the one before
// it: that one's number + 1, or 0 if it is the first.
func (b *base) come(i, before uint32) {
	p := b.at(i)
	if b.holes || p.on(kv.HBM) {
		return
	}
	if before != 0 {
		to := b.at(before - 1)
		if !to.on(kv.HBM) {
			b.holes = true
			return
		}
		if to.link().tied() < maxTied {
			to.setLink(to.link() + 1<<numberBits)
		}
	}
	p.setLink(link(before) | p.link()&^(1<<numberBits-1))
}

// leave unties block i, which leaves HBM.
func (b *base) leave(i uint32) {
	if b.holes {
		return
	}
	p := b.at(i)
	if p.link().tied() > 0 {
		b.holes = true
		return
	}
	if before := p.link().before(); before != 0 {
		to := b.at(before - 1)
		if to.link().tied() < maxTied {
			to.setLink(to.link() - 1<<numberBits)
		}
	}
	p.setLink(0)
}

// untie forgets all links: nothing will be in HBM, and so there are no holes.
func (b *base) untie() {
	for i := range b.unused {
		b.at(i).setLink(0)
	}
	b.holes = false
}
