package crdt

import (
	"encoding/binary"

	"github.com/rhizome-router/rhizome/kv"
)

// packed is an entry as its page holds it: 8 bytes of hash, 8 of val, 4 of
// link, and 2 with
//
//	bit 0–4    the tiers with copies
//	bit 5, 6   the state
//	bit 7–9    copies in HBM - 1
//	bit 10–14  the group
//	bit 15     copies and group don't fit and are in base.details
//
// Where copies fit there is one on each tier but HBM.
type packed [packedBytes]byte

const (
	packedBytes = 22
	pageEntries = 372 // 8 KiB but for a few bytes

	stateShift  = kv.NumTiers
	copiesShift = stateShift + 2
	groupShift  = copiesShift + 3
	fitCopies   = 1 << 3
	fitGroups   = 1 << 5
	tierBits    = 1<<kv.NumTiers - 1
	detailed    = 1 << 15
)

// detail is what of an entry didn't fit.
type detail struct {
	copies copies
	group  uint16
}

const detailBytes = 48 // in its map, about

func (p *packed) hash() kv.EngineHash { return kv.EngineHash(binary.LittleEndian.Uint64(p[:8])) }
func (p *packed) val() uint64         { return binary.LittleEndian.Uint64(p[8:16]) }
func (p *packed) link() link          { return link(binary.LittleEndian.Uint32(p[16:20])) }
func (p *packed) bits() uint16        { return binary.LittleEndian.Uint16(p[20:]) }
func (p *packed) setLink(l link)      { binary.LittleEndian.PutUint32(p[16:20], uint32(l)) }
func (p *packed) setVal(v uint64)     { binary.LittleEndian.PutUint64(p[8:16], v) }
func (p *packed) state() entryState   { return entryState(p.bits() >> stateShift & 3) }
func (p *packed) on(t kv.Tier) bool   { return p.bits()&(1<<t) != 0 }

// alone reports whether the entry has one copy, on t, and a key of its own.
func (p *packed) alone(t kv.Tier) bool {
	const all = tierBits | 3<<stateShift | (fitCopies-1)<<copiesShift | detailed
	return p.bits()&all == 1<<t|uint16(keyed)<<stateShift
}

// clear takes away the copy of an entry that is alone on t.
func (p *packed) clear(t kv.Tier) { binary.LittleEndian.PutUint16(p[20:], p.bits()&^(1<<t)) }

func (p *packed) some() bool { return p.bits()&tierBits != 0 }

func (p *packed) setState(s entryState) {
	binary.LittleEndian.PutUint16(p[20:], p.bits()&^(3<<stateShift)|uint16(s)<<stateShift)
}

func (b *base) at(i uint32) *packed { return &b.pages[i/pageEntries][i%pageEntries] }

// group returns the group of entry i, which is at p.
func (b *base) group(i uint32, p *packed) uint16 {
	if bits := p.bits(); bits&detailed == 0 {
		return bits >> groupShift & (fitGroups - 1)
	}
	return b.details[i].group
}

// load returns entry i unpacked.
func (b *base) load(i uint32) entry {
	p := b.at(i)
	bits := p.bits()
	e := entry{hash: p.hash(), val: p.val(), state: p.state()}
	if bits&detailed != 0 {
		d := b.details[i]
		e.copies, e.group = d.copies, d.group
		return e
	}
	e.group = bits >> groupShift & (fitGroups - 1)
	e.copies = onEach(bits) + copies(bits>>copiesShift&(fitCopies-1))<<(8*kv.HBM)
	return e
}

// store packs e as entry i. Its link stays.
func (b *base) store(i uint32, e *entry) {
	p := b.at(i)
	inHBM := e.copies.on(kv.HBM)
	fits := e.group < fitGroups && inHBM <= fitCopies && e.copies.with(kv.HBM, 0)&^eachTier == 0
	bits := uint16(e.state)<<stateShift | e.copies.tiers()
	if p.bits()&detailed != 0 && fits {
		delete(b.details, i)
	}
	switch {
	case !fits:
		if b.details == nil {
			b.details = map[uint32]detail{}
		}
		b.details[i] = detail{e.copies, e.group}
		bits |= detailed
	default:
		bits |= e.group<<groupShift | uint16(max(1, inHBM)-1)<<copiesShift
	}
	binary.LittleEndian.PutUint64(p[:8], uint64(e.hash))
	binary.LittleEndian.PutUint64(p[8:16], e.val)
	binary.LittleEndian.PutUint16(p[20:], bits)
}
