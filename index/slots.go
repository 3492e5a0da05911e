package index

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/rhizome-router/rhizome/kv"
)

// slotTable is what is known of all slots at one moment. It never changes.
type slotTable struct {
	states []slotState
	groups map[Slot][]Group // of the slots whose state says windowed
}

type slotState uint8

const (
	slotFree slotState = iota
	slotDraining
	slotOpen // + TierRule

	windowed slotState = 1 << 7 // of an open slot: it has groups
	holed    slotState = 1 << 6 // of an open slot: a change didn't vouch that its HBM is whole
)

func (s slotState) open() bool         { return s >= slotOpen }
func (s slotState) lower() kv.TierMask { return TierRule(s&^(windowed|holed) - slotOpen).lower() }

func (t *slotTable) state(s Slot) slotState {
	if int(s) >= len(t.states) {
		return slotFree
	}
	return t.states[s]
}

// with returns a copy in which slot s has the given state and groups.
func (t *slotTable) with(s Slot, state slotState, groups []Group) *slotTable {
	c := &slotTable{states: slices.Clone(t.states), groups: t.groups}
	if int(s) == len(c.states) {
		c.states = append(c.states, slotFree)
	}
	if len(groups) > 0 || t.state(s)&windowed != 0 {
		c.groups = maps.Clone(t.groups)
		if c.groups == nil {
			c.groups = map[Slot][]Group{}
		}
		delete(c.groups, s)
	}
	if len(groups) > 0 {
		state |= windowed
		c.groups[s] = groups
	}
	c.states[s] = state
	return c
}

// hole notes that nobody vouches for slot s's HBM any more.
func (x *Index) hole(s Slot) {
	x.sweep.mu.Lock()
	defer x.sweep.mu.Unlock()
	if t := x.slots.Load(); t.state(s).open() {
		x.slots.Store(t.with(s, t.state(s)|holed, t.groups[s]))
	}
}

// sweep is what is left to do for dropped slots. Its mutex also guards the
// writing of Index.slots.
type sweep struct {
	mu      sync.Mutex
	shard   int // of the running pass, the one it is in
	bucket  int // of that shard, the next to do
	buckets int // that the shard had when the pass was last in it
	credit  int // cells paid for and not yet looked at
	passing []Slot
	waiting []Slot // dropped after the pass began: they need one of their own
}

// Open reserves a slot for one boot of one target, whose engine continues
// prefixes by rule. It gives the lowest number that is free. It panics when
// 16 Mi slots are taken, which can only be a caller that never drops any.
func (x *Index) Open(rule TierRule) Slot {
	x.sweep.mu.Lock()
	defer x.sweep.mu.Unlock()
	t := x.slots.Load()
	i := slices.Index(t.states, slotFree)
	if i < 0 {
		if i = len(t.states); i == maxSlots {
			panic(fmt.Sprintf("index: all %d slots are taken; Drop the slots of targets that are gone", maxSlots))
		}
	}
	x.slots.Store(t.with(Slot(i), slotOpen+slotState(rule), nil))
	return Slot(i)
}

// Drop gives slot s up: from now on nothing of it matches, its changes are
// ignored, its tickets are void. The memory is freed by later calls of Apply
// and Sweep, and then the number may be given out again. Dropping a slot that
// isn't open does nothing.
func (x *Index) Drop(s Slot) {
	x.sweep.mu.Lock()
	if t := x.slots.Load(); t.state(s).open() {
		x.slots.Store(t.with(s, slotDraining, nil))
		x.sweep.waiting = append(x.sweep.waiting, s)
		x.draining.Add(1)
	}
	x.sweep.mu.Unlock()
	x.dropPromises(s)
	x.removals.forget(s)
}

// Sweep frees the memory of dropped slots, looking at about budget cells, and
// returns the number of slots still to be freed. It holds a shard's lock for a
// few hundred cells at a time and keeps what is left of the budget for the next
// call. If another call is at it, it does nothing.
func (x *Index) Sweep(budget int) (left int) {
	if x.draining.Load() > 0 && x.sweep.mu.TryLock() {
		x.sweepLocked(budget)
		x.sweep.mu.Unlock()
	}
	return int(x.draining.Load())
}

func (x *Index) sweepLocked(budget int) {
	w := &x.sweep
	w.credit += min(budget, 1<<40)
	for w.credit > 0 {
		if len(w.passing) == 0 {
			if len(w.waiting) == 0 {
				w.credit = 0
				return
			}
			w.passing, w.waiting, w.shard, w.bucket = w.waiting, nil, 0, 0
		}
		w.credit -= x.sweepSome()
		if w.shard == numShards {
			x.release(w.passing)
			w.passing = nil
		}
	}
}

// sweepStep is how many buckets are swept under one hold of a shard's lock.
const sweepStep = 128

// sweepSome sweeps the next few buckets and returns how many cells that were. A
// shard whose table was replaced meanwhile is begun again, and shrinks only when
// the pass is through with it.
func (x *Index) sweepSome() (cells int) {
	w := &x.sweep
	sh := &x.shards[w.shard]
	sh.mu.lock(&x.bed)
	defer sh.mu.unlock(&x.bed)
	if w.bucket > 0 && w.buckets != len(sh.buckets) {
		w.bucket = 0
	}
	w.buckets = len(sh.buckets)
	sh.sweep(w.bucket, sweepStep, x.slots.Load(), &x.common)
	if w.bucket += sweepStep; w.bucket >= len(sh.buckets) {
		sh.shrink(&x.common)
		w.shard, w.bucket = w.shard+1, 0
	}
	return bucketCells*min(sweepStep, w.buckets) + 1
}

// release makes swept slots free for reuse.
func (x *Index) release(swept []Slot) {
	t := x.slots.Load()
	for _, s := range swept {
		t = t.with(s, slotFree, nil)
	}
	x.slots.Store(t)
	x.draining.Add(-int32(len(swept)))
}
