package policy

import "github.com/rhizome-router/rhizome/clock"

// smg is the cache-aware policy of SMG, the model gateway, over trees that
// KV events keep up to date.
//
// If more than 0.3 of the prompt's blocks are found somewhere, the workers that
// hold most of them are the affine ones, at most 8. Of them, one is over pressure when its requests in flight are more
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
// Assumed, in its favour: the threshold and the limit of 8, which are those of
// its approximate trees (see smgMesh), hold for event-driven ones too. Its
// sources take any overlap of a block there, and in a fleet whose prompts all
// begin alike that sends everything to the first holder, until it is 64
// requests above the mean. Blocks on a lower tier count like those in HBM. The
// options for KV imbalance, decay of overlap and temperature are off, as they
// are by default. smg-mesh differs in what fills the trees, not in the rule.
type smg struct {
	follower
}

const (
	smgThreshold = 0.3
	smgTenants   = 8
	smgAbs       = 64
	smgRel       = 1.5
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
	w := p.settle(p.affine(len(r.Keys), func(w int) int { return runs[w].Len() }))
	cached := cachedTokens(r, runs[w].Len())
	p.send(r, w, r.PromptTokens-cached)
	return Choice{Worker: w, After: p.rpc, CachedTokens: cached}
}

// affine returns the workers with the longest run of a prompt's blocks, if it
// is long enough: at most 8, drawn at random from more. The slice is valid
// until the next call.
func (p *replica) affine(blocks int, run func(worker int) int) []int {
	best, some := 1, p.some[:0]
	for _, w := range p.ups {
		switch n := run(w); {
		case n > best:
			best, some = n, append(some[:0], w)
		case n == best:
			some = append(some, w)
		}
	}
	p.some = some
	if float64(best) <= smgThreshold*float64(blocks) {
		return nil
	}
	if len(some) > smgTenants {
		p.rng.Shuffle(len(some), func(i, j int) { some[i], some[j] = some[j], some[i] })
		some = some[:smgTenants]
	}
	return some
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
