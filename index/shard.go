package index

import (
	"math/bits"
	"slices"
	"sync"
)

const (
	shardBits = 10
	numShards = 1 << shardBits
)

// shard is one part of the table: open addressing with linear probing, cells
// in the order of their keys' hashes, so that growing is one pass over them.
// Its methods need mu held.
type shard struct {
	mu      sync.RWMutex
	mult    uint64
	cells   []cell // at most 3/4 full
	keys    int
	holders int
	pools   []pool // by class
	warmed  holder // means nothing; so that what warms isn't optimised away
}

// cell is one block and its holders, sorted by slot. One or two lie in the
// cell itself. More lie in a run of a pool; then h[0] is their number <<
// markBits (its low bits, unlike a holder's, are all 0) and h[1] says which
// run. h[0] == 0 marks an empty cell.
type cell struct {
	key uint64
	h   [2]holder
}

const cellBytes = 16

func (c *cell) pooled() bool { return c.h[0] != 0 && c.h[0]&markMask == 0 }

// hash places a key: the top shardBits say the shard, the rest the cell.
func hash(key, mult uint64) uint64 { return (key ^ key>>32) * mult }

func (sh *shard) home(key uint64) int {
	hi, _ := bits.Mul64(hash(key, sh.mult)<<shardBits, uint64(len(sh.cells)))
	return int(hi)
}

func (sh *shard) next(i int) int {
	if i++; i < len(sh.cells) {
		return i
	}
	return 0
}

// find returns the cell of a key, or, if there are cells at all, the empty
// cell where it would go.
func (sh *shard) find(key uint64) (i int, found bool) {
	if len(sh.cells) == 0 {
		return 0, false
	}
	for i = sh.home(key); sh.cells[i].h[0] != 0; i = sh.next(i) {
		if sh.cells[i].key == key {
			return i, true
		}
	}
	return i, false
}

// view returns the holders of c: the memory itself, not a copy.
func (sh *shard) view(c *cell) []holder {
	switch {
	case c.h[0] == 0:
		return nil
	case c.pooled():
		return sh.run(c.h[1])[:c.h[0]>>markBits]
	case c.h[1] == 0:
		return c.h[:1]
	default:
		return c.h[:]
	}
}

// search returns where slot s is in v, or where it would go.
func search(v []holder, s Slot) (int, bool) {
	lo, hi := 0, len(v)
	for lo < hi {
		if mid := int(uint(lo+hi) / 2); v[mid].slot() < s {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo, lo < len(v) && v[lo].slot() == s
}

// update sets and clears mark bits of holder s of a key, making or removing
// holder and cell as needed, and returns the marks it had. ok is false if the
// budget refused the memory; then nothing changed.
func (sh *shard) update(key uint64, s Slot, set, clear holder, b *budget) (prior holder, ok bool) {
	i, found := sh.find(key)
	var v []holder
	if found {
		v = sh.view(&sh.cells[i])
	}
	j, held := search(v, s)
	if held {
		prior = v[j] & markMask
	}
	marks := (prior | set) &^ clear
	if marks&onHBM != 0 {
		marks &^= promised
	}
	h := holder(s)<<markBits | marks
	switch {
	case held && marks != 0:
		v[j] = h
		return prior, true
	case held:
		sh.remove(i, j, b)
		sh.shrink(b)
		return prior, true
	case marks == 0:
		return 0, true
	case found:
		ok = sh.insert(&sh.cells[i], j, h, b)
	default:
		ok = sh.add(i, key, h, b)
	}
	if ok {
		sh.holders++
	} else {
		b.refused.Add(1)
	}
	return 0, ok
}

// add makes a cell for a key that has none; i is where find wants it.
func (sh *shard) add(i int, key uint64, h holder, b *budget) bool {
	if 4*(sh.keys+1) > 3*len(sh.cells) {
		if !sh.resize(len(sh.cells)+len(sh.cells)/4+8, b) {
			return false
		}
		i, _ = sh.find(key)
	}
	sh.cells[i] = cell{key: key, h: [2]holder{h}}
	sh.keys++
	return true
}

// insert makes h the j-th holder of c.
func (sh *shard) insert(c *cell, j int, h holder, b *budget) bool {
	v := sh.view(c)
	n := len(v)
	if n == 1 {
		c.h[1-j], c.h[j] = c.h[0], h
		return true
	}
	if !c.pooled() || n == len(sh.run(c.h[1])) {
		ref, ok := sh.alloc(n+1, b)
		if !ok {
			return false
		}
		copy(sh.run(ref), sh.view(c)) // alloc may have moved the pool
		if c.pooled() {
			sh.free(c.h[1])
		}
		c.h[1] = ref
	}
	run := sh.run(c.h[1])
	copy(run[j+1:n+1], run[j:n])
	run[j] = h
	c.h[0] = holder(n+1) << markBits
	return true
}

// remove drops the j-th holder of cell i, and the cell with its last one.
func (sh *shard) remove(i, j int, b *budget) {
	c := &sh.cells[i]
	v := sh.view(c)
	n := len(v) - 1
	sh.holders--
	switch {
	case n == 0:
		sh.vacate(i)
		return
	case n == 1:
		c.h = [2]holder{v[1-j]}
		return
	}
	copy(v[j:], v[j+1:])
	old := c.h[1]
	c.h[0] = holder(n) << markBits
	if n == 2 {
		c.h = [2]holder{v[0], v[1]}
		sh.free(old)
	} else if size := len(sh.run(old)); n <= size/4 {
		if ref, ok := sh.alloc(n, b); ok {
			copy(sh.run(ref), sh.run(old)[:n])
			c.h[1] = ref
			sh.free(old)
		}
	}
}

// vacate empties cell i and closes the hole in its probe sequence.
func (sh *shard) vacate(i int) {
	sh.keys--
	for j := sh.next(i); sh.cells[j].h[0] != 0; j = sh.next(j) {
		// The cell at j may move to i unless its home lies in (i, j], cyclically.
		if home := sh.home(sh.cells[j].key); i <= j && (home <= i || home > j) || i > j && home <= i && home > j {
			sh.cells[i] = sh.cells[j]
			i = j
		}
	}
	sh.cells[i] = cell{}
}

// shrink gives memory back once most cells are empty.
func (sh *shard) shrink(b *budget) {
	if n := len(sh.cells); n > 64 && sh.keys < n/4 {
		sh.resize(2*sh.keys+8, b)
	}
}

func (sh *shard) resize(n int, b *budget) bool {
	if !b.charge(cellBytes * int64(n-len(sh.cells))) {
		return false
	}
	old := sh.cells
	sh.cells = make([]cell, n)
	for _, c := range old {
		if c.h[0] != 0 {
			i, _ := sh.find(c.key)
			sh.cells[i] = c
		}
	}
	return true
}

// sweep removes the holders whose slot isn't open. Cells that close a hole
// move towards i or come from cells already seen, so none is missed.
func (sh *shard) sweep(slots *slotTable, b *budget) {
	for i := 0; i < len(sh.cells); {
		v := sh.view(&sh.cells[i])
		j := slices.IndexFunc(v, func(h holder) bool { return !slots.state(h.slot()).open() })
		if j < 0 {
			i++
		} else {
			sh.remove(i, j, b)
		}
	}
	sh.shrink(b)
}
