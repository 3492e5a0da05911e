package policy

import (
	"math/bits"

	"github.com/rhizome-router/rhizome/kv"
)

// activeBlocks counts how many requests in flight hold a block on a worker. It
// is an open-addressing table, at most 3/4 full: a prompt of hundreds of blocks
// is counted in and out for each request.
type activeBlocks struct {
	cells []activeCell // a power of two
	used  int
}

type activeCell struct {
	key    kv.Key
	worker int32
	n      int32 // 0: an empty cell
}

func newActiveBlocks() *activeBlocks { return &activeBlocks{cells: make([]activeCell, 1024)} }

func (a *activeBlocks) home(k kv.Key, worker int32) int {
	h := (uint64(k) ^ uint64(k)>>32 ^ uint64(worker)*0xd6e8feb86659fd93) * 0x9e3779b97f4a7c15
	return int(h >> (64 - bits.Len(uint(len(a.cells)-1))))
}

// cell returns where a block is, or where it would go.
func (a *activeBlocks) cell(k kv.Key, worker int32) int {
	i := a.home(k, worker)
	for c := &a.cells[i]; c.n != 0 && (c.key != k || c.worker != worker); c = &a.cells[i] {
		i = (i + 1) & (len(a.cells) - 1)
	}
	return i
}

// held reports whether a request in flight holds a block.
func (a *activeBlocks) held(k kv.Key, worker int) bool {
	return a.cells[a.cell(k, int32(worker))].n > 0
}

// add counts one more holder and reports whether it is the first.
func (a *activeBlocks) add(k kv.Key, worker int) bool {
	if 4*(a.used+1) > 3*len(a.cells) {
		a.grow()
	}
	c := &a.cells[a.cell(k, int32(worker))]
	if c.n++; c.n > 1 {
		return false
	}
	c.key, c.worker = k, int32(worker)
	a.used++
	return true
}

// remove counts one holder less of a block that has some, and reports whether
// it was the last.
func (a *activeBlocks) remove(k kv.Key, worker int) bool {
	i := a.cell(k, int32(worker))
	if a.cells[i].n--; a.cells[i].n > 0 {
		return false
	}
	a.used--
	// Whatever could not be found across the gap moves into it.
	mask := len(a.cells) - 1
	for j := (i + 1) & mask; a.cells[j].n != 0; j = (j + 1) & mask {
		if home := a.home(a.cells[j].key, a.cells[j].worker); (j-home)&mask >= (j-i)&mask {
			a.cells[i], a.cells[j].n = a.cells[j], 0
			i = j
		}
	}
	return true
}

func (a *activeBlocks) grow() {
	old := a.cells
	a.cells = make([]activeCell, 2*len(old))
	for _, c := range old {
		if c.n > 0 {
			a.cells[a.cell(c.key, c.worker)] = c
		}
	}
}
