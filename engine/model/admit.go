package model

import (
	"slices"

	"github.com/rhizome-router/rhizome/kv"
)

// admit takes on waiting requests, first come first served, while they fit.
func (w *Worker) admit(now float64, sink Sink) {
	n := 0
	for ; n < len(w.waiting) && !w.blocked; n++ {
		s := w.waiting[n]
		if s.arrival > now {
			break
		}
		if len(w.running) >= w.cfg.MaxSeqs || !w.place(s, now) {
			w.blocked = true
			break
		}
		w.running = append(w.running, s)
		w.prefilling = append(w.prefilling, s)
		s.state = prefilling
		sink(Event{Kind: Admitted, At: now, ID: s.ID, HBMTokens: s.hbmTokens, TierTokens: s.tierTokens})
	}
	w.waiting = slices.Delete(w.waiting, 0, n)
}

// place gives a sequence all the blocks of its prompt, or returns false when
// the watermark does not allow it: those in HBM are pinned, those that follow
// in one lower tier are queued on its link, the rest is to be computed. At
// least one token is.
func (w *Worker) place(s *seq, now float64) bool {
	p, bs := &w.pool, w.cfg.BlockTokens
	s.target = s.PromptTokens + s.generated
	usable := min((s.target-1)/bs, len(s.Keys))
	s.blocks = s.blocks[:0]
	s.ready = now
	revived := 0
	for _, key := range s.Keys[:usable] {
		id := p.names.Get(key)
		if id < 0 {
			break
		}
		if p.blocks[id].ref == 0 {
			revived++
		}
		s.ready = max(s.ready, p.blocks[id].ready)
		s.blocks = append(s.blocks, id)
	}
	hits := len(s.blocks)
	fresh := w.blocksOf(s.target) - hits
	if p.used+revived+fresh > w.watermark {
		s.blocks = s.blocks[:0]
		return false
	}
	for _, id := range s.blocks {
		p.pin(id)
	}
	tier, found := w.findBelow(s.Keys[hits:usable])
	for range fresh {
		s.blocks = append(s.blocks, w.take())
	}
	if found > 0 {
		w.startLoad(s, tier, hits, found, now)
	}
	s.named = hits + found
	s.kv = s.named * bs
	w.stats.HBMHitTokens += int64(hits * bs)
	if !s.told {
		s.hbmTokens, s.tierTokens = hits*bs, found*bs
	}
	return true
}

// findBelow returns the first lower tier that holds keys[0] and how many
// leading keys it holds (a radix tree: and HBM does not), made young so that making room does not drop them.
func (w *Worker) findBelow(keys []kv.EngineHash) (*lower, int) {
	for _, l := range w.tiers {
		n := 0
		for n < len(keys) && l.names.Get(keys[n]) >= 0 && !(w.cfg.RadixTree && w.pool.names.Get(keys[n]) >= 0) {
			n++
		}
		if n == 0 {
			continue
		}
		for i := n - 1; i >= 0; i-- {
			l.touch(l.names.Get(keys[i]))
		}
		return l, n
	}
	return nil, 0
}

// startLoad queues s.Keys[from:from+n] on the tier's link. Others find the
// blocks at once and wait for the same transfer.
func (w *Worker) startLoad(s *seq, l *lower, from, n int, now float64) {
	tokens := n * w.cfg.BlockTokens
	done := l.transfer(now, int64(tokens)*w.cfg.Preset.KVBytesPerToken)
	l.hitTokens += int64(tokens)
	s.ready = max(s.ready, done)
	for i := from; i < from+n; i++ {
		parent, has := parentOf(s.Keys, i)
		w.pool.name(s.blocks[i], s.Keys[i], parent, has, w.journal.numbers.take(), done)
	}
	// The sequence holds its blocks until the load is settled.
	w.loads = append(w.loads, upload{done: done, id: s.ID, keys: s.Keys, blocks: s.blocks, from: from, to: from + n})
}

// settleLoads announces the blocks whose transfer is done.
func (w *Worker) settleLoads(now float64) {
	w.loads = slices.DeleteFunc(w.loads, func(l upload) bool {
		if l.done > now {
			return false
		}
		told := w.journal.stored(l.id, l.keys, l.from, l.to)
		for _, id := range l.blocks[l.from:l.to] {
			told.contents = append(told.contents, w.pool.blocks[id].content)
		}
		return true
	})
}

// share looks again for the blocks of a sequence about to start: what others
// computed while it waited is used instead of being computed twice. Engines
// look up the cache only at this point.
func (w *Worker) share(s *seq, now float64) {
	p, bs := &w.pool, w.cfg.BlockTokens
	usable := min((s.target-1)/bs, len(s.Keys))
	first := s.named
	for ; s.named < usable; s.named++ {
		id := p.names.Get(s.Keys[s.named])
		if id < 0 || p.blocks[id].ready > now {
			break
		}
		p.pin(id)
		p.unpin(s.blocks[s.named])
		s.blocks[s.named] = id
	}
	gained := (s.named - first) * bs
	s.kv += gained
	w.stats.HBMHitTokens += int64(gained)
	if !s.told {
		s.hbmTokens += gained
	}
}

// nameUpTo names the blocks of s that hold only computed tokens once its
// context has the given length.
func (w *Worker) nameUpTo(s *seq, tokens int, now float64) {
	end := min(tokens/w.cfg.BlockTokens, len(s.Keys))
	for s.named < end {
		to := end
		if w.cfg.RadixTree {
			if w.fold(s, now) {
				continue
			}
			for to = s.named + 1; to < end && w.pool.names.Get(s.Keys[to]) < 0; {
				to++
			}
		}
		w.nameRun(s, to, now)
	}
}

// fold gives up the next block of s for one of its name in the tree, if there
// is one: at once, or if that is still on its way when s is done with it.
func (w *Worker) fold(s *seq, now float64) bool {
	p := &w.pool
	id := p.names.Get(s.Keys[s.named])
	if id < 0 {
		return false
	}
	if p.blocks[id].ready <= now {
		p.pin(id)
		p.unpin(s.blocks[s.named])
		s.blocks[s.named] = id
	}
	s.named++
	return true
}

// nameRun names the blocks of s up to index end and journals them as one run.
func (w *Worker) nameRun(s *seq, end int, now float64) {
	parent, has := parentOf(s.Keys, s.named)
	told := w.journal.stored(s.ID, s.Keys, s.named, end)
	for ; s.named < end; s.named++ {
		content := w.journal.numbers.take()
		told.contents = append(told.contents, content)
		w.pool.name(s.blocks[s.named], s.Keys[s.named], parent, has, content, now)
		parent, has = s.Keys[s.named], true
	}
}

// take returns a block with one reference, evicting the least recently used
// cached one if none is blank. There must be one (pool.available).
func (w *Worker) take() int32 {
	p := &w.pool
	if id := p.takeBlank(); id >= 0 {
		return id
	}
	id := p.oldest()
	b := p.blocks[id]
	last := p.forget(id)
	w.stats.Evictions++
	w.journal.removed(kv.HBM, b.hash)
	if last {
		w.spill(node{hash: b.hash, parent: b.parent, hasParent: b.hasParent, content: b.content})
	} else {
		w.journal.numbers.giveBack(b.content)
	}
	return p.takeBlank()
}

// spill moves an evicted block to the tier below; what that pushes out goes
// one further down.
func (w *Worker) spill(n node) {
	for _, l := range w.tiers {
		if id := l.names.Get(n.hash); id >= 0 {
			l.touch(id)
			break
		}
		out, full := l.put(n)
		w.journal.spilled(l.tier, n)
		if !full {
			return
		}
		w.journal.removed(l.tier, out.hash)
		n = out
	}
	w.journal.numbers.giveBack(n.content)
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
		numbers.giveBack(p.blocks[id].content)
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

func parentOf(keys []kv.EngineHash, i int) (kv.EngineHash, bool) {
	if i == 0 {
		return 0, false
	}
	return keys[i-1], true
}
