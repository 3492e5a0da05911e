package policy

import (
	"math"
	"time"

	"github.com/rhizome-router/rhizome/clock"
)

// aibrix is AIBrix's prefix-cache routing.
//
// When the most and the fewest requests in flight are more than 8 apart, only
// the workers with the fewest remain. Of those that were sent a prefix of the
// prompt before, the longest match wins, in whole percent of the prompt, of
// equals the one with fewer requests, if its requests are at most the fleet's
// mean plus one standard deviation; else the next. If none is left, the worker
// with the fewest requests of the whole fleet. Ties are drawn at random.
//
// Source: vllm-project/aibrix, pkg/plugins/gateway/algorithms/prefix_cache.go
// and pkg/utils/prefixcacheindexer. Signals: own requests in flight, own
// routings. No KV events (an option), no metrics; replicas share nothing.
//
// Assumed: the gate is that of the releases up to 0.5; later sources ask also
// that the most requests be more than twice the mean plus one. The table's
// 200,000 blocks, of 16 tokens there, hold for each worker alone and blocks of
// this fleet's size, in its favour; blocks unused for 20 minutes go.
type aibrix struct {
	rememberer
}

const (
	aibrixGap      = 8
	aibrixBlocks   = 200_000
	aibrixLifetime = 20 * time.Minute
)

// AIBrix makes replicas of aibrix-prefix.
func AIBrix() Maker {
	return each(func(cfg Config, i int) Router {
		p := &aibrix{rememberer: newRememberer(cfg, "aibrix-prefix", i, aibrixBlocks)}
		p.tree.lifetime = aibrixLifetime
		return p
	})
}

// Choose implements Router.
func (p *aibrix) Choose(now clock.Instant, r *Request) Choice {
	w := p.matched(r)
	if w < 0 {
		w = p.fewest(p.ups)
	}
	cached := cachedTokens(r, p.tree.run(w, r.Keys))
	p.tree.touch(now, w, r.Keys)
	p.send(r, w, r.PromptTokens-cached)
	return Choice{Worker: w, CachedTokens: cached}
}

// matched returns the worker of the best match that is not too busy, or -1.
func (p *aibrix) matched(r *Request) int {
	mean, deviation, eligible := p.spread()
	best := p.least()
	for _, w := range eligible {
		percent := 0
		if n := p.tree.run(w, r.Keys); n > 0 {
			percent = n * 100 / len(r.Keys)
		}
		requests := float64(p.book.loads[w].requests)
		if percent > 0 && requests <= mean+deviation {
			// Requests break ties of whole percents: both are whole numbers.
			best.offer(w, float64(-percent)*(1<<32)+requests)
		}
	}
	return best.worker
}

// spread returns the mean of the requests in flight, their standard deviation,
// and the workers that the gate lets through.
func (p *aibrix) spread() (mean, deviation float64, eligible []int) {
	n := float64(len(p.ups))
	low, high := p.book.loads[p.ups[0]].requests, 0
	for _, w := range p.ups {
		x := p.book.loads[w].requests
		mean += float64(x) / n
		low, high = min(low, x), max(high, x)
	}
	p.some = p.some[:0]
	for _, w := range p.ups {
		x := p.book.loads[w].requests
		deviation += (float64(x) - mean) * (float64(x) - mean) / n
		if high-low <= aibrixGap || x == low {
			p.some = append(p.some, w)
		}
	}
	return mean, math.Sqrt(deviation), p.some
}
