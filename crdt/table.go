package crdt

import (
	"encoding/binary"
	"iter"
	"math/bits"
)

// table finds entry numbers by a hash of something in the entry. It is an
// array of buckets of one cache line each: 15 cells and the number of entries
// that would belong there but went on to a later bucket because it was full.
// So nearly every search looks at one line, wherever it ends, and taking an
// entry out moves nothing. Different entries may have equal hashes.
type table struct {
	buckets []bucket
	used    int
}

// bucket is 15 cells, each a byte of the hash, 0 if the cell is empty, and a
// number of 24 bits.
type bucket struct {
	tags    [bucketCells + 1]uint8 // the last is no cell
	numbers [3 * bucketCells]uint8
	passed  [3]uint8 // 24 bits
}

const (
	bucketCells = 15
	bucketBytes = 64

	// meanCells is how many cells of ten buckets are used, at most: 0.87 of all.
	meanCells = 130

	numberBits = 24
	maxEntries = 1<<numberBits - 2
)

// place spreads the bits of an engine hash or a key.
func place(v uint64, group uint16) uint64 {
	v = (v ^ uint64(group)<<48) * 0x9e3779b97f4a7c15
	return (v ^ v>>32) * 0xd6e8feb86659fd93
}

func (t *table) home(h uint64) int {
	hi, _ := bits.Mul64(h, uint64(len(t.buckets)))
	return int(hi)
}

func (t *table) next(p int) int {
	if p++; p < len(t.buckets) {
		return p
	}
	return 0
}

// tag is the byte that a cell keeps of hash h.
func tag(h uint64) uint8 { return uint8(max(1, h&0xff)) }

// having returns the cells whose tag is v, a bit each, and perhaps some more
// behind the first: who asks for a tag looks at the entry anyway, and of the
// empty ones only the first is taken. (The trick is in Hacker's Delight, 6-1;
// the products gather the top bits of the bytes.)
func (b *bucket) having(v uint8) uint32 {
	const low, gather = 0x0101010101010101, 0x0102040810204080
	x := binary.LittleEndian.Uint64(b.tags[:8]) ^ uint64(v)*low
	y := binary.LittleEndian.Uint64(b.tags[8:]) ^ uint64(v)*low
	x, y = (x-low)&^x>>7&low, (y-low)&^y>>7&low
	return uint32(x*gather>>56|y*gather>>56<<8) & (1<<bucketCells - 1)
}

func (b *bucket) number(cell int) uint32 {
	n := b.numbers[3*cell : 3*cell+3 : 3*cell+3]
	return uint32(n[0]) | uint32(n[1])<<8 | uint32(n[2])<<16
}

func (b *bucket) setNumber(cell int, i uint32) {
	n := b.numbers[3*cell : 3*cell+3 : 3*cell+3]
	n[0], n[1], n[2] = uint8(i), uint8(i>>8), uint8(i>>16)
}

func (b *bucket) some() bool { return b.passed != [3]uint8{} }

func (b *bucket) pass(d int) {
	n := int(b.passed[0]) | int(b.passed[1])<<8 | int(b.passed[2])<<16
	n += d
	b.passed = [3]uint8{uint8(n), uint8(n >> 8), uint8(n >> 16)}
}

func (t *table) full() bool { return 10*t.used >= meanCells*len(t.buckets) }

// resize empties the table and makes it fit n entries; the caller adds them
// anew.
func (t *table) resize(n int) {
	*t = table{buckets: make([]bucket, 10*n/meanCells+1)}
}

func (t *table) add(i uint32, h uint64) {
	for p := t.home(h); ; p = t.next(p) {
		b := &t.buckets[p]
		if empty := b.having(0); empty != 0 {
			c := bits.TrailingZeros32(empty)
			b.tags[c] = tag(h)
			b.setNumber(c, i)
			t.used++
			return
		}
		b.pass(1)
	}
}

// peek looks into the bucket that hash h belongs in, to fetch it.
func (t *table) peek(h uint64) uint32 {
	if len(t.buckets) == 0 {
		return 0
	}
	return uint32(t.buckets[t.home(h)].tags[0])
}

// all goes through the entries that may have hash h.
func (t *table) all(h uint64) iter.Seq[uint32] {
	return func(yield func(uint32) bool) {
		if len(t.buckets) == 0 {
			return
		}
		p := t.home(h)
		for range t.buckets { // entries may have gone on from all of them
			b := &t.buckets[p]
			for maybe := b.having(tag(h)); maybe != 0; maybe &= maybe - 1 {
				if c := bits.TrailingZeros32(maybe); b.tags[c] == tag(h) && !yield(b.number(c)) {
					return
				}
			}
			if !b.some() {
				return
			}
			p = t.next(p)
		}
	}
}

// remove takes out entry i, which is there under hash h.
func (t *table) remove(i uint32, h uint64) {
	for p := t.home(h); ; p = t.next(p) {
		b := &t.buckets[p]
		for maybe := b.having(tag(h)); maybe != 0; maybe &= maybe - 1 {
			if c := bits.TrailingZeros32(maybe); b.tags[c] == tag(h) && b.number(c) == i {
				b.tags[c] = 0
				b.setNumber(c, 0)
				t.used--
				return
			}
		}
		b.pass(-1)
	}
}
