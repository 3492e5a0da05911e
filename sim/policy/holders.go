package policy

import (
	"math/bits"
	"slices"

	"github.com/rhizome-router/rhizome/kv"
)

// holders is llm-d's index: for each block the entries added last, newest
// first, at most 10 of them. An entry names a worker and a tier, or that it is
// speculative. It is an open-addressing table without pointers, 32 bytes a
// block, at most 3/4 full.
type holders struct {
	cells   []holderCell // a power of two
	keys    int
	mult    uint64
	started []bool // by worker: a batch came
}

const holdersPerBlock = 10

type holderCell struct {
	key     kv.Key
	n       uint32 // 0: an empty cell
	entries [holdersPerBlock]entry
}

// entry is worker << 3 | tier, with a tier of its own for speculation.
type entry uint16

const (
	speculativeTier = kv.Tier(7)
	// maxHolderWorkers is how many workers have entries; further ones have none.
	maxHolderWorkers = 1 << 13
)

func (e entry) worker() int   { return int(e >> 3) }
func (e entry) tier() kv.Tier { return kv.Tier(e & 7) }

func speculativeEntry(worker int) entry     { return entry(worker<<3) | entry(speculativeTier) }
func tierEntry(worker int, t kv.Tier) entry { return entry(worker<<3) | entry(t) }
func (h *holders) home(k kv.Key) int        { return int(h.hash(k) >> (64 - bits.Len(uint(len(h.cells)-1)))) }
func (h *holders) hash(k kv.Key) uint64     { return (uint64(k) ^ uint64(k)>>32) * h.mult }
func (h *holders) next(i int) int           { return (i + 1) & (len(h.cells) - 1) }

func newHolders(cfg Config) *holders {
	return &holders{cells: make([]holderCell, 1024), mult: cfg.Seed<<1 ^ 0x9e3779b97f4a7c15, started: make([]bool, cfg.Workers)}
}

// cell returns where a block is, or where it would go.
func (h *holders) cell(k kv.Key) int {
	i := h.home(k)
	for h.cells[i].n != 0 && h.cells[i].key != k {
		i = h.next(i)
	}
	return i
}

// find returns a block's entries, valid until the next change.
func (h *holders) find(k kv.Key) []entry {
	c := &h.cells[h.cell(k)]
	return c.entries[:c.n]
}

// add puts an entry in front; the oldest one too many falls off. One that is
// there already moves to the front.
func (h *holders) add(k kv.Key, e entry) {
	i := h.cell(k)
	if h.cells[i].n == 0 {
		if h.keys++; 4*h.keys > 3*len(h.cells) {
			h.grow()
			i = h.cell(k)
		}
		h.cells[i].key = k
	}
	c := &h.cells[i]
	at := slices.Index(c.entries[:c.n], e)
	if at < 0 && c.n < holdersPerBlock {
		c.n++
	}
	if at < 0 {
		at = int(c.n) - 1
	}
	copy(c.entries[1:at+1], c.entries[:at])
	c.entries[0] = e
}

// remove takes an entry away.
func (h *holders) remove(k kv.Key, e entry) {
	i := h.cell(k)
	c := &h.cells[i]
	at := slices.Index(c.entries[:c.n], e)
	if at < 0 {
		return
	}
	copy(c.entries[at:], c.entries[at+1:c.n])
	if c.n--; c.n == 0 {
		h.keys--
		h.close(i)
	}
}

// close makes up for the cell that became empty: each block behind it that
// could not be found across the gap moves into it, and leaves a gap itself.
func (h *holders) close(i int) {
	mask := len(h.cells) - 1
	for j := h.next(i); h.cells[j].n != 0; j = h.next(j) {
		if home := h.home(h.cells[j].key); (j-home)&mask >= (j-i)&mask {
			h.cells[i], h.cells[j].n = h.cells[j], 0
			i = j
		}
	}
}

func (h *holders) grow() {
	old := h.cells
	h.cells = make([]holderCell, 2*len(old))
	for i := range old {
		if old[i].n > 0 {
			h.cells[h.cell(old[i].key)] = old[i]
		}
	}
}

// apply takes in what a worker's engine did. Number 0 begins a new life.
func (h *holders) apply(worker int, b *Batch) {
	if worker >= maxHolderWorkers {
		return
	}
	if b.Seq == 0 && h.started[worker] {
		h.forget(worker)
	}
	h.started[worker] = true
	for _, c := range b.Changes {
		if e := tierEntry(worker, c.Tier); c.Present {
			h.add(c.Key, e)
		} else {
			h.remove(c.Key, e)
		}
	}
}

// forget takes all of a worker's entries away.
func (h *holders) forget(worker int) {
	h.started[worker] = false
	old := h.cells
	h.cells, h.keys = make([]holderCell, len(old)), 0
	for i := range old {
		kept := holderCell{key: old[i].key}
		for _, e := range old[i].entries[:old[i].n] {
			if e.worker() != worker {
				kept.entries[kept.n] = e
				kept.n++
			}
		}
		if kept.n > 0 {
			h.cells[h.cell(kept.key)] = kept
			h.keys++
		}
	}
}
