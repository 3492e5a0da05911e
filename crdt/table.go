package crdt

import (
	"iter"
	"math/bits"
)

// table finds entry numbers by a hash of something in the entry. It is an
// array of buckets of one cache line each: 15 cells and the number of entries
// that would belong there but went on to a later bucket because it was full.
// So nearly every search looks at one line, wherever it ends, and taking an
// entry out moves nothing but a cell of its own bucket. A cell is 8 bits of
// the hash << 24 | the number + 1, or 0 if it is empty; those in use come
// first. Different entries may have equal hashes.
type table struct {
	buckets []bucket
	used    int
}

type bucket struct {
	cells  [bucketCells]uint32
	passed uint32
}

const (
	bucketCells = 15
	meanCells   = 12 // at most
	bucketBytes = 64

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

// tag is what a cell of hash h has above its number.
func tag(h uint64) uint32 { return uint32(h) << numberBits }

// number returns the number in a cell that isn't empty. maybe is false if its
// entry can't have hash h.
func number(cell uint32, h uint64) (i uint32, maybe bool) {
	return cell&(1<<numberBits-1) - 1, (cell^tag(h))>>numberBits == 0
}

func (t *table) full() bool { return t.used >= meanCells*len(t.buckets) }

// resize empties the table and makes it fit n entries; the caller adds them
// anew.
func (t *table) resize(n int) {
	*t = table{buckets: make([]bucket, n/meanCells+1)}
}

func (t *table) add(i uint32, h uint64) {
	p := t.home(h)
	for t.buckets[p].cells[bucketCells-1] != 0 {
		t.buckets[p].passed++
		p = t.next(p)
	}
	b := &t.buckets[p]
	for c := range b.cells {
		if b.cells[c] == 0 {
			b.cells[c] = tag(h) | (i + 1)
			break
		}
	}
	t.used++
}

// peek looks into the bucket that hash h belongs in, to fetch it.
func (t *table) peek(h uint64) uint32 {
	if len(t.buckets) == 0 {
		return 0
	}
	return t.buckets[t.home(h)].cells[0]
}

// all goes through the entries that may have hash h.
func (t *table) all(h uint64) iter.Seq[uint32] {
	return func(yield func(uint32) bool) {
		for p := t.home(h); len(t.buckets) > 0; p = t.next(p) {
			b := &t.buckets[p]
			for _, cell := range &b.cells {
				if cell == 0 {
					break
				}
				if i, maybe := number(cell, h); maybe && !yield(i) {
					return
				}
			}
			if b.passed == 0 {
				return
			}
		}
	}
}

// remove takes out entry i, which is there under hash h.
func (t *table) remove(i uint32, h uint64) {
	for p := t.home(h); ; p = t.next(p) {
		b := &t.buckets[p]
		for c := range b.cells {
			if b.cells[c] == tag(h)|(i+1) {
				last := c
				for last+1 < bucketCells && b.cells[last+1] != 0 {
					last++
				}
				b.cells[c] = b.cells[last]
				b.cells[last] = 0
				t.used--
				return
			}
		}
		b.passed--
	}
}
