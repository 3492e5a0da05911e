package policy

import "github.com/rhizome-router/rhizome/clock"

// sglangClassic is the cache-aware switch of the SGLang router.
//
// While the fleet is out of balance, which is max − min > 64 and
// max > 1.5 × min of the requests in flight, it takes the worker with the
// fewest requests. Otherwise it looks for the prompt in a tree of what it sent
// where: if more than 0.3 of the prompt is found, it takes the worker where
// most is found; if not, the worker with the smallest tree, which has most
// room for something new. Either way the prompt is added to the chosen
// worker's tree.
//
// Source: sgl-project/sglang, sgl-router/src/policies/cache_aware.rs and
// tree.rs, with the defaults of its command line. Signals: own requests in
// flight, own routings. No KV events, no metrics; replicas share nothing.
//
// Assumed: the tree works by blocks instead of characters; its limit of 2^26
// characters a worker is 2^24 tokens. The limit holds at all times instead of
// being restored every two minutes. Of several workers with the longest match
// the original takes any; here it is drawn at random. A worker that goes loses
// its tree.
type sglangClassic struct{ rememberer }

const (
	sglangThreshold  = 0.3
	sglangAbs        = 64
	sglangRel        = 1.5
	sglangTreeTokens = 1 << 24
)

// SGLangClassic makes replicas of sglang-classic.
func SGLangClassic() Maker {
	return each(func(cfg Config, i int) Router {
		return &sglangClassic{newRememberer(cfg, "sglang-classic", i, sglangTreeTokens/max(1, cfg.BlockTokens))}
	})
}

// Choose implements Router.
func (p *sglangClassic) Choose(now clock.Instant, r *Request) Choice {
	w, found := p.choose(r)
	cached := cachedTokens(r, found)
	p.tree.touch(now, w, r.Keys)
	p.send(r, w, r.PromptTokens-cached)
	return Choice{Worker: w, CachedTokens: cached}
}

// choose returns a worker and how many of the prompt's blocks it was sent
// before.
func (p *sglangClassic) choose(r *Request) (worker, found int) {
	if p.unbalanced() {
		w := p.fewest(p.ups)
		return w, p.tree.run(w, r.Keys)
	}
	longest := p.least()
	for _, w := range p.ups {
		longest.offer(w, float64(-p.tree.run(w, r.Keys)))
	}
	if found := -longest.score; found > sglangThreshold*float64(len(r.Keys)) {
		return longest.worker, int(found)
	}
	smallest := p.least()
	for _, w := range p.ups {
		smallest.offer(w, float64(p.tree.size(w)))
	}
	return smallest.worker, p.tree.run(smallest.worker, r.Keys)
}

func (p *sglangClassic) unbalanced() bool {
	low, high := p.book.loads[p.ups[0]].requests, 0
	for _, w := range p.ups {
		n := p.book.loads[w].requests
		low, high = min(low, n), max(high, n)
	}
	return high-low > sglangAbs && float64(high) > sglangRel*float64(low)
}
