package policy

import (
	"math"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/index"
)

// LMetricParams are exponents and weights round LMetric's product. As
// published there are none: all are 1.
type LMetricParams struct {
	RequestExponent float64 // of the number of requests
	QueuedWeight    float64 // of tokens queued against the request's own
	RunningWeight   float64 // of a running request against a queued one
	LowerCredit     float64 // share of a lower tier's hit that counts as cached
}

// DefaultLMetric returns the product as published.
func DefaultLMetric() LMetricParams {
	return LMetricParams{RequestExponent: 1, QueuedWeight: 1, RunningWeight: 1, LowerCredit: 1}
}

// lmetric multiplies what a request would wait for and how crowded it would
// be. The lowest product wins, equal ones are drawn at random:
//
//	(queued uncached tokens + own uncached tokens) · (running + queued requests + 1)
//
// Source: Zhang et al., "LMetric: Simple is Better - Multiplication May Be All
// You Need for LLM Request Scheduling", arXiv 2603.15202, the product of
// P-token and batch size. Signals: KV events; own requests in flight, with
// their uncached tokens until the first token; the metrics' running and
// waiting requests and waiting uncached tokens for what other replicas sent.
//
// Assumed: the request itself counts as one, as the ports in AIBrix
// (l_metric_local.go) and in the SGLang gateway (policies/lmetric.rs) have it:
// otherwise every idle worker scores 0 whatever it holds. Blocks on a lower
// tier count as cached. One replica knows all requests exactly; with several,
// the last look at the metrics tells the others' share, which is what the
// worker had beyond this replica's own at that moment. The paper has one
// router and shares nothing.
type lmetric struct {
	follower
	p LMetricParams
}

// LMetric makes replicas of lmetric with given parameters.
func LMetric(p LMetricParams) Maker {
	return each(func(cfg Config, i int) Router {
		return &lmetric{newFollower(cfg, "lmetric", i), p}
	})
}

// Choose implements Router.
func (l *lmetric) Choose(_ clock.Instant, r *Request) Choice {
	runs := l.caches.match(r.Keys)
	best := l.least()
	for _, w := range l.ups {
		best.offer(w, l.score(r, w, runs[w]))
	}
	w := best.worker
	cached := cachedTokens(r, runs[w].Len())
	l.send(r, w, r.PromptTokens-cached)
	return Choice{Worker: w, CachedTokens: cached}
}

// score returns the product for a worker.
func (l *lmetric) score(r *Request, worker int, run index.Run) float64 {
	own := &l.book.loads[worker]
	queued, running, tokens := float64(own.waiting), float64(own.requests-own.waiting), float64(own.prefillTokens)
	if l.cfg.Replicas > 1 {
		g := &l.gauges[worker]
		foreign := g.foreignRequests()
		foreignQueued := min(foreign, or(g.t.Waiting, 0))
		queued += foreignQueued
		running += foreign - foreignQueued
		tokens += g.foreignTokens()
	}
	hbm := float64(cachedTokens(r, run.HBM))
	lower := float64(cachedTokens(r, run.Len())) - hbm
	uncached := float64(r.PromptTokens) - hbm - l.p.LowerCredit*lower
	requests := l.p.RunningWeight*running + queued + 1
	if l.p.RequestExponent != 1 {
		requests = math.Pow(requests, l.p.RequestExponent)
	}
	return (l.p.QueuedWeight*tokens + uncached) * requests
}

// tunableLMetric describes the product's exponents and weights to an optimiser.
func tunableLMetric() Tunable {
	d := DefaultLMetric()
	return Tunable{
		Params: []Param{
			{Name: "request_exponent", Low: 0, High: 4, Default: d.RequestExponent},
			{Name: "queued_weight", Low: 0.05, High: 20, Log: true, Default: d.QueuedWeight},
			{Name: "running_weight", Low: 0.05, High: 20, Log: true, Default: d.RunningWeight},
			{Name: "lower_credit", Low: 0, High: 1, Default: d.LowerCredit},
		},
		Make: func(x []float64) Maker {
			return LMetric(LMetricParams{RequestExponent: x[0], QueuedWeight: x[1], RunningWeight: x[2], LowerCredit: x[3]})
		},
	}
}
