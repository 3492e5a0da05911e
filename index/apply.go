package index

import "github.com/rhizome-router/rhizome/kv"

// Apply records changes of slot s, in order. Presence is a set: saying a thing
// twice is saying it once. A block confirmed on HBM settles the promises of
// it. Changes of a slot that isn't open are ignored. Blocks of windowed groups
// (group not 0) are kept apart: they can end a match (SetGroups), never make it.
//
// Each call also does a share of the sweep that Drop leaves behind.
func (x *Index) Apply(s Slot, changes []Change) {
	for rest := changes; len(rest) > 0; {
		n := min(len(rest), maxBatch)
		if n >= minBatch {
			x.applyByShard(s, rest[:n])
		} else {
			for i := range rest {
				x.shards[x.shardOf(fold(rest[i].Group, rest[i].Key))].apply(x, s, rest, i, nil)
			}
		}
		rest = rest[n:]
	}
	if x.slots.Load().state(s).open() {
		x.removals.note(s, changes)
	}
	if x.draining.Load() > 0 {
		x.Sweep(64 + 4*len(changes))
	}
}

const (
	minBatch = 256 // changes that are worth sorting by shard
	maxBatch = 4096
)

// applyByShard applies changes shard by shard. A block that moves between
// tiers is then looked for once, for all practical purposes, and locks are
// fewer. What is said of one block stays in order: it is all in one shard.
func (x *Index) applyByShard(s Slot, changes []Change) {
	var first [numShards]uint16 // number + 1 of the first change in a shard
	var next [maxBatch]uint16   // and of the one after a change
	for i := len(changes) - 1; i >= 0; i-- {
		at := x.shardOf(fold(changes[i].Group, changes[i].Key))
		next[i] = first[at]
		first[at] = uint16(i + 1)
	}
	for at, n := range &first {
		if n > 0 {
			x.shards[at].apply(x, s, changes, int(n-1), &next)
		}
	}
}

// apply applies changes[i], and those that next chains to it.
func (sh *shard) apply(x *Index, s Slot, changes []Change, i int, next *[maxBatch]uint16) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	// Read under the lock: a sweep that visits this shard later sees what is
	// written now, and one that came before made s draining first.
	if !x.slots.Load().state(s).open() {
		return
	}
	if next != nil {
		sh.warm(changes, i, next)
	}
	for {
		c := &changes[i]
		if c.Tier < kv.NumTiers {
			if bit := holder(c.Tier.Mask()); c.Present {
				sh.update(fold(c.Group, c.Key), s, bit, 0, &x.budget)
			} else {
				sh.update(fold(c.Group, c.Key), s, 0, bit, &x.budget)
			}
		}
		if next == nil || next[i] == 0 {
			return
		}
		i = int(next[i] - 1)
	}
}

// warm fetches the cells where a chain of changes begins to search: the
// processor waits for all of them at once instead of for one after the other.
func (sh *shard) warm(changes []Change, i int, next *[maxBatch]uint16) {
	for len(sh.cells) > 0 {
		sh.warmed += sh.cells[sh.home(fold(changes[i].Group, changes[i].Key))].h[0]
		if next[i] == 0 {
			return
		}
		i = int(next[i] - 1)
	}
}

// update sets and clears bits of a block's holder s and returns the bits it
// had. ok is false if s isn't open or the budget refused it.
func (x *Index) update(s Slot, group uint16, k kv.Key, set, clear holder) (prior holder, ok bool) {
	sh, key := x.at(group, k)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if !x.slots.Load().state(s).open() { // under the lock, as in apply
		return 0, false
	}
	return sh.update(key, s, set, clear, &x.budget)
}
