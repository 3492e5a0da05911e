package model

import (
	"slices"

	"github.com/rhizome-router/rhizome/kv"
)

// A hybrid model has a second group of layers, which attend to a sliding window
// only. As in vLLM's hybrid KV cache manager, both groups take their blocks from
// one pool, and a block of the sliding group is named by the same key:
//
//   - An admitted sequence holds the sliding blocks of its window and one more,
//     which fills next. When a block fills, the one that falls out of the window
//     is let go at once. It stays cached until it is evicted, and since it is
//     let go so early, it often goes before the same tokens' block of full
//     attention.
//   - A prefix can be used up to L tokens when full attention has all of them
//     and the sliding group still has the window before L. So a cached prefix is
//     usable at its end, and at other places only as long as nothing needed the
//     room.
//
// Lower tiers keep no sliding blocks, so a worker with a window has none.

// WindowGroup is Event.Group of blocks of the sliding group.
const WindowGroup = 1

// windowName turns the key of a block into the name of its sliding twin in the
// pool's table, and back.
func windowName(key kv.EngineHash) kv.EngineHash { return key ^ 0x5bd1e995_7f4a7c15 }

// windowCost returns how many sliding blocks an admitted sequence holds.
func (w *Worker) windowCost() int {
	if w.window == 0 {
		return 0
	}
	return w.window + 1
}

// usable returns how many of the leading keys can be used when full attention
// has all of them.
func (w *Worker) usable(keys []kv.EngineHash) int {
	if w.window == 0 {
		return len(keys)
	}
	have := 0 // blocks in a row from i on
	for i := len(keys) - 1; i >= 0; i-- {
		if w.pool.names.Get(windowName(keys[i])) < 0 {
			have = 0
			continue
		}
		if have++; have == w.window || i == 0 {
			return i + have
		}
	}
	return 0
}

// revivedWindow returns how many sliding blocks before keys[n] nobody uses.
func (w *Worker) revivedWindow(keys []kv.EngineHash, n int) int {
	idle := 0
	for _, key := range keys[max(0, n-w.window):n] {
		if id := w.pool.names.Get(windowName(key)); w.pool.blocks[id].ref == 0 {
			idle++
		}
	}
	return idle
}

// holdWindow lets s hold the cached sliding blocks before its key n, instead of
// those that it held, and as many blank ones as are missing.
func (w *Worker) holdWindow(s *seq, n int) {
	if w.window == 0 {
		return
	}
	old := len(s.window)
	for _, key := range s.Keys[max(0, n-w.window):n] {
		id := w.pool.names.Get(windowName(key))
		w.pool.pin(id)
		s.window = append(s.window, id)
	}
	w.dropWindow(s.window[:old])
	s.window = slices.Delete(s.window, 0, old)
	w.balanceWindow(s)
}

// slide goes on by the block that bears Keys[i].
func (w *Worker) slide(s *seq, i int) {
	p, name := &w.pool, windowName(s.Keys[i])
	id := int32(-1)
	if w.cfg.RadixTree {
		id = p.names.Get(name)
	}
	if id >= 0 {
		p.pin(id)
	} else if len(s.spares) > 0 {
		id = s.spares[len(s.spares)-1]
		s.spares = s.spares[:len(s.spares)-1]
		p.name(id, name, 0, false, -1).windowed = true
		w.journal.storedOne(windowLane, s.ID, s.Keys, i, -1)
	}
	s.window = append(s.window, id)
	if len(s.window) > w.window {
		w.dropWindow(s.window[:1])
		s.window = slices.Delete(s.window, 0, 1)
	}
	w.balanceWindow(s)
}

// balanceWindow makes up for what the window lacks with blank blocks, as far as
// there are any: where others share a block that falls out of the window, the
// pool may have none to give, and then the next one is not cached.
func (w *Worker) balanceWindow(s *seq) {
	want := w.windowCost() - len(s.window)
	for len(s.spares) > want {
		w.pool.unpin(s.spares[len(s.spares)-1])
		s.spares = s.spares[:len(s.spares)-1]
	}
	s.spares = w.take(s.spares, min(want-len(s.spares), w.pool.available()))
}

// dropWindow gives sliding blocks back, the last one first.
func (w *Worker) dropWindow(blocks []int32) {
	for _, id := range slices.Backward(blocks) {
		if id >= 0 {
			w.pool.unpin(id)
		}
	}
}

// releaseWindow gives back all that s holds of the sliding group.
func (w *Worker) releaseWindow(s *seq) {
	w.dropWindow(s.window)
	w.dropWindow(s.spares)
	s.window, s.spares = s.window[:0], s.spares[:0]
}
