package model

import (
	"math"
	"slices"

	"github.com/rhizome-router/rhizome/kv"
)

// admit takes on waiting requests, first come first served, while they fit.
// What is ready to be computed takes its share of the iteration at once.
func (w *Worker) admit(now float64, sink Sink) {
	n := 0
	for ; n < len(w.waiting) && !w.blocked; n++ {
		s := w.waiting[n]
		if s.arrival > now || (w.cfg.Admit == PerChunk && w.it.budget <= 0) {
			break
		}
		if len(w.running) >= w.cfg.MaxSeqs || !w.place(s, now) {
			w.blocked = true
			break
		}
		w.running = append(w.running, s)
		w.prefilling = append(w.prefilling, s)
		s.state = prefilling
		if s.admitted < 0 {
			s.admitted = now
			w.stats.QueueMicros += now - s.arrival
			w.stats.Admitted++
		}
		sink(Event{Kind: Admitted, At: now, ID: s.ID, HBMTokens: s.hbmTokens, TierTokens: s.tierTokens})
		w.compute(s, now, sink)
	}
	w.waiting = slices.Delete(w.waiting, 0, n)
}

// place gives a sequence the blocks that it needs to be admitted, or returns
// false when they are not to be had: those in HBM are pinned, those that follow
// in one lower tier are queued on its link, the rest is to be computed. At
// least one token is.
func (w *Worker) place(s *seq, now float64) bool {
	p, bs := &w.pool, w.cfg.BlockTokens
	s.target = s.PromptTokens + s.generated
	limit := min((s.target-1)/bs, len(s.Keys))
	s.blocks = s.blocks[:0]
	for _, key := range s.Keys[:limit] {
		id := p.names.Get(key)
		if id < 0 {
			break
		}
		s.blocks = append(s.blocks, id)
	}
	hits := w.usable(s.Keys[:len(s.blocks)])
	s.blocks = s.blocks[:hits]
	tier, found := w.findBelow(s.Keys[hits:limit])
	fresh := w.freshBlocks(s, hits, found)
	if !w.fits(s, hits, fresh) {
		s.blocks = s.blocks[:0]
		return false
	}
	awaited := int32(0)
	for _, id := range s.blocks {
		p.pin(id)
		if load := p.blocks[id].load; load != awaited && load != 0 {
			w.await(s, load)
			awaited = load
		}
	}
	if found > 0 {
		tier.refresh(s.Keys[hits : hits+found]) // so that making room does not drop them
	}
	if w.cfg.WriteThrough && len(w.tiers) > 0 {
		w.tiers[0].refresh(s.Keys[:hits]) // a lookup counts as a use of both copies
	}
	w.holdWindow(s, hits) // first, so that making room does not evict it
	s.blocks = w.take(s.blocks, fresh)
	if found > 0 {
		w.startLoad(s, tier, hits, found, now)
	}
	w.countHits(s, hits*bs, found*bs)
	s.named = hits + found
	s.kv = s.named * bs
	return true
}

// freshBlocks returns how many blocks s needs besides those that it hits, or
// those of its first chunk where it gets them chunk by chunk.
func (w *Worker) freshBlocks(s *seq, hits, found int) int {
	end := s.target
	if w.cfg.Admit == PerChunk {
		end = (hits + found) * w.cfg.BlockTokens
		if found == 0 {
			end = min(s.target, end+w.it.budget)
		}
	}
	return w.blocksOf(end) - hits
}

// fits reports whether s may be admitted with the blocks in s.blocks, so many
// fresh ones and its window.
func (w *Worker) fits(s *seq, hits, fresh int) bool {
	used := w.pool.used + fresh
	for _, id := range s.blocks {
		if w.pool.blocks[id].ref == 0 {
			used++
		}
	}
	if w.window > 0 {
		used += w.windowCost() - min(hits, w.window) + w.revivedWindow(s.Keys, hits)
	}
	if w.cfg.Admit == SGLangRatio {
		return w.roomFor(s, used)
	}
	return used <= w.watermark
}

// countHits notes what an admission found.
func (w *Worker) countHits(s *seq, hbmTokens, tierTokens int) {
	w.stats.QueriedTokens += int64(s.target)
	w.stats.HBMHitTokens += int64(hbmTokens)
	w.stats.ExternalHitTokens += int64(tierTokens)
	if !s.counted { // after a preemption it would find its own blocks
		s.counted = true
		s.hbmTokens, s.tierTokens = hbmTokens, tierTokens
	}
}

// findBelow returns the first lower tier that holds keys[0] and how many
// leading keys it holds (a radix tree: and HBM does not).
func (w *Worker) findBelow(keys []kv.EngineHash) (*lower, int) {
	for _, l := range w.tiers {
		n := 0
		for n < len(keys) && l.names.Get(keys[n]) >= 0 && !(w.cfg.RadixTree && w.pool.names.Get(keys[n]) >= 0) {
			n++
		}
		if n > 0 {
			return l, n
		}
	}
	return nil, 0
}

// startLoad queues s.Keys[from:from+n] on the tier's link. Others find the
// blocks at once and wait for the same transfer.
func (w *Worker) startLoad(s *seq, l *lower, from, n int, now float64) {
	tokens := n * w.cfg.BlockTokens
	l.hitTokens += int64(tokens)
	w.uploads++
	u := &upload{
		serial: w.uploads, id: s.ID, keys: s.Keys, blocks: s.blocks, from: from, to: from + n,
		bytes: int64(tokens) * w.cfg.Preset.KVBytesPerToken,
	}
	for i := from; i < u.to; i++ {
		parent, has := parentOf(s.Keys, i)
		w.pool.name(s.blocks[i], s.Keys[i], parent, has, w.journal.numbers.take()).load = u.serial
	}
	noise := 1.0
	if w.cfg.SetupNoise != nil {
		noise = w.cfg.SetupNoise()
	}
	l.link.begin(now, u, noise)
	w.await(s, u.serial)
}

// await makes s wait for an upload that is under way.
func (w *Worker) await(s *seq, serial int32) {
	for _, l := range w.tiers {
		for _, u := range l.link.queue {
			if u.serial == serial && !slices.Contains(u.waits, s) {
				u.waits = append(u.waits, s)
				s.loading++
			}
		}
	}
}

// nextLoad returns when the next transfer is done; +Inf: none is under way.
func (w *Worker) nextLoad() float64 {
	at := math.Inf(1)
	for _, l := range w.tiers {
		at = min(at, l.link.due())
	}
	return at
}

// settleLoads announces the blocks whose transfer is done.
func (w *Worker) settleLoads(now float64) {
	for _, l := range w.tiers {
		for _, u := range l.link.take(now) {
			told := w.journal.stored(u.id, u.keys, u.from, u.to)
			for _, id := range u.blocks[u.from:u.to] {
				b := &w.pool.blocks[id]
				b.load = 0
				told.contents = append(told.contents, b.content)
			}
			for _, s := range u.waits {
				s.loading--
			}
		}
	}
}

// share looks again for the blocks of a sequence about to start: what others
// computed while it waited is used instead of being computed twice. Engines
// look up the cache only at this point.
func (w *Worker) share(s *seq) {
	p, bs := &w.pool, w.cfg.BlockTokens
	limit := min((s.target-1)/bs, len(s.Keys))
	first, end := s.named, s.named
	for ; end < limit; end++ {
		if id := p.names.Get(s.Keys[end]); id < 0 || p.blocks[id].load != 0 {
			break
		}
	}
	if end = w.usable(s.Keys[:end]); end <= first {
		return
	}
	for ; s.named < end; s.named++ {
		id := p.names.Get(s.Keys[s.named])
		p.pin(id)
		if s.named < len(s.blocks) {
			p.unpin(s.blocks[s.named])
			s.blocks[s.named] = id
		} else {
			s.blocks = append(s.blocks, id)
		}
	}
	w.holdWindow(s, end)
	gained := (end - first) * bs
	s.kv += gained
	w.stats.HBMHitTokens += int64(gained)
	if !s.told {
		s.hbmTokens += gained
	}
}

func parentOf(keys []kv.EngineHash, i int) (kv.EngineHash, bool) {
	if i == 0 {
		return 0, false
	}
	return keys[i-1], true
}
