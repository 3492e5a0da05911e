package sim

import (
	"strconv"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/route"
	"github.com/rhizome-router/rhizome/sim/policy"
)

// queuer is a router that may have requests wait, and may refuse them.
type queuer interface {
	// Enter is Choose where the answer may come later. Without waits it is the
	// choice, or refused; else told brings it, once. What told does must wait
	// until the router has returned from whatever made it call.
	Enter(now clock.Instant, r *policy.Request, told func(c policy.Choice, refused bool)) (c policy.Choice, waits *route.Waiting, refused bool)
	// Placed says that the choice told for a request is being carried out.
	Placed(id uint64)
	// Examine looks at who waits.
	Examine()
}

// ask has a replica choose a worker for a request, now or when it has room. One
// that was lost with its worker has waited before and does not again.
func (w *world) ask(i int, now float64) {
	f := &w.flights[i]
	began := w.wall.Now()
	q, ok := f.replica.router.(queuer)
	if !ok || f.attempts > 1 {
		c := f.replica.router.Choose(w.instant(now), &f.request)
		w.record.decided(w.wall.Now().Sub(began))
		w.chosen(i, c, now)
		return
	}
	c, waits, refused := q.Enter(w.instant(now), &f.request, func(c policy.Choice, refused bool) {
		w.schedule(float64(w.clock.Now())/1e3, func(now float64) {
			if refused {
				w.end(i, now, true)
				return
			}
			q.Placed(f.request.ID)
			w.chosen(i, c, now)
		})
	})
	w.record.decided(w.wall.Now().Sub(began))
	switch {
	case refused:
		w.end(i, now, true)
	case waits != nil:
		w.schedule(now+micros(waits.MaxWait()), func(float64) { q.Examine() })
	default:
		w.chosen(i, c, now)
	}
}

// Enter implements [queuer].
func (p *product) Enter(_ clock.Instant, r *policy.Request, told func(policy.Choice, bool)) (policy.Choice, *route.Waiting, bool) {
	choice := func(d *route.Decision) policy.Choice {
		p.live[r.ID] = d
		return policy.Choice{Worker: p.numbers[d.Target], CachedTokens: d.PredictedCachedTokens}
	}
	d, w, err := p.router.Enter(p.query(r), func(d *route.Decision, err error) {
		if err != nil {
			told(policy.Choice{}, true)
			return
		}
		told(choice(d), false)
	})
	switch {
	case err != nil:
		return policy.Choice{}, nil, true
	case w != nil:
		return policy.Choice{}, w, false
	}
	c := choice(d)
	p.Placed(r.ID)
	return c, nil, false
}

// Placed implements [queuer].
func (p *product) Placed(id uint64) {
	if p.terms != nil {
		p.explain(strconv.FormatUint(id, 10))
	}
}

// Examine implements [queuer].
func (p *product) Examine() { p.router.Examine(nil) }
