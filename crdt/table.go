package crdt

import (
	"encoding/binary"
	"iter"
	"math/bits"
	"unsafe"

	"github.com/rhizome-router/rhizome/index/prefetch"
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

// bucket is 15 cells. Its bytes are
//
//	0–14   of each cell a byte of the hash, 0 if the cell is empty
//	15     nothing
//	16–60  of each cell a number, 24 bits
//	61–63  how many passed, 24 bits
type bucket [bucketBytes]uint8

const (
	bucketCells = 15
	bucketBytes = 64
	numbersAt   = 16
	passedAt    = 61

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

// cells is a set of a bucket's cells: bit 8·c of it is cell c, up to the seventh,
// and 8·c+1 cell 8+c.
type cells uint64

const noCell cells = 1 << 57 // of the byte behind the last tag

// first returns one of the cells, and the others.
func (cs cells) first() (cell int, rest cells) {
	i := bits.TrailingZeros64(uint64(cs))
	return i>>3 | i&1<<3, cs & (cs - 1)
}

// having returns the cells whose tag is v. (The test for bytes that are 0 is in
// Hacker's Delight, 6-1.)
func (b *bucket) having(v uint8) cells {
	const low, most = 0x0101010101010101, 0x7f7f7f7f7f7f7f7f
	x := binary.LittleEndian.Uint64(b[:8]) ^ uint64(v)*low
	y := binary.LittleEndian.Uint64(b[8:]) ^ uint64(v)*low
	x = ^(x&most + most | x | most)
	y = ^(y&most + most | y | most)
	return cells(x>>7|y>>6) &^ noCell
}

func (b *bucket) number(cell int) uint32 {
	return binary.LittleEndian.Uint32(b[numbersAt+3*cell:]) & (1<<numberBits - 1)
}

func (b *bucket) set(cell int, tag uint8, i uint32) {
	n := b[numbersAt+3*cell : numbersAt+3*cell+3]
	n[0], n[1], n[2] = uint8(i), uint8(i>>8), uint8(i>>16)
	b[cell] = tag
}

func (b *bucket) passed() uint32 { return binary.LittleEndian.Uint32(b[passedAt-1:]) >> 8 }

func (b *bucket) pass(d int) {
	n := int(b.passed()) + d
	b[passedAt], b[passedAt+1], b[passedAt+2] = uint8(n), uint8(n>>8), uint8(n>>16)
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
			c, _ := empty.first()
			b.set(c, tag(h), i)
			t.used++
			return
		}
		b.pass(1)
	}
}

// line returns the address of the bucket that hash h belongs in, to be fetched; 0 if
// there is none.
func (t *table) line(h uint64) uintptr {
	if len(t.buckets) == 0 {
		return 0
	}
	return uintptr(unsafe.Pointer(&t.buckets[t.home(h)]))
}

// fetch has that bucket fetched.
func (t *table) fetch(h uint64) {
	p := t.line(h)
	prefetch.Lines(p, p)
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
			for c, maybe := 0, b.having(tag(h)); maybe != 0; {
				if c, maybe = maybe.first(); !yield(b.number(c)) {
					return
				}
			}
			if b.passed() == 0 {
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
		for c, maybe := 0, b.having(tag(h)); maybe != 0; {
			if c, maybe = maybe.first(); b.number(c) == i {
				b.set(c, 0, 0)
				t.used--
				return
			}
		}
		b.pass(-1)
	}
}
