package policy

import (
	"cmp"
	"math"
	"slices"

	"github.com/rhizome-router/rhizome/clock"
)

// SGLRouterParams are the options of SGLang's new router.
type SGLRouterParams struct {
	MinMatchedTokens float64 // a shorter match is none
	CandidateShare   float64 // of the fleet that may be candidates
	MinCandidates    float64 // but at least so many
	MaxCandidates    float64 // and at most
	SwitchTokens     float64 // uncached tokens within which two candidates are near
	PressureTokens   float64 // by which the more pressed of two near ones must exceed the other
	PressureRatio    float64 // and so many times
}

// DefaultSGLRouter returns the published options.
func DefaultSGLRouter() SGLRouterParams {
	return SGLRouterParams{MinMatchedTokens: 1024, CandidateShare: 0.05, MinCandidates: 8, MaxCandidates: 32,
		SwitchTokens: 1024, PressureTokens: 1024, PressureRatio: 1.5}
}

// sglRouter is the cache-aware policy of SGLang's new router.
//
// Candidates are the workers that hold at least 1024 tokens of the prompt: the
// min(n, 32, max(8, 5 % of n)) with the longest match, of equals those under
// less pressure. Those without room are left out: that have no free place
// among the running requests, or not enough free KV memory for the prompt. The
// winner is the one with the fewest uncached tokens, unless another is within
// 1024 tokens of it and the winner is pressed: its waiting uncached tokens are
// over 1024 more and over 1.5 times those of the other. Equal ones are ordered
// by pressure: waiting uncached tokens, then waiting requests, then running
// ones, then this replica's requests in flight.
//
// Without a candidate it draws two workers and takes the one under less
// pressure that has room, else the one of the fleet that has room under least
// pressure, else the less pressed one of two drawn.
//
// Source: sgl-project/sglang, experimental/sgl-router/src/policies:
// cache_aware.rs, admission.rs, power_of_two.rs. Signals: KV events; the
// metrics' waiting uncached tokens, waiting and running requests and capacity;
// own requests in flight, which alone are the pressure when not all workers
// compared tell their waiting uncached tokens. Replicas share no load.
//
// Assumed: a match is blocks/blocks of the prompt × prompt tokens, on whatever
// tier. Queue gate, saturation pin and session affinity are options that are
// off. The last tie is broken by the worker's number, as there.
type sglRouter struct {
	follower
	p    SGLRouterParams
	some []candidate
}

// candidate is a worker with a long enough match.
type candidate struct {
	worker   int
	matched  int // tokens
	uncached int
}

// SGLRouter makes replicas of sgl-router with given parameters, each with a
// tree of its own that KV events keep up to date.
func SGLRouter(p SGLRouterParams) Maker {
	return each(func(cfg Config, i int) Router {
		return &sglRouter{follower: newFollower(cfg, "sgl-router", i), p: p}
	})
}

// SGLKVIndexer makes replicas of sgl-kv-indexer: the rule of sgl-router, but
// all replicas ask one index service, which takes 2 ms; while it is out of
// reach there are no candidates.
//
// Source: sgl-project/sglang, issue 31458 and pull request 33370 (one
// process-local indexer for a deployment, asked at ingress). Assumed: one
// replica's events feed the index, and what happened while the service was out
// of reach is known when it is back. An attempt to ask it then fails at once.
func SGLKVIndexer() Maker {
	return sharing("sgl-kv-indexer", func(f follower) Router { return &sglRouter{follower: f, p: DefaultSGLRouter()} })
}

// Choose implements Router.
func (p *sglRouter) Choose(now clock.Instant, r *Request) Choice {
	if p.outOfReach(now) {
		w := p.miss(r)
		p.send(r, w, r.PromptTokens)
		return Choice{Worker: w}
	}
	w := p.hit(r)
	if w < 0 {
		w = p.miss(r)
	}
	cached := cachedTokens(r, p.caches.runs[w].Len())
	p.send(r, w, r.PromptTokens-cached)
	return Choice{Worker: w, After: p.rpc, CachedTokens: cached}
}

// hit returns the best candidate, or -1.
func (p *sglRouter) hit(r *Request) int {
	runs := p.caches.match(r.Keys)
	some := p.some[:0]
	for _, w := range p.ups {
		if blocks := runs[w].Len(); blocks > 0 {
			matched := r.PromptTokens * blocks / len(r.Keys)
			if float64(matched) >= p.p.MinMatchedTokens {
				some = append(some, candidate{w, matched, r.PromptTokens - matched})
			}
		}
	}
	p.some = some
	told := p.tell(some)
	slices.SortFunc(some, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(b.matched, a.matched), p.comparePressure(a.worker, b.worker, told))
	})
	some = some[:min(len(some), p.candidates())]
	some = slices.DeleteFunc(some, func(c candidate) bool { return !p.room(r, c.worker) })
	if len(some) == 0 {
		return -1
	}
	told = p.tell(some)
	floor := slices.MinFunc(some, func(a, b candidate) int { return cmp.Compare(a.uncached, b.uncached) })
	winner := floor
	for _, c := range some {
		if float64(c.uncached-floor.uncached) <= p.p.SwitchTokens && p.compare(winner, c, told) > 0 {
			winner = c
		}
	}
	return winner.worker
}

// candidates returns how many there may be.
func (p *sglRouter) candidates() int {
	n := float64(len(p.ups))
	return int(min(n, p.p.MaxCandidates, max(p.p.MinCandidates, math.Ceil(p.p.CandidateShare*n))))
}

// tell reports whether all candidates' waiting tokens are known.
func (p *sglRouter) tell(some []candidate) bool {
	return !slices.ContainsFunc(some, func(c candidate) bool { return !p.gauges[c.worker].t.WaitingTokens.Known })
}

// compare orders two candidates; the lesser is the better.
func (p *sglRouter) compare(a, b candidate, told bool) int {
	if told && math.Abs(float64(a.uncached-b.uncached)) <= p.p.SwitchTokens {
		if p.pressed(a.worker, b.worker) {
			return 1
		}
		if p.pressed(b.worker, a.worker) {
			return -1
		}
	}
	return cmp.Or(cmp.Compare(a.uncached, b.uncached), p.comparePressure(a.worker, b.worker, told))
}

// pressed reports whether a is materially more pressed than b.
func (p *sglRouter) pressed(a, b int) bool {
	x, y := p.gauges[a].t.WaitingTokens.Value, p.gauges[b].t.WaitingTokens.Value
	return x-y > p.p.PressureTokens && x > y*p.p.PressureRatio
}

// comparePressure orders two workers by pressure; told says that their metrics
// may be compared.
func (p *sglRouter) comparePressure(a, b int, told bool) int {
	byNumber := cmp.Or(cmp.Compare(p.book.loads[a].requests, p.book.loads[b].requests), cmp.Compare(a, b))
	if !told {
		return byNumber
	}
	x, y := &p.gauges[a].t, &p.gauges[b].t
	return cmp.Or(
		cmp.Compare(x.WaitingTokens.Value, y.WaitingTokens.Value),
		cmp.Compare(x.Waiting.Value, y.Waiting.Value),
		cmp.Compare(x.Running.Value, y.Running.Value),
		byNumber)
}

// room reports whether a worker can take a request at once, as far as its
// metrics say.
func (p *sglRouter) room(r *Request, worker int) bool {
	t := &p.gauges[worker].t
	if t.Running.Known && t.MaxSeqs.Known && t.Running.Value+1 > t.MaxSeqs.Value {
		return false
	}
	return !t.KVUsage.Known || !t.HBMTokens.Known ||
		t.KVUsage.Value*t.HBMTokens.Value+float64(r.PromptTokens) <= t.HBMTokens.Value
}

// miss chooses by load alone.
func (p *sglRouter) miss(r *Request) int {
	a, b := p.two(p.ups)
	if p.morePressed(a, b) {
		a, b = b, a
	}
	if p.room(r, a) {
		return a
	}
	if p.room(r, b) {
		return b
	}
	best := -1
	for _, w := range p.ups {
		if p.room(r, w) && (best < 0 || p.morePressed(best, w)) {
			best = w
		}
	}
	if best < 0 {
		best, b = p.two(p.ups)
		if p.morePressed(best, b) {
			best = b
		}
	}
	return best
}

// morePressed reports whether a is under more pressure than b. Equals are not.
func (p *sglRouter) morePressed(a, b int) bool {
	told := p.gauges[a].t.WaitingTokens.Known && p.gauges[b].t.WaitingTokens.Known
	if told {
		x, y := &p.gauges[a].t, &p.gauges[b].t
		if c := cmp.Or(cmp.Compare(x.WaitingTokens.Value, y.WaitingTokens.Value),
			cmp.Compare(x.Waiting.Value, y.Waiting.Value), cmp.Compare(x.Running.Value, y.Running.Value)); c != 0 {
			return c > 0
		}
	}
	return p.book.loads[a].requests > p.book.loads[b].requests
}

// tunableSGLRouter describes the options to an optimiser.
func tunableSGLRouter() Tunable {
	d := DefaultSGLRouter()
	return Tunable{
		Params: []Param{
			{Name: "min_matched_tokens", Low: 1, High: 32768, Log: true, Default: d.MinMatchedTokens},
			{Name: "candidate_share", Low: 0.01, High: 1, Log: true, Default: d.CandidateShare},
			{Name: "min_candidates", Low: 1, High: 64, Log: true, Default: d.MinCandidates},
			{Name: "max_candidates", Low: 1, High: 256, Log: true, Default: d.MaxCandidates},
			{Name: "switch_tokens", Low: 16, High: 65536, Log: true, Default: d.SwitchTokens},
			{Name: "pressure_tokens", Low: 16, High: 65536, Log: true, Default: d.PressureTokens},
			{Name: "pressure_ratio", Low: 1, High: 8, Log: true, Default: d.PressureRatio},
		},
		Make: func(x []float64) Maker {
			return SGLRouter(SGLRouterParams{MinMatchedTokens: x[0], CandidateShare: x[1],
				MinCandidates: math.Round(x[2]), MaxCandidates: math.Round(x[3]),
				SwitchTokens: x[4], PressureTokens: x[5], PressureRatio: x[6]})
		},
	}
}
