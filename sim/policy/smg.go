package policy

import "github.com/rhizome-router/rhizome/clock"

// smg is the cache-aware policy of SMG, the model gateway, over trees that
// KV events keep up to date.
//
// The workers that hold most of the prompt's leading blocks are the affine
// ones. Of them, one is over pressure when its requests in flight are more
// than 1.5 times the mean of the fleet and more than 64 above it. The request
// goes to the affine worker not over pressure with the least expected wait
// (see expectedWait); if all affine ones are over pressure, to that worker of
// the whole fleet which is not (of all, if all are); if none holds anything,
// to the one of the whole fleet.
//
// Source: smg-project/smg, model_gateway/src/policies/cache_aware.rs
// (select_worker_event_driven, select_final_from_affinity) with defaults.
// Signals: KV events; requests in flight through this replica; the metrics'
// waiting requests and tokens and KV usage. Replicas share nothing: each has
// its own tree and its own count of requests.
//
// Assumed: blocks on a lower tier count like those in HBM, in its favour. The
// options for KV imbalance, decay of overlap and temperature are off. (At most
// 8 holders are looked at in the approximate tree, see smgMesh; the
// event-driven path has no such limit.)
type smg struct {
	follower
	some []int
}

const (
	smgAbs = 64
	smgRel = 1.5
)

// SMG makes replicas of smg.
func SMG() Maker {
	return each(func(cfg Config, i int) Router {
		return &smg{follower: newFollower(cfg, "smg", i)}
	})
}

// SMGRadixIndex makes replicas of smg-radix-index: the rule of smg, but all
// replicas ask one index service, which takes 2 ms, and choose by load alone
// while it is out of reach.
//
// Source: smg-project/smg, pull requests 2394, 2437 and 2438 (the service
// smg-radix-index and its use by the policy, with a deadline of 2 ms). Each
// replica still counts only its own requests.
//
// Assumed: one replica's events feed the index, and what happened while the
// service was out of reach is known when it is back. An attempt to ask it then
// fails at once.
func SMGRadixIndex() Maker {
	return sharing("smg-radix-index", func(f follower) Router { return &smg{follower: f} })
}

// Choose implements Router.
func (p *smg) Choose(now clock.Instant, r *Request) Choice {
	if p.outOfReach(now) {
		w := p.leastWait(p.ups)
		p.send(r, w, r.PromptTokens)
		return Choice{Worker: w}
	}
	runs := p.caches.match(r.Keys)
	best := 1
	affine := p.some[:0]
	for _, w := range p.ups {
		switch n := runs[w].Len(); {
		case n > best:
			best, affine = n, append(affine[:0], w)
		case n == best:
			affine = append(affine, w)
		}
	}
	p.some = affine
	w := p.settle(affine)
	cached := cachedTokens(r, runs[w].Len())
	p.send(r, w, r.PromptTokens-cached)
	return Choice{Worker: w, After: p.rpc, CachedTokens: cached}
}

// settle chooses among the workers that hold most of a prompt, or elsewhere.
func (p *replica) settle(affine []int) int {
	sum := 0
	for _, w := range p.ups {
		sum += p.book.loads[w].requests
	}
	mean := float64(sum) / float64(len(p.ups))
	calm := make([]int, 0, 16)
	for _, w := range affine {
		if !p.pressed(w, mean) {
			calm = append(calm, w)
		}
	}
	if len(calm) > 0 {
		return p.leastWait(calm)
	}
	if len(affine) > 0 {
		for _, w := range p.ups {
			if !p.pressed(w, mean) {
				calm = append(calm, w)
			}
		}
		if len(calm) > 0 {
			return p.leastWait(calm)
		}
	}
	return p.leastWait(p.ups)
}

func (p *replica) pressed(worker int, mean float64) bool {
	n := float64(p.book.loads[worker].requests)
	return n > smgRel*mean && n > mean+smgAbs
}
