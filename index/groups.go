package index

import (
	"fmt"
	"slices"

	"github.com/rhizome-router/rhizome/kv"
)

// Group is a KV-cache group of a hybrid model besides main attention. To go on
// after a prefix of n blocks, the engine needs the group's last WindowBlocks
// blocks before n (fewer if n is smaller), in its HBM or on a lower tier that
// it reads from. For a sliding window of w tokens these are ⌈w/block⌉; for a
// recurrent group (Mamba and the like) it is 1, the state after the prefix.
type Group struct {
	ID           uint16 // as in Change; not 0
	WindowBlocks int    // positive
}

// MaxGroups is how many groups a slot can have.
const MaxGroups = 32

// SetGroups says which groups the model on slot s has besides main attention,
// and thereby that Match cuts its hits on s to what these groups can use. It
// replaces what was said before; without groups, a slot's hits are not cut.
// Blocks of groups that aren't named don't matter. A slot that isn't open is
// left alone. An error means that the groups make no sense; nothing changed.
func (x *Index) SetGroups(s Slot, groups []Group) error {
	if len(groups) > MaxGroups {
		return fmt.Errorf("index: set %d KV groups of slot %d: at most %d are possible", len(groups), s, MaxGroups)
	}
	for _, g := range groups {
		if g.ID == 0 || g.WindowBlocks < 1 {
			return fmt.Errorf("index: set KV groups of slot %d: group %d with a window of %d blocks: "+
				"only groups other than 0 have windows, of 1 block or more", s, g.ID, g.WindowBlocks)
		}
	}
	x.sweep.mu.Lock()
	defer x.sweep.mu.Unlock()
	if t := x.slots.Load(); t.state(s).open() {
		x.slots.Store(t.with(s, t.state(s)&^windowed, slices.Clone(groups)))
	}
	return nil
}

// cutToWindows cuts the hits of slots with groups to the longest prefixes that
// all groups can use, and drops those of which nothing is left. A promise of a
// block is one for all groups.
func (x *Index) cutToWindows(slots *slotTable, keys []kv.Key, hits []Hit) []Hit {
	usable := hits[:0]
	for _, h := range hits {
		if slots.states[h.Slot]&windowed != 0 {
			w := windows{x: x, slot: h.Slot, groups: slots.groups[h.Slot],
				tiers: kv.HBM.Mask() | slots.states[h.Slot].lower(), keys: keys}
			alike := h.Promised == h.Run && h.Lower == 0 // then nothing is promised
			h.Run.cut(w.usable(h.Run.Len()))
			if w.hope = true; alike {
				h.Promised = h.Run
			} else {
				h.Promised.cut(w.usable(h.Promised.Len()))
			}
		}
		if h.Promised.Len() > 0 {
			usable = append(usable, h)
		}
	}
	return usable
}

func (r *Run) cut(n int) {
	r.HBM = min(r.HBM, n)
	if r.Lower = n - r.HBM; r.Lower == 0 {
		r.Tier = kv.HBM
	}
}

// windows looks for a slot's blocks of its groups.
type windows struct {
	x      *Index
	slot   Slot
	groups []Group
	tiers  kv.TierMask
	keys   []kv.Key
	hope   bool // promises count
}

// usable returns the largest n up to limit at which each group has its window.
// A block that a group lacks spoils every n above it that isn't a window away,
// and these were tried, so n falls to below the block. Each group's block is
// looked for once: from[g] up to n, group g has everything.
func (w *windows) usable(limit int) int {
	var from [MaxGroups]int
	for g := range w.groups {
		from[g] = limit
	}
	n := limit
	for g := 0; g < len(w.groups); g++ {
		from[g] = min(from[g], n)
		for end := max(0, n-w.groups[g].WindowBlocks); from[g] > end; from[g]-- {
			if i := from[g] - 1; !w.has(g, i) {
				n, from[g] = i, i
				g = -1 // anew from the first group
				break
			}
		}
	}
	return n
}

func (w *windows) has(g, i int) bool {
	k := w.keys[i]
	return w.x.holder(w.slot, w.groups[g].ID, k).tiers()&w.tiers != 0 ||
		w.hope && w.x.holder(w.slot, 0, k)&promised != 0
}
