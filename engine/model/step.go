package model

import (
	"math"
	"slices"
)

// iteration is the one that runs, or a stretch of them that decode the same
// sequences: then done of them are over and the current one is the next.
type iteration struct {
	active     bool
	decodes    bool // decoding sequences take part
	decodeOnly bool // nothing else does
	disturbed  bool // what takes part has changed
	untold     bool // tokens came out since the last report
	anchor     float64
	done       int
	start, end float64
	lastDecode float64 // when the last decode step ended
	load       Load
	budget     int     // tokens that it may still take on
	factor     float64 // noise and slowdown
	chunks     []*seq
}

// endAfter returns when the k-th iteration from the current one on ends, if
// nothing disturbs the stretch; k = 1 is the current one.
func (it *iteration) endAfter(k int, t Timing) float64 {
	if !it.decodeOnly {
		return it.end
	}
	return it.anchor + it.factor*t.Decodes(it.load, it.done+k)
}

// form puts the next iteration together at now, or leaves the worker idle. What
// is admitted already comes first.
func (w *Worker) form(now float64, sink Sink) {
	w.settleLoads(now)
	if len(w.cancels) > 0 {
		w.journal.flush(now, sink) // a request's blocks are told before its end
		w.settleCancels(now, sink)
	}
	it := &w.it
	it.chunks = it.chunks[:0]
	it.load = Load{}
	it.budget = w.cfg.BudgetTokens
	it.decodes = false
	if w.cfg.Schedule == Mixed {
		w.decode(now, sink)
	}
	for i := 0; i < len(w.prefilling) && it.budget > 0; i++ {
		w.compute(w.prefilling[i], now, sink)
	}
	if !w.preempted {
		w.admit(now, sink)
	}
	if w.cfg.Schedule == PrefillFirst && len(it.chunks) == 0 {
		w.decode(now, sink)
	}
	w.preempted = false
	w.begin(now, sink)
}

// decode lets the decoding sequences take part in the coming iteration.
func (w *Worker) decode(now float64, sink Sink) {
	w.grow(now, sink)
	w.it.decodes = w.decoding > 0
	w.it.budget -= w.decoding
}

// compute gives s its chunk of the coming iteration, as far as the budget and
// the pool go.
func (w *Worker) compute(s *seq, now float64, sink Sink) {
	it := &w.it
	if s.loading > 0 || it.budget <= 0 {
		return
	}
	if !s.started {
		s.started = true
		w.share(s)
	}
	chunk := min(it.budget, s.target-s.kv)
	if !w.extend(s, s.kv+chunk, now, sink) {
		return
	}
	s.chunk = chunk
	it.budget -= chunk
	it.load.PrefillTokens += chunk
	it.load.PrefillPairs += float64(chunk) * (float64(s.kv) + float64(chunk)/2)
	w.nameUpTo(s, s.kv+chunk)
	it.chunks = append(it.chunks, s)
}

// extend gives s the blocks for so many tokens, if it has not got them. When
// the pool has none left, the newest sequence is preempted; it returns false if
// that was s.
func (w *Worker) extend(s *seq, tokens int, now float64, sink Sink) bool {
	for missing := w.blocksOf(tokens) - len(s.blocks); missing > 0; {
		n := min(missing, w.pool.available())
		s.blocks = w.take(s.blocks, n)
		if missing -= n; missing > 0 {
			w.preempt(now, sink)
			if s.state == waiting {
				return false
			}
		}
	}
	return true
}

// begin starts the iteration that was put together, if there is anything in it.
func (w *Worker) begin(now float64, sink Sink) {
	it := &w.it
	it.decodes = it.decodes && w.decoding > 0
	it.active = it.decodes || len(it.chunks) > 0
	if !it.active {
		w.journal.flush(now, sink)
		w.ratio = tokenRatio{value: initialRatio, since: w.steps}
		return
	}
	if it.decodes {
		it.load.Decoding, it.load.KVTokens = w.decoding, w.decodingKV
		w.nameDecoded()
	}
	it.decodeOnly = len(it.chunks) == 0
	it.load.KVUsage = float64(w.pool.used) / float64(w.pool.capacity)
	it.anchor, it.start, it.done = now, now, 0
	it.disturbed = false
	it.factor = w.slowdown
	if w.cfg.Noise != nil {
		it.factor *= w.cfg.Noise()
	}
	if it.decodeOnly {
		it.end = it.endAfter(1, w.cfg.Timing)
	} else {
		it.end = now + it.factor*w.cfg.Timing.Iteration(it.load)
	}
}

// grow gives every decoding sequence the block that its next token starts, if
// it starts one. When the pool has none left, the newest sequence is preempted.
func (w *Worker) grow(now float64, sink Sink) {
	bs := int64(w.cfg.BlockTokens)
	residue := int((bs - w.steps%bs) % bs)
	for i := 0; i < len(w.wheel[residue]); i++ {
		s := w.wheel[residue][i]
		if s.grownAt == w.steps {
			continue
		}
		if w.pool.available() == 0 {
			w.preempt(now, sink)
			i = -1 // the bucket may have changed
			continue
		}
		s.grownAt = w.steps
		s.blocks = w.take(s.blocks, 1)
	}
}

// preempt makes the newest sequence that is not loading wait again.
func (w *Worker) preempt(now float64, sink Sink) {
	for i := len(w.running) - 1; i >= 0; i-- {
		s := w.running[i]
		if s.loading > 0 {
			continue
		}
		w.reportTokensOf(s, sink)
		w.release(s)
		w.it.disturbed, w.preempted = true, true
		if s.cancelled {
			return // it holds nothing now; settleCancels tells of it
		}
		w.waiting = slices.Insert(w.waiting, 0, s)
		w.stats.Preemptions++
		w.retracted()
		sink(Event{Kind: Preempted, At: now, ID: s.ID})
		return
	}
}

// nameDecoded names the blocks that the coming decode step fills.
func (w *Worker) nameDecoded() {
	if w.cfg.RadixTree {
		return
	}
	bs := int64(w.cfg.BlockTokens)
	for _, s := range w.wheel[(2*bs-1-w.steps%bs)%bs] {
		w.nameUpTo(s, w.context(s)+1)
	}
}

// finish ends the current iteration: changes are told, tokens come out.
func (w *Worker) finish(sink Sink) {
	it := &w.it
	now := it.end
	w.stats.BusyMicros += it.end - it.start
	if !it.decodeOnly {
		w.stats.PrefillMicros += it.end - it.start
	}
	it.start = it.end
	w.stats.Iterations++
	w.journal.flush(now, sink)
	if it.decodes {
		w.steps++
		w.decodingKV += int64(w.decoding)
		w.stats.GeneratedTokens += int64(w.decoding)
		it.untold, it.lastDecode = true, now
		if w.steps >= w.nextFinish {
			w.finishDecoding(now, sink)
		}
	}
	for _, s := range it.chunks {
		s.kv += s.chunk
		w.stats.ComputedTokens += int64(s.chunk)
		s.chunk = 0
		if s.kv == s.target {
			w.emerge(s, now, sink)
		}
	}
}

// finishDecoding ends the sequences whose last token just came out.
func (w *Worker) finishDecoding(now float64, sink Sink) {
	w.nextFinish = math.MaxInt64
	for i := 0; i < len(w.running); {
		s := w.running[i]
		if s.state == decoding {
			left := s.OutputTokens - w.out(s)
			if left == 0 {
				w.complete(s, now, sink)
				continue
			}
			w.nextFinish = min(w.nextFinish, w.steps+int64(left))
		}
		i++
	}
}

// emerge puts out the token that follows a computed prompt.
func (w *Worker) emerge(s *seq, now float64, sink Sink) {
	s.generated++
	w.stats.GeneratedTokens++
	if s.told {
		w.stats.InterTokens++
		w.stats.InterTokenMicros += now - s.tokenAt
		sink(Event{Kind: Tokens, At: now, ID: s.ID, Tokens: 1})
	} else {
		s.told = true
		w.countFirst(s, now)
		sink(Event{Kind: FirstToken, At: now, ID: s.ID, HBMTokens: s.hbmTokens, TierTokens: s.tierTokens})
	}
	s.reported, s.tokenAt = s.generated, now
	if s.generated == s.OutputTokens {
		w.complete(s, now, sink)
		return
	}
	i := slices.Index(w.prefilling, s)
	w.prefilling = slices.Delete(w.prefilling, i, i+1)
	w.startDecoding(s)
}

func (w *Worker) complete(s *seq, now float64, sink Sink) {
	w.reportTokensOf(s, sink)
	if w.cfg.RadixTree && s.state == decoding {
		w.nameUpTo(s, w.context(s))
		w.journal.flush(now, sink)
	}
	w.release(s)
	w.it.disturbed = true
	w.stats.Finished++
	sink(Event{Kind: Finished, At: now, ID: s.ID, Tokens: s.generated})
	if s.cancelled {
		s.state = gone // settleCancels drops it
		return
	}
	w.drop(s)
}

// settleCancels lets cancelled sequences go, but for those still loading:
// their blocks are being written.
func (w *Worker) settleCancels(now float64, sink Sink) {
	kept := w.cancels[:0]
	for _, s := range w.cancels {
		if s.state != gone && s.loading > 0 {
			kept = append(kept, s)
			continue
		}
		if s.state == prefilling || s.state == decoding {
			w.release(s)
		}
		if s.state != gone {
			w.reportTokensOf(s, sink)
			sink(Event{Kind: Cancelled, At: now, ID: s.ID})
		}
		w.drop(s)
	}
	clear(w.cancels[len(kept):])
	w.cancels = kept
}

// follow goes on after an iteration: with the next one of the stretch if
// nothing changed, else with a new one.
func (w *Worker) follow(sink Sink) {
	it := &w.it
	now := it.end
	if !it.decodeOnly || it.disturbed || w.everyStep || len(w.cancels) > 0 || w.arrived(now) {
		w.form(now, sink)
		return
	}
	w.grow(now, sink)
	if it.disturbed {
		w.form(now, sink)
		return
	}
	w.nameDecoded()
	it.done++
	it.start, it.end = now, it.endAfter(1, w.cfg.Timing)
}

// arrived reports whether a load or a request wants to take part from now on.
func (w *Worker) arrived(now float64) bool {
	if len(w.waiting) > 0 && !w.blocked && w.waiting[0].arrival <= now {
		return true
	}
	return w.nextLoad() <= now
}
