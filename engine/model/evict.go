package model

import (
	"slices"

	"github.com/rhizome-router/rhizome/kv"
)

// take appends n blocks with one reference each to dst, evicting the least
// recently used cached ones for those that aren't blank. There must be as many
// (pool.available).
func (w *Worker) take(dst []int32, n int) []int32 {
	if short := n - w.pool.blanks(); short > 0 {
		w.evict(short)
	}
	for range n {
		dst = append(dst, w.pool.takeBlank())
	}
	return dst
}

// evict drops the n oldest cached blocks from HBM and spills them: step by step
// for all of them, since each step waits for memory, and waits that don't depend
// on each other overlap.
func (w *Worker) evict(n int) {
	p, numbers := &w.pool, &w.journal.numbers
	w.stats.Evictions += int64(n)
	down := w.moving[:0]
	for range n {
		id := p.oldest()
		b := &p.blocks[id]
		last := p.forget(id)
		switch {
		case b.windowed:
			w.journal.removed(windowLane, windowName(b.hash))
			continue
		case last && !w.cfg.WriteThrough:
			down = append(down, node{hash: b.hash, parent: b.parent, hasParent: b.hasParent, content: b.content})
		default:
			numbers.giveBack(b.content)
		}
		w.journal.removed(hbmLane, b.hash)
	}
	w.moving = w.spill(down, w.tiers)
}

// spill moves blocks to the first of tiers; what that pushes out goes one
// further down. It returns the emptied slice with what room it has got.
func (w *Worker) spill(down []node, tiers []*lower) []node {
	numbers := &w.journal.numbers
	for _, l := range tiers {
		if len(down) == 0 {
			return down
		}
		fresh := w.absent(down, l)
		// The first of more than the tier holds would leave at once.
		excess := max(0, len(fresh)-l.capacity)
		enter := fresh[excess:]
		w.leaving = append(w.leaving[:0], fresh[:excess]...)
		w.leaving = l.put(enter, w.leaving)
		for i := range enter {
			w.journal.spilled(l.tier, &enter[i])
		}
		for _, n := range w.leaving[excess:] {
			w.journal.removed(lane(l.tier), n.hash)
		}
		w.leaving, down = down[:0], w.leaving
	}
	for _, n := range down {
		numbers.giveBack(n.content)
	}
	return down[:0]
}

// absent drops the blocks that a tier holds already, and makes those young
// there. It reuses the slice.
func (w *Worker) absent(nodes []node, l *lower) []node {
	kept := nodes[:0]
	for _, n := range nodes {
		if id := l.names.Get(n.hash); id >= 0 {
			l.touch(id)
			w.journal.numbers.giveBack(n.content)
			continue
		}
		kept = append(kept, n)
	}
	return kept
}

// writeThrough copies keys[from:to] of a request to the first lower tier.
func (w *Worker) writeThrough(s *seq, from, to int) {
	l := w.tiers[0]
	nodes := w.moving[:0]
	for i := from; i < to && len(nodes) < l.capacity; i++ {
		if id := l.names.Get(s.Keys[i]); id >= 0 {
			l.touch(id)
			continue
		}
		n := node{hash: s.Keys[i], content: w.journal.numbers.take()}
		n.parent, n.hasParent = parentOf(s.Keys, i)
		nodes = append(nodes, n)
		w.journal.storedOne(lane(l.tier), s.ID, s.Keys, i, n.content)
	}
	w.leaving = l.put(nodes, w.leaving[:0])
	down := nodes[:0]
	for _, out := range w.leaving {
		// What would only pass through in this iteration is dropped.
		if slices.Contains(w.journal.lanes[l.tier].contents, out.content) {
			w.journal.numbers.giveBack(out.content)
		} else {
			down = append(down, out)
		}
		w.journal.removed(lane(l.tier), out.hash)
	}
	w.moving = w.spill(down, w.tiers[1:])
}

// ClearCache empties HBM at the instant of the last Advance, as an engine's
// prefix-cache reset does, and with allTiers the lower tiers too. It returns
// false and does nothing while any sequence is admitted.
func (w *Worker) ClearCache(allTiers bool, sink Sink) bool {
	p, numbers := &w.pool, &w.journal.numbers
	if p.used > 0 {
		return false
	}
	for p.cached > 0 {
		id := p.oldest()
		if !p.blocks[id].windowed {
			numbers.giveBack(p.blocks[id].content)
		}
		p.forget(id)
	}
	if allTiers {
		for _, l := range w.tiers {
			for i := range l.nodes[1:] {
				numbers.giveBack(l.nodes[i+1].content)
			}
			l.clear()
		}
	}
	sink(Event{Kind: Cleared, At: w.now, Tier: kv.HBM})
	return true
}
