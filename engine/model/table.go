package model

import (
	"math/bits"

	"github.com/rhizome-router/rhizome/kv"
)

// Table maps block hashes to small indices: open addressing with linear
// probing, one cache line a probe, no pointers. It is several times faster than
// a Go map here and never iterated, so it cannot leak an order.
type Table struct {
	entries []entry // power of two
	shift   uint    // 64 − log2(len(entries))
	n       int
}

type entry struct {
	hash kv.EngineHash
	ref  int32 // index + 1; 0 marks an empty entry
}

// NewTable returns an empty table with room for capacity entries; it grows by
// itself.
func NewTable(capacity int) Table {
	size := 1 << bits.Len(uint(2*max(capacity, 8)-1))
	return Table{entries: make([]entry, size), shift: uint(64 - bits.TrailingZeros(uint(size)))}
}

// home spreads the hash by Fibonacci hashing: callers may name blocks by small
// numbers.
func (t *Table) home(h kv.EngineHash) int { return int(uint64(h) * 0x9E3779B97F4A7C15 >> t.shift) }

// Get returns the index of h, or −1.
func (t *Table) Get(h kv.EngineHash) int32 {
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

// Set inserts h or replaces its index, which is in 0…2³¹−2.
func (t *Table) Set(h kv.EngineHash, index int32) {
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

// Add inserts h with an index unless it is there; it returns the index that is
// there, or −1.
func (t *Table) Add(h kv.EngineHash, index int32) int32 {
	if 2*(t.n+1) > len(t.entries) {
		t.grow()
	}
	mask := len(t.entries) - 1
	for i := t.home(h); ; i = (i + 1) & mask {
		e := &t.entries[i]
		if e.ref == 0 {
			*e = entry{h, index + 1}
			t.n++
			return -1
		}
		if e.hash == h {
			return e.ref - 1
		}
	}
}

// Remove deletes h, closing the hole it leaves in its probe run.
func (t *Table) Remove(h kv.EngineHash) {
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

func (t *Table) grow() {
	old := t.entries
	*t = NewTable(len(old))
	for _, e := range old {
		if e.ref != 0 {
			t.Set(e.hash, e.ref-1)
		}
	}
}
