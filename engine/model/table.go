package model

import (
	"math/bits"

	"github.com/rhizome-router/rhizome/kv"
)

// table maps block hashes to small indices: open addressing with linear
// probing, one cache line a probe, no pointers. It is several times faster
// than a Go map here and never iterated, so it cannot leak an order.
type table struct {
	entries []entry // power of two
	shift   uint    // 64 − log2(len(entries))
	n       int
}

type entry struct {
	hash kv.EngineHash
	ref  int32 // index + 1; 0 marks an empty entry
}

func newTable(capacity int) table {
	size := max(16, 1<<bits.Len(uint(2*capacity-1)))
	return table{entries: make([]entry, size), shift: uint(64 - bits.TrailingZeros(uint(size)))}
}

// home spreads the hash by Fibonacci hashing: callers may name blocks by small
// numbers.
func (t *table) home(h kv.EngineHash) int { return int(uint64(h) * 0x9E3779B97F4A7C15 >> t.shift) }

// get returns the index of h, or −1.
func (t *table) get(h kv.EngineHash) int32 {
	mask := len(t.entries) - 1
	for i := t.home(h); ; i = (i + 1) & mask {
		e := &t.entries[i]
		if e.ref == 0 {
			return -1
		}
		if e.hash == h {
			return e.ref - 1
		}
	}
}

// set inserts h or replaces its index.
func (t *table) set(h kv.EngineHash, index int32) {
	if 2*(t.n+1) > len(t.entries) {
		t.grow()
	}
	mask := len(t.entries) - 1
	for i := t.home(h); ; i = (i + 1) & mask {
		e := &t.entries[i]
		if e.ref == 0 {
			*e = entry{h, index + 1}
			t.n++
			return
		}
		if e.hash == h {
			e.ref = index + 1
			return
		}
	}
}

// remove deletes h, closing the hole it leaves in its probe run.
func (t *table) remove(h kv.EngineHash) {
	mask := len(t.entries) - 1
	i := t.home(h)
	for ; t.entries[i].hash != h || t.entries[i].ref == 0; i = (i + 1) & mask {
		if t.entries[i].ref == 0 {
			return
		}
	}
	t.n--
	for j := i; ; {
		j = (j + 1) & mask
		e := t.entries[j]
		if e.ref == 0 {
			break
		}
		// e may fill the hole unless its home lies cyclically in (i, j].
		if home := t.home(e.hash); (j-home)&mask >= (j-i)&mask {
			t.entries[i] = e
			i = j
		}
	}
	t.entries[i] = entry{}
}

func (t *table) grow() {
	old := t.entries
	*t = newTable(len(old))
	for _, e := range old {
		if e.ref != 0 {
			t.set(e.hash, e.ref-1)
		}
	}
}
