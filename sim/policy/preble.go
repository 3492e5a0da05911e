package policy

import (
	"time"

	"github.com/rhizome-router/rhizome/clock"
)

// preble is E2 of Preble's global scheduler: exploit a cached prefix or
// explore.
//
// It keeps a tree of what it sent where, cut to what each worker's memory
// holds. If the longest match of the prompt is longer than the rest of it, it
// exploits: of the workers with that match, the one with the least load L. If
// not, it explores: the worker with the least L + M + P.
//
//	L  what the worker was sent in the last 3 minutes: for each request the time
//	   of its uncached prefill and of decoding a mean answer
//	M  for the blocks that leave the worker's memory to make room: the time to
//	   compute each again × the share of the recent requests that used it
//	P  the time of this prompt's uncached prefill there
//
// When it would exploit the most loaded worker, and that one's load is more
// than 1.4 times the least, it sends the request to the least loaded one.
//
// Source: Srivatsa et al., "Preble: Efficient Distributed Prompt Scheduling for
// LLM Serving", ICLR 2025, arXiv 2407.00023, section 3.2 and algorithm 1; the
// authors' WukLab/preble. Signals: own routings, lengths of finished answers,
// each worker's capacity. No KV events, no gauges of load; Preble has one
// global scheduler, so replicas share nothing.
//
// Assumed: the regressions that the authors fit offline for each model and
// accelerator are linear here, 65 µs per prompt token and 2 ms per token of
// answer, which is a Llama-3-70B step on four H100 shared by some ten requests.
// M looks at the 16 blocks next to go and stands for all that do. The
// threshold 1.4 is the authors' default for rebalancing as far as known. The
// replication of prefixes whose queueing grows, and the local scheduler's
// fairness, are left out. Ties are drawn at random.
type preble struct {
	rememberer
	recent  []assignment // of the last 3 minutes, in order
	loads   []float64    // by worker: L, µs
	answers answers
}

// assignment is one request's share in L.
type assignment struct {
	at     clock.Instant
	worker int
	micros float64
}

// answers is the mean length of finished answers.
type answers struct {
	n      float64
	tokens float64
}

const (
	prebleWindow        = 3 * time.Minute
	preblePrefillMicros = 65   // per token
	prebleDecodeMicros  = 2000 // per token
	prebleColdAnswer    = 200  // tokens, before an answer ended
	prebleBalance       = 1.4
	prebleTokens        = 450_000 // of a worker's memory until it tells
	prebleSample        = 16      // blocks
)

// Preble makes replicas of preble.
func Preble() Maker {
	return each(func(cfg Config, i int) Router {
		return &preble{rememberer: newRememberer(cfg, "preble", i, prebleTokens/max(1, cfg.BlockTokens)),
			loads: make([]float64, cfg.Workers)}
	})
}

// Choose implements Router.
func (p *preble) Choose(now clock.Instant, r *Request) Choice {
	p.forgetOld(now)
	longest, holders := 0, p.some[:0]
	for _, w := range p.ups {
		switch n := p.tree.run(w, r.Keys); {
		case n > longest:
			longest, holders = n, append(holders[:0], w)
		case n == longest && n > 0:
			holders = append(holders, w)
		}
	}
	p.some = holders
	var w int
	if cached := cachedTokens(r, longest); cached > r.PromptTokens-cached {
		w = p.exploit(holders)
	} else {
		w = p.explore(now, r)
	}
	cached := cachedTokens(r, p.tree.run(w, r.Keys))
	p.assign(now, r, w, r.PromptTokens-cached)
	return Choice{Worker: w, CachedTokens: cached}
}

// exploit returns the least loaded holder of the longest match, or the least
// loaded worker of all if that holder is far ahead of it.
func (p *preble) exploit(holders []int) int {
	w := p.leastLoaded(holders)
	for _, other := range p.ups {
		if p.loads[other] > p.loads[w] {
			return w
		}
	}
	if lightest := p.leastLoaded(p.ups); p.loads[w] > prebleBalance*p.loads[lightest] {
		return lightest
	}
	return w
}

func (p *preble) leastLoaded(among []int) int {
	l := p.least()
	for _, w := range among {
		l.offer(w, p.loads[w])
	}
	return l.worker
}

// explore returns the worker with the least L + M + P.
func (p *preble) explore(now clock.Instant, r *Request) int {
	l := p.least()
	for _, w := range p.ups {
		run := p.tree.run(w, r.Keys)
		uncached := r.PromptTokens - cachedTokens(r, run)
		l.offer(w, p.loads[w]+p.eviction(now, r, w, len(r.Keys)-run)+float64(uncached)*preblePrefillMicros)
	}
	return l.worker
}

// eviction returns M in µs for a worker that stores so many new blocks.
func (p *preble) eviction(now clock.Instant, r *Request, worker, blocks int) float64 {
	l := &p.tree.workers[worker]
	out := min(len(l.at), len(l.at)+blocks-l.cap)
	if out <= 0 || len(p.recent) == 0 {
		return 0
	}
	sample, used := min(out, prebleSample), 0.0
	for i, n := l.oldest(), 0; n < sample; i, n = l.nodes[i].prev, n+1 {
		if now.Sub(l.nodes[i].used) <= prebleWindow {
			used += min(1, float64(l.nodes[i].uses)/float64(len(p.recent)))
		}
	}
	return used / float64(sample) * float64(out) * float64(r.BlockTokens) * preblePrefillMicros
}

// assign sends a request to a worker.
func (p *preble) assign(now clock.Instant, r *Request, worker, uncached int) {
	if t := &p.gauges[worker].t; t.HBMTokens.Known {
		p.tree.workers[worker].cap = int(t.HBMTokens.Value) / max(1, r.BlockTokens)
	}
	answer := float64(prebleColdAnswer)
	if p.answers.n > 0 {
		answer = p.answers.tokens / p.answers.n
	}
	micros := float64(uncached)*preblePrefillMicros + answer*prebleDecodeMicros
	p.recent = append(p.recent, assignment{now, worker, micros})
	p.loads[worker] += micros
	p.tree.touch(now, worker, r.Keys)
	p.send(r, worker, uncached)
}

// forgetOld drops what was sent before the window.
func (p *preble) forgetOld(now clock.Instant) {
	for len(p.recent) > 0 && now.Sub(p.recent[0].at) > prebleWindow {
		p.loads[p.recent[0].worker] -= p.recent[0].micros
		p.recent = p.recent[1:]
	}
	if len(p.recent) == 0 {
		clear(p.loads) // what is left of them is rounding
	}
}

// Done implements Router.
func (p *preble) Done(_ clock.Instant, id uint64, u Usage) {
	p.book.done(id)
	if !u.Failed {
		p.answers.n++
		p.answers.tokens += float64(u.CompletionTokens)
	}
}
