package policy

import "github.com/rhizome-router/rhizome/clock"

// powerOfTwo draws two different workers and takes the one with fewer requests
// in flight; of equals, the one drawn first.
//
// Source: the power-of-two mode that Dynamo (frontend option --router-mode)
// and the SGLang gateway (src/policies/power_of_two.rs) ship. Signals: the
// replica's own requests in flight; replicas share nothing.
type powerOfTwo struct{ replica }

// PowerOfTwo makes replicas of power-of-two.
func PowerOfTwo() Maker {
	return each(func(cfg Config, i int) Router {
		return &powerOfTwo{newReplica(cfg, "power-of-two", i)}
	})
}

// Choose implements Router.
func (p *powerOfTwo) Choose(_ clock.Instant, r *Request) Choice {
	a, b := p.two(p.ups)
	if p.book.loads[b].requests < p.book.loads[a].requests {
		a = b
	}
	p.send(r, a, r.PromptTokens)
	return Choice{Worker: a}
}
