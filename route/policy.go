package route

import (
	"fmt"
	"strings"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/cost"
	"github.com/rhizome-router/rhizome/kv"
	"github.com/zeebo/xxh3"
)

// Policy is a rule for choosing among the candidates.
type Policy string

// The policies of the product.
const (
	Rhizome       Policy = "rhizome"        // least expected added time
	ArticleCost   Policy = "article"        // the article's cost, see cost.Article
	RoundRobin    Policy = "round-robin"    // each worker in turn
	LeastRequests Policy = "least-requests" // fewest requests in flight
	Random        Policy = "random"         // uniform
	Sticky        Policy = "sticky"         // the session's own worker, whatever its load
)

// Policies are all of them, the default first.
var Policies = []Policy{Rhizome, ArticleCost, RoundRobin, LeastRequests, Random, Sticky}

// ParsePolicy returns the policy of a name.
func ParsePolicy(s string) (Policy, error) {
	names := make([]string, len(Policies))
	for i, p := range Policies {
		if string(p) == s {
			return p, nil
		}
		names[i] = string(p)
	}
	return "", fmt.Errorf("unknown policy %q: want one of %s", s, strings.Join(names, ", "))
}

// choose picks one of r.cands, which is not empty, and says why.
func (r *Router) choose(now clock.Instant, q *Query, request cost.Request) choice {
	switch r.cfg.Policy {
	case RoundRobin:
		r.turn++
		return choice{index: r.turn % len(r.cands), why: "its turn"}
	case LeastRequests:
		return r.fewest()
	case Random:
		return choice{index: r.rand.IntN(len(r.cands)), why: "drawn at random"}
	case Sticky:
		return choice{index: r.home(q), why: "home of the session"}
	case ArticleCost:
		r.priceArticle(now, q, request)
	}
	c := r.cheapest(now, q.session())
	if r.cfg.Policy == Rhizome {
		c = r.stay(now, q, c)
	}
	return c
}

// fewest picks a worker with the fewest requests in flight, ties at random.
func (r *Router) fewest() choice {
	least, near, pick := int(^uint(0)>>1), 0, 0
	for i := range r.cands {
		n := r.cands[i].member.Ledger.InFlight()
		if n < least {
			least, near = n, 0
		}
		if n == least {
			if near++; r.rand.IntN(near) == 0 {
				pick = i
			}
		}
	}
	return choice{index: pick, why: "fewest in flight"}
}

// home picks by rendezvous hashing of the session, or of the prompt's first
// key where no session is named: a worker's loss moves only its own sessions.
func (r *Router) home(q *Query) int {
	session := q.session()
	seed := xxh3.HashString(session)
	if session == "" {
		if keys, _ := sentKeys(q.Prompt); len(keys) > 0 {
			seed = uint64(keys[0])
		}
	}
	best, pick := uint64(0), 0
	for i := range r.cands {
		t := r.cands[i].member.Target
		h := uint64(kv.Next(kv.Key(seed), kv.Content(uint64(t.Worker)+uint64(uint16(t.Rank)))))
		if i == 0 || h > best {
			best, pick = h, i
		}
	}
	return pick
}

// priceArticle replaces each candidate's total by the article's cost.
func (r *Router) priceArticle(now clock.Instant, q *Query, request cost.Request) {
	last, known := r.sessions.get(q.session())
	hits := r.expectedHits(q)
	for i := range r.cands {
		c := &r.cands[i]
		full := c.member.Ledger.Load(now, &c.class, tokenTime(&c.class, c.member.Ledger.InFlight()), true)
		load := cost.ArticleLoad{Queue: float64(full.QueuedSeqs), Rho: c.load.Rho, Closed: c.load.Closed, ExpectedShare: expectedShare(hits[i], q)}
		for _, res := range full.Residents {
			load.RemainingTokens += res.RemainingTokens
			load.RemainingSquares += res.RemainingTokens * res.RemainingTokens
		}
		if known && last.target == c.member.Target {
			load.LastWorker, load.SinceSeconds = true, now.Sub(last.at).Seconds()
		}
		c.article = r.cfg.Article.Score(&load, request, c.hit)
		c.total = c.article.TotalMicros()
	}
}
