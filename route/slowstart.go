package route

import (
	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/cost"
	"github.com/rhizome-router/rhizome/fleet"
)

// slowStart makes what the load of newcomers costs count several times, so that
// a burst does not flood a worker of which little is known yet: its kernels may
// have to be compiled, its constants are a guess, it may fall over again. One
// that idles costs nothing more, and where all others are saturated the
// newcomer is still the cheapest by far, so it gets work at once. Newcomers are
// those that were fit for a shorter time than the others: where all began
// together nobody is one.
func (r *Router) slowStart(now clock.Instant, request cost.Request) {
	if r.cfg.SlowStart <= 0 {
		return
	}
	least := 0.0
	for i := range r.cands {
		f := fleet.SlowFactor(r.cands[i].member.FitFor(now), r.cfg.SlowStart)
		if i == 0 || f < least {
			least = f
		}
	}
	for i := range r.cands {
		c := &r.cands[i]
		f := fleet.SlowFactor(c.member.FitFor(now), r.cfg.SlowStart) / least
		if f <= 1 {
			continue
		}
		idle := cost.Score(&c.class, &cost.Load{Rho: c.load.Rho, Closed: c.load.Closed, Cache: c.load.Cache, Distance: c.load.Distance}, request, c.hit, r.cfg.Weights)
		c.slowStartMicros = (f - 1) * max(0, c.terms.TotalMicros()-idle.TotalMicros())
	}
}
