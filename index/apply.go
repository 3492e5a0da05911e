package index

import (
	"slices"

	"github.com/rhizome-router/rhizome/index/prefetch"
	"github.com/rhizome-router/rhizome/kv"
)

// Apply records changes of slot s, in order. Presence is a set: saying a thing
// twice is saying it once. A block confirmed on HBM settles the promises of
// it. Changes of a slot that isn't open are ignored. Blocks of windowed groups
// (group not 0) are kept apart: they can end a match (SetGroups), never make it.
//
// Each call also does a share of the sweep that Drop leaves behind.
func (x *Index) Apply(s Slot, changes []Change) {
	if state := x.slots.Load().state(s); state.open() && state&holed == 0 && slices.ContainsFunc(changes, unvouched) {
		x.hole(s) // before anybody sees the changes
	}
	var at ahead
	for i := range changes[:min(lookahead, len(changes))] {
		at.put(x, i, changes[i].Group, changes[i].Key)
	}
	for i := range changes {
		c := &changes[i]
		sh, place := at.shards[i%lookahead], at.places[i%lookahead]
		if next := i + lookahead; next < len(changes) {
			at.put(x, next%lookahead, changes[next].Group, changes[next].Key)
		}
		if c.Tier >= kv.NumTiers {
			continue
		}
		if bit := holder(c.Tier.Mask()); c.Present {
			x.change(sh, place, s, bit, 0)
		} else {
			x.change(sh, place, s, 0, bit)
		}
	}
	if x.slots.Load().state(s).open() {
		x.removals.note(s, changes)
	}
	if x.draining.Load() > 0 {
		x.Sweep(64 + 4*len(changes))
	}
}

func unvouched(c Change) bool { return !c.Whole && c.Group == 0 && c.Tier == kv.HBM }

// lookahead is how many changes ahead memory is fetched: the processor then has
// what it needs when it gets there, and doesn't wait for one line after the other.
const lookahead = 16

// ahead is where the next blocks are, up to lookahead of them.
type ahead struct {
	shards [lookahead]*shard
	places [lookahead]place
}

// put notes the i-th block and has it fetched.
func (a *ahead) put(x *Index, i int, group uint16, k kv.Key) {
	h := x.hash(group, k)
	a.shards[i], a.places[i] = x.in(h)
	prefetch.ToWrite(x.lines(h))
}

func (a *ahead) fetch(x *Index, keys []kv.Key) {
	for i, k := range keys {
		a.put(x, i, 0, k)
	}
}

// change updates a block in its shard. The slot's state is read under the lock:
// a sweep that visits this shard later sees what is written now, and one that
// came before made s draining first.
func (x *Index) change(sh *shard, at place, s Slot, set, clear holder) (prior holder, ok bool) {
	sh.mu.lock(&x.bed)
	defer sh.mu.unlock(&x.bed)
	if !x.slots.Load().state(s).open() {
		return 0, false
	}
	return sh.update(at, s, set, clear, &x.common)
}
