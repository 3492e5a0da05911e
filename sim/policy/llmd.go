package policy

import (
	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/kv"
)

// llmdWeights are the weights of llm-d's three scores.
type llmdWeights struct{ match, kv, queue float64 }

func defaultLLMDWeights() llmdWeights { return llmdWeights{match: 3, kv: 2, queue: 2} }

// llmdScores gives score what both of llm-d's rules add up for a worker, higher is
// better:
//
//	3·match + 2·(1 − KV usage) + 2·(most waiting − waiting)/(most − fewest waiting)
//
// where the last fraction is 1 for all when equally many wait everywhere.
//
// Source: llm-d/llm-d-inference-scheduler, the scorers prefix-cache,
// kv-cache-utilization and queue, with the weights of the recipe for
// intelligent scheduling. Assumed: a worker whose metrics never came has an
// empty queue and no KV in use.
func (r *replica) llmdScores(w llmdWeights, match func(worker int) float64, score func(worker int, score float64)) {
	low, high := 0.0, 0.0
	for i, worker := range r.ups {
		q := or(r.gauges[worker].t.Waiting, 0)
		if i == 0 {
			low, high = q, q
		}
		low, high = min(low, q), max(high, q)
	}
	for _, worker := range r.ups {
		t := &r.gauges[worker].t
		queue := 1.0
		if high > low {
			queue = (high - or(t.Waiting, 0)) / (high - low)
		}
		score(worker, w.match*match(worker)+w.kv*(1-or(t.KVUsage, 0))+w.queue*queue)
	}
}

// llmdApprox is llm-d with the approximate prefix scorer: match is the share
// of the prompt's blocks that went to the worker before and are remembered.
// The highest score wins, equal ones are drawn at random.
//
// Source: llm-d/llm-d-inference-scheduler,
// pkg/epp/framework/plugins/requestcontrol/dataproducer/approximateprefix
// (auto-tuned: the worker's block size, at least 64 tokens, and a list of as
// many blocks as its memory holds) and llmdScores. Signals: own routings; the
// metrics' waiting requests, KV usage and capacity. No KV events, so nothing
// tells of evictions; replicas share nothing.
//
// Assumed: 31250 blocks until a worker has told its capacity. A list loses the
// end of a prompt before its beginning; the original loses the beginning
// first, and with it the rest: in its favour.
type llmdApprox struct {
	rememberer
	group  int // blocks of the fleet in one of the scorer's
	groups []kv.Key
}

const (
	llmdBlockTokens = 64
	llmdBlocks      = 31_250
)

// LLMDApprox makes replicas of llm-d-approx.
func LLMDApprox() Maker {
	return each(func(cfg Config, i int) Router {
		size := max(1, cfg.BlockTokens)
		return &llmdApprox{rememberer: newRememberer(cfg, "llm-d-approx", i, llmdBlocks),
			group: (llmdBlockTokens + size - 1) / size}
	})
}

// Choose implements Router.
func (p *llmdApprox) Choose(now clock.Instant, r *Request) Choice {
	p.groups = p.groups[:0]
	for i := p.group - 1; i < len(r.Keys); i += p.group {
		p.groups = append(p.groups, r.Keys[i])
	}
	best := p.least()
	p.llmdScores(defaultLLMDWeights(), func(w int) float64 {
		return share(p.tree.run(w, p.groups), len(p.groups))
	}, func(w int, score float64) { best.offer(w, -score) })
	w := best.worker
	cached := cachedTokens(r, p.tree.run(w, p.groups)*p.group)
	if t := &p.gauges[w].t; t.HBMTokens.Known {
		p.tree.workers[w].cap = int(t.HBMTokens.Value) / max(1, p.group*r.BlockTokens)
	}
	p.tree.touch(now, w, p.groups)
	p.send(r, w, r.PromptTokens-cached)
	return Choice{Worker: w, CachedTokens: cached}
}

func share(part, whole int) float64 {
	if whole == 0 {
		return 0
	}
	return float64(part) / float64(whole)
}
