package model

import (
	"fmt"
	"slices"
)

// Check returns an error if the worker's books don't agree: every KV block is
// in use, cached or blank, and referred to as often as sequences hold it; what
// is on its way is on a link; every request is in one place. It looks at
// everything once, so its time grows with the pool; it is for simulators and
// tests, which call it every so many steps.
func (w *Worker) Check() error {
	for _, check := range []func() error{w.checkPool, w.checkTiers, w.checkLoads, w.checkQueues, w.checkDecoding} {
		if err := check(); err != nil {
			return fmt.Errorf("engine model at %v µs: %w", w.now, err)
		}
	}
	return nil
}

// checkPool counts the references that sequences hold.
func (w *Worker) checkPool() error {
	p := &w.pool
	refs := make([]int32, len(p.blocks))
	for _, s := range w.running {
		for _, held := range [][]int32{s.blocks, s.window, s.spares} {
			for _, id := range held {
				if id >= 0 {
					refs[id]++
				}
			}
		}
	}
	var used, named, windowed, idle, heads int
	for id := 1; id < len(p.blocks); id++ {
		b := &p.blocks[id]
		if b.ref != refs[id] {
			return fmt.Errorf("block %d has %d references, %d are held", id, b.ref, refs[id])
		}
		if b.ref > 0 {
			used++
		}
		if !b.named {
			continue
		}
		named++
		if b.windowed {
			windowed++
		}
		if b.ref == 0 {
			idle++
		}
		first := p.names.Get(b.hash)
		if first == int32(id) {
			heads++
		}
		if first < 0 || p.blocks[first].hash != b.hash || b.twin != (first != int32(id)) || (w.cfg.RadixTree && b.twin) {
			return fmt.Errorf("block %d cannot be found by its name, or is not alone in a tree", id)
		}
	}
	ring := 0
	for id := p.blocks[0].next; id != 0 && ring <= p.cached; id = p.blocks[id].next {
		ring++
	}
	if used != p.used || named != p.named || idle != p.cached || ring != p.cached || heads != p.names.n || p.used+p.cached+p.blanks() != p.capacity {
		return fmt.Errorf("of %d blocks, %d are used (%d counted), %d cached (%d, %d in the ring), %d blank, %d named (%d), %d names (%d)",
			p.capacity, p.used, used, p.cached, idle, ring, p.blanks(), p.named, named, p.names.n, heads)
	}
	return w.checkContents(named - windowed)
}

// checkContents asserts that each number of a content is in one place.
func (w *Worker) checkContents(held int) error {
	n := &w.journal.numbers
	for _, l := range w.tiers {
		held += l.len()
	}
	if held += len(n.free) + len(n.given); held != int(n.next) {
		return fmt.Errorf("%d contents are held or free, %d were given out", held, n.next)
	}
	return nil
}

func (w *Worker) checkTiers() error {
	for _, l := range w.tiers {
		ring := 0
		for id := l.nodes[0].next; id != 0 && ring <= l.len(); id = l.nodes[id].next {
			ring++
			if l.names.Get(l.nodes[id].hash) != id {
				return fmt.Errorf("tier %v: block %d cannot be found by its name", l.tier, id)
			}
		}
		if l.len() > l.capacity || l.names.n != l.len() || ring != l.len() {
			return fmt.Errorf("tier %v: %d blocks of at most %d, %d names, %d in the ring", l.tier, l.len(), l.capacity, l.names.n, ring)
		}
	}
	return nil
}

// checkLoads asserts that blocks on their way are on a link, and that those who
// wait know it.
func (w *Worker) checkLoads() error {
	loading, waits := 0, 0
	for _, l := range w.tiers {
		for _, u := range slices.Concat(l.link.queue, l.link.done) {
			for _, id := range u.blocks[u.from:u.to] {
				if b := &w.pool.blocks[id]; b.load != u.serial || b.ref == 0 {
					return fmt.Errorf("block %d of upload %d has upload %d and %d references", id, u.serial, b.load, b.ref)
				}
			}
			loading += u.to - u.from
			waits += len(u.waits)
		}
		if q := l.link.queue; len(q) > 0 && (l.link.next < l.link.at || l.link.bytesPerMicros <= 0) {
			return fmt.Errorf("link of tier %v: the next of %d transfers is done at %v, before %v", l.tier, len(q), l.link.next, l.link.at)
		}
	}
	for i := range w.pool.blocks {
		if b := &w.pool.blocks[i]; b.named && b.load != 0 {
			loading--
		}
	}
	for _, s := range w.running {
		waits -= s.loading
	}
	if loading != 0 || waits != 0 {
		return fmt.Errorf("%d more blocks on links than say so, %d more waits for them than sequences count", loading, waits)
	}
	return nil
}

// checkQueues asserts that every request is in one place.
func (w *Worker) checkQueues() error {
	elsewhere := 0 // cancelled ones that hold nothing and are to be told
	for _, s := range w.cancels {
		if s.state == gone || s.state == waiting {
			elsewhere++
		}
	}
	if n := len(w.waiting) + len(w.running) + elsewhere; n != len(w.seqs) || len(w.running) > w.cfg.MaxSeqs {
		return fmt.Errorf("%d requests, %d wait, %d run of at most %d, %d are to be told as ended",
			len(w.seqs), len(w.waiting), len(w.running), w.cfg.MaxSeqs, elsewhere)
	}
	for _, s := range w.waiting {
		if s.state != waiting || w.seqs[s.ID] != s || len(s.blocks)+len(s.window)+len(s.spares)+s.loading != 0 {
			return fmt.Errorf("request %d waits and holds blocks, or is in another state", s.ID)
		}
	}
	var computing []*seq
	for _, s := range w.running {
		if s.state == prefilling {
			computing = append(computing, s)
		} else if s.state != decoding {
			return fmt.Errorf("request %d runs in state %d", s.ID, s.state)
		}
		if w.seqs[s.ID] != s || s.named > len(s.blocks) || s.kv+s.chunk > len(s.blocks)*w.cfg.BlockTokens {
			return fmt.Errorf("request %d has %d blocks, %d named, for %d tokens", s.ID, len(s.blocks), s.named, s.kv+s.chunk)
		}
		if held := len(s.window) + len(s.spares); held > w.windowCost() || len(s.window) > w.window {
			return fmt.Errorf("request %d holds %d sliding blocks, %d of them in its window of %d", s.ID, held, len(s.window), w.window)
		}
	}
	if !slices.Equal(computing, w.prefilling) {
		return fmt.Errorf("%d prompts are computed, %d are listed", len(computing), len(w.prefilling))
	}
	return nil
}

// checkDecoding asserts that the wheel and its sums are right.
func (w *Worker) checkDecoding() error {
	var tokens int64
	n := 0
	for residue, bucket := range w.wheel {
		for _, s := range bucket {
			n++
			context := w.context(s)
			tokens += int64(context)
			if s.state != decoding || s.residue != residue || context > len(s.blocks)*w.cfg.BlockTokens {
				return fmt.Errorf("request %d in state %d has room for %d blocks and %d tokens", s.ID, s.state, len(s.blocks), context)
			}
			if left := int64(s.OutputTokens - w.out(s)); left < 1 || w.steps+left < w.nextFinish {
				return fmt.Errorf("request %d ends in %d steps, the next end is expected in %d", s.ID, left, w.nextFinish-w.steps)
			}
		}
	}
	if n != w.decoding || tokens != w.decodingKV || n+len(w.prefilling) != len(w.running) {
		return fmt.Errorf("%d sequences decode (%d counted) with %d tokens (%d), %d run", w.decoding, n, w.decodingKV, tokens, len(w.running))
	}
	if w.it.active && w.it.decodes && w.it.decodeOnly && !w.it.disturbed && w.it.load.Decoding != n {
		return fmt.Errorf("an iteration of %d sequences runs, %d decode", w.it.load.Decoding, n)
	}
	return nil
}
