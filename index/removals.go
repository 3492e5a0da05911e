package index

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/rhizome-router/rhizome/kv"
)

// Mark is a moment in the order of all removals: see [Index.Mark].
type Mark uint64

// Removed is what can be said of removals since a Mark.
type Removed uint8

const (
	// NoneRemoved: none of the blocks left a tier since.
	NoneRemoved Removed = iota
	// SomeRemoved: one of them did.
	SomeRemoved
	// RemovalsForgotten: so many blocks left since that it can't be told.
	RemovalsForgotten
)

// recentRemovals is how many removals of a slot are remembered: some seconds
// of a busy worker's evictions, in 32 KiB once it evicts.
const recentRemovals = 2048

// removals witness which blocks left a slot of late, so that a prediction that
// fell short can be told from one that was wrong when it was made. All appliers
// share its lock, for a moment a call of Apply.
type removals struct {
	last   atomic.Uint64 // number of the last removal of any slot
	mu     sync.Mutex
	bySlot map[Slot]*recent
}

// recent is a ring of one slot's last removals.
type recent struct {
	ring []removal
	next int    // where the next one goes, once the ring is full
	lost uint64 // number of the last one that was overwritten
}

type removal struct {
	no  uint64
	key kv.Key
}

// Mark returns a mark of this moment.
func (x *Index) Mark() Mark { return Mark(x.removals.last.Load()) }

// RemovedSince says whether one of the blocks keys left a tier of slot s since
// a mark. A slot that is not open has lost all it had.
func (x *Index) RemovedSince(m Mark, s Slot, keys []kv.Key) Removed {
	if !x.slots.Load().state(s).open() {
		return SomeRemoved
	}
	w := &x.removals
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.bySlot[s]
	if r == nil {
		return NoneRemoved
	}
	of := make(map[kv.Key]struct{}, len(keys))
	for _, k := range keys {
		of[k] = struct{}{}
	}
	if slices.ContainsFunc(r.ring, func(e removal) bool {
		_, ok := of[e.key]
		return ok && e.no > uint64(m)
	}) {
		return SomeRemoved
	}
	if r.lost > uint64(m) {
		return RemovalsForgotten
	}
	return NoneRemoved
}

// note records the removals among changes of slot s.
func (w *removals) note(s Slot, changes []Change) {
	n := uint64(0)
	for i := range changes {
		if !changes[i].Present {
			n++
		}
	}
	if n == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.bySlot[s]
	if r == nil {
		r = new(recent)
		if w.bySlot == nil {
			w.bySlot = make(map[Slot]*recent)
		}
		w.bySlot[s] = r
	}
	no := w.last.Add(n) - n // at once: one for each would wait for what was written before it
	for i := range changes {
		if c := &changes[i]; !c.Present {
			no++
			r.add(removal{no, c.Key})
		}
	}
}

func (r *recent) add(e removal) {
	if len(r.ring) < recentRemovals {
		r.ring = append(r.ring, e)
		return
	}
	r.lost = r.ring[r.next].no
	r.ring[r.next] = e
	if r.next++; r.next == recentRemovals {
		r.next = 0
	}
}

// forget drops what is remembered of a slot.
func (w *removals) forget(s Slot) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.bySlot, s)
}
