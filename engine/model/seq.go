package model

import "slices"

type state uint8

const (
	waiting state = iota
	prefilling
	decoding
	gone // finished
)

// seq is a request in the worker.
type seq struct {
	Request
	arrival   float64
	state     state
	cancelled bool
	started   bool // since its admission a chunk was computed
	told      bool // FirstToken was told
	counted   bool // hbmTokens and tierTokens are those of its first admission

	blocks  []int32 // of the pool, one reference each
	named   int     // leading blocks that bear their key
	loading int     // uploads under way that it waits for

	window, spares []int32 // sliding blocks: of its window, −1 where one is missing, and blank ones; see window.go

	kv        int // tokens with KV; decoding: when it began to decode
	target    int // tokens to compute before the next one comes out
	generated int // tokens out; decoding: when it began to decode
	chunk     int // tokens it computes in the current iteration

	startStep int64 // decoding: Worker.steps when it began
	residue   int   // decoding: (context − steps) mod block, constant
	grownAt   int64 // step for which it got a block last

	hbmTokens, tierTokens int // found at its first admission
	reported              int // tokens told

	admitted float64 // when first; negative: not yet
	tokenAt  float64 // when its last token came out; decoding: the one before it began to decode
}

// maxTokens returns the most tokens that the engine must expect.
func (s *seq) maxTokens() int { return max(s.MaxTokens, s.OutputTokens) }

func (w *Worker) newSeq() *seq {
	if n := len(w.spare); n > 0 {
		s := w.spare[n-1]
		w.spare = w.spare[:n-1]
		return s
	}
	return new(seq)
}

// drop forgets a request that holds nothing any more.
func (w *Worker) drop(s *seq) {
	delete(w.seqs, s.ID)
	*s = seq{blocks: s.blocks[:0], window: s.window[:0], spares: s.spares[:0]}
	w.spare = append(w.spare, s)
}

// out returns the tokens a sequence has put out so far.
func (w *Worker) out(s *seq) int {
	if s.state == decoding {
		return s.generated + int(w.steps-s.startStep)
	}
	return s.generated
}

// context returns the tokens of a decoding sequence that have KV.
func (w *Worker) context(s *seq) int { return s.kv + int(w.steps-s.startStep) }

// startDecoding moves a sequence whose prompt is computed into the wheel.
func (w *Worker) startDecoding(s *seq) {
	s.state, s.startStep, s.grownAt = decoding, w.steps, -1
	bs := int64(w.cfg.BlockTokens)
	s.residue = int(((int64(s.kv)-w.steps)%bs + bs) % bs)
	w.wheel[s.residue] = append(w.wheel[s.residue], s)
	at := w.steps + int64(s.OutputTokens-s.generated)
	if w.decoding == 0 || at < w.nextFinish {
		w.nextFinish = at
	}
	w.decoding++
	w.decodingKV += int64(s.kv)
}

// release takes an admitted sequence out of the batch and gives its blocks
// back, deepest first, so that the LRU order evicts a chain from its end. The
// sequence keeps what it has put out.
func (w *Worker) release(s *seq) {
	if s.state == decoding {
		bucket := w.wheel[s.residue]
		i := slices.Index(bucket, s)
		w.wheel[s.residue] = slices.Delete(bucket, i, i+1)
		w.decoding--
		w.decodingKV -= int64(w.context(s))
		if n := w.steps - s.startStep; n > 0 {
			w.stats.InterTokens += n
			w.stats.InterTokenMicros += w.it.lastDecode - s.tokenAt
			s.tokenAt = w.it.lastDecode
		}
		s.generated = w.out(s)
	} else {
		i := slices.Index(w.prefilling, s)
		w.prefilling = slices.Delete(w.prefilling, i, i+1)
	}
	i := slices.Index(w.running, s)
	w.running = slices.Delete(w.running, i, i+1)
	for i := len(s.blocks) - 1; i >= 0; i-- {
		w.pool.unpin(s.blocks[i])
	}
	s.blocks = s.blocks[:0]
	w.releaseWindow(s)
	s.state, s.kv, s.named, s.chunk, s.started = waiting, 0, 0, 0, false
	w.blocked = false
}

// ReportTokens tells the decode tokens that came out since it was called last,
// one Tokens event per sequence. What a sequence has left untold is told in
// any case before it finishes or is preempted, so that a driver need not call
// ReportTokens at all, and calls it as often as it wants to see tokens.
func (w *Worker) ReportTokens(sink Sink) {
	if !w.it.untold {
		return
	}
	w.it.untold = false
	for _, s := range w.running {
		if s.state == decoding {
			w.reportTokensOf(s, sink)
		}
	}
}

func (w *Worker) reportTokensOf(s *seq, sink Sink) {
	if n := w.out(s) - s.reported; n > 0 {
		s.reported += n
		sink(Event{Kind: Tokens, At: w.it.lastDecode, ID: s.ID, Tokens: n})
	}
}
