package crdt

import "math/bits"

// table finds entry numbers by a hash of something in the entry: open
// addressing with linear probing, 4 B a cell. A cell is 8 bits of the hash <<
// 24 | the number + 1, or 0 if it is empty. Different entries may have equal
// hashes.
type table struct {
	cells []uint32 // at most 3/4 full
	used  int
}

const (
	numberBits = 24
	maxEntries = 1<<numberBits - 2
)

// place spreads the bits of an engine hash or a key.
func place(v uint64, group uint16) uint64 {
	v = (v ^ uint64(group)<<48) * 0x9e3779b97f4a7c15
	return (v ^ v>>32) * 0xd6e8feb86659fd93
}

func (t *table) home(h uint64) int {
	hi, _ := bits.Mul64(h, uint64(len(t.cells)))
	return int(hi)
}

func (t *table) next(p int) int {
	if p++; p < len(t.cells) {
		return p
	}
	return 0
}

// get returns the number in a cell that isn't empty. maybe is false if its
// entry can't have hash h.
func (t *table) get(p int, h uint64) (i uint32, maybe bool) {
	c := t.cells[p]
	return c&(1<<numberBits-1) - 1, c>>numberBits == uint32(h)&0xff
}

func (t *table) full() bool { return 4*(t.used+1) > 3*len(t.cells) }

// grow empties the table and makes it larger; the caller adds the entries
// anew.
func (t *table) grow() {
	*t = table{cells: make([]uint32, len(t.cells)+len(t.cells)/2+16)}
}

func (t *table) add(i uint32, h uint64) {
	p := t.home(h)
	for t.cells[p] != 0 {
		p = t.next(p)
	}
	t.cells[p] = uint32(h)&0xff<<numberBits | (i + 1)
	t.used++
}

// remove takes out entry i, which is there under hash h, and closes the hole.
func (t *table) remove(i uint32, h uint64, hashOf func(uint32) uint64) {
	hole := t.home(h)
	for t.cells[hole] != uint32(h)&0xff<<numberBits|(i+1) {
		hole = t.next(hole)
	}
	for p := t.next(hole); t.cells[p] != 0; p = t.next(p) {
		// The cell at p may move to the hole unless its home lies in
		// (hole, p], cyclically.
		j, _ := t.get(p, 0)
		home := t.home(hashOf(j))
		if hole <= p && (home <= hole || home > p) || hole > p && home <= hole && home > p {
			t.cells[hole] = t.cells[p]
			hole = p
		}
	}
	t.cells[hole] = 0
	t.used--
}
