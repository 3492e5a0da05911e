package route

import (
	"cmp"
	"math"
	"slices"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/cost"
	"github.com/rhizome-router/rhizome/fleet"
	"github.com/rhizome-router/rhizome/kv"
)

// Where a model has more workers than preselectFrom, a decision looks closely
// only at those that may turn out the cheapest by a rough price, which goes by
// sums and looks at no request by itself.
const (
	preselectFrom = 32
	// perClass is how many are taken of each class of workers, perDepth of those
	// that hold about equally much of the prompt, and atRandom of all, unless they
	// were too dear when they were looked at last: each is, now and then.
	perClass, perDepth, atRandom = 8, 4, 4
	// depths is how finely what workers hold is told apart: by so many parts of
	// the prompt.
	depths = 16
	// maxClasses bounds how many classes are told apart; what is beyond counts as
	// of the last.
	maxClasses = 16
)

// preselection is scratch memory of one decision.
type preselection struct {
	asked      asked
	order      []picked // the members taken, ascending
	stale      []int32
	idle, busy walk
	depths     [2 * (depths + 1)]shortlist // HBM alone, and with a lower tier
}

// picked is a member taken, and whether it is priced however dear it looks.
type picked struct {
	member int32
	must   bool
	micros float64 // its rough price; 0 until it is known
}

// shortlist keeps the cheapest of what it is offered, cheapest first.
type shortlist struct {
	n       int
	members [perDepth]int32
	micros  [perDepth]float64
}

func (s *shortlist) offer(member int32, micros float64) {
	if s.n == perDepth && micros >= s.micros[perDepth-1] {
		return
	}
	s.n = min(perDepth, s.n+1)
	i := s.n - 1
	for ; i > 0 && s.micros[i-1] > micros; i-- {
		s.members[i], s.micros[i] = s.members[i-1], s.micros[i-1]
	}
	s.members[i], s.micros[i] = member, micros
}

// preselect returns which of the members of a pool to price, by their places in
// ascending order: the cheapest of each class, the cheapest holders by how much of
// the prompt they hold, some at random, the session's last worker, and that of its
// workflow's lease; of the best grade there is. Of these it leaves out who looks
// much dearer than the cheapest. The result is valid until the next call.
func (r *Router) preselect(s *search, p *pool, q *Query, z *sizing, request cost.Request) []picked {
	x := &r.preselection
	r.lookAround(s.now, p)
	p.epoch++
	x.order = x.order[:0]
	grade := p.best()
	if grade == fleet.Draining {
		return x.order
	}
	if last, known := r.sessions.get(q.session()); known {
		r.takeTarget(s.now, p, grade, last.target, q)
	}
	if leased, _, known := r.leases.held(s.now, q); known {
		r.takeTarget(s.now, p, grade, leased.Holder.Target, q)
	}
	x.asked = askOf(request)
	least := r.takeHolders(s, p, grade, q, z)
	for c := range p.grades[grade].classes {
		least = r.takeCheapest(s.now, p, grade, c, least, q)
	}
	for range atRandom {
		if i := int32(r.rand.IntN(len(p.members))); !tooDear(p.price(s.now, i, &x.asked, cost.Hit{}), least) {
			r.take(s.now, p, grade, i, q, false)
		}
	}
	r.leaveOut(s, p, z)
	slices.SortFunc(x.order, func(a, b picked) int { return cmp.Compare(a.member, b.member) })
	return x.order
}

// Left out is who is dearer than dearFactor times the cheapest and dearMicros, by
// rough prices.
const dearFactor, dearMicros = 1.5, 5000

// tooDear reports whether that holds of a rough price.
func tooDear(micros, least float64) bool { return micros > dearFactor*least+dearMicros }

func (r *Router) leaveOut(s *search, p *pool, z *sizing) {
	x := &r.preselection
	least := math.Inf(1)
	for k := range x.order {
		c := &x.order[k]
		h := s.held(p, c.member)
		switch {
		case h != nil:
			c.micros = p.price(s.now, c.member, &x.asked, h.tokens(z))
		case c.micros == 0:
			c.micros = p.price(s.now, c.member, &x.asked, cost.Hit{})
		}
		least = min(least, c.micros)
	}
	x.order = slices.DeleteFunc(x.order, func(c picked) bool { return !c.must && tooDear(c.micros, least) })
}

// take takes a member if it is of that grade and may serve q.
func (r *Router) take(now clock.Instant, p *pool, grade fleet.Grade, i int32, q *Query, must bool) {
	e := &p.entries[i]
	if e.taken == p.epoch || !p.mayServe(i, q) {
		return
	}
	if p.changed(now, i) {
		r.look(now, p, i)
	}
	if e.grade == grade {
		e.taken = p.epoch
		r.preselection.order = append(r.preselection.order, picked{member: i, must: must})
	}
}

func (r *Router) takeTarget(now clock.Instant, p *pool, grade fleet.Grade, t kv.Target, q *Query) {
	if i, ok := p.at[t]; ok {
		r.take(now, p, grade, i, q, true)
	}
}

// mayServe reports whether q was not tried there in vain, and fits in.
func (p *pool) mayServe(i int32, q *Query) bool {
	if len(q.Exclude) > 0 && excluded(q.Exclude, p.members[i].Target) {
		return false
	}
	most := p.lengths[i]
	return most == 0 || ExactTokens(q.Prompt) <= most
}

// looks bounds how often a class's order is gone through again because members
// that came first had changed.
const looks = 4

// takeCheapest takes the first perClass of a class that may serve q, as far as
// they are not too dear where somebody is known who costs no more than least. It
// returns the least price that is known then.
func (r *Router) takeCheapest(now clock.Instant, p *pool, grade fleet.Grade, class int, least float64, q *Query) float64 {
	x := &r.preselection
	for look := range looks {
		orders := &p.grades[grade].classes[class].orders[x.asked.typical]
		x.idle.start(&orders.idle)
		x.busy.start(&orders.busy)
		x.stale = x.stale[:0]
		first, taken, known := len(x.order), 0, least
		for taken < perClass {
			i, ok := x.pass(now)
			if !ok {
				break
			}
			if !p.mayServe(i, q) {
				continue
			}
			micros := p.price(now, i, &x.asked, cost.Hit{})
			if taken > 0 && tooDear(micros, known) {
				break
			}
			if look < looks-1 && p.changed(now, i) {
				x.stale = append(x.stale, i)
			}
			known = min(known, micros)
			if taken++; p.entries[i].taken != p.epoch {
				x.order = append(x.order, picked{i, taken == 1, micros})
			} else if taken == 1 {
				x.order[slices.IndexFunc(x.order, func(c picked) bool { return c.member == i })].must = true
			}
		}
		if len(x.stale) == 0 {
			for _, c := range x.order[first:] {
				p.entries[c.member].taken = p.epoch
			}
			return known
		}
		x.order = x.order[:first]
		for _, i := range x.stale {
			r.look(now, p, i)
		}
	}
	return least
}

// pass returns the next member of a class: the cheaper of the next idle and the
// next busy one.
func (x *preselection) pass(now clock.Instant) (member int32, ok bool) {
	idle, some := x.idle.peek()
	busy, more := x.busy.peek()
	switch {
	case more && (!some || busy.key-now.Micros() < idle.key):
		x.busy.pass()
		return busy.member, true
	case some:
		x.idle.pass()
		return idle.member, true
	}
	return 0, false
}

// takeHolders takes the cheapest of those that hold about equally much. It
// returns the least of their rough prices.
func (r *Router) takeHolders(s *search, p *pool, grade fleet.Grade, q *Query, z *sizing) float64 {
	x := &r.preselection
	for i := range x.depths {
		x.depths[i].n = 0
	}
	prompt, least := x.asked.request.PromptTokens, math.Inf(1)
	for k := range s.hits {
		i := s.place(p, k)
		if i >= 0 {
			p.entries[i].heldBy, p.entries[i].hit = p.epoch, int32(k)
		}
		if i >= 0 && p.entries[i].grade != grade && p.changed(s.now, i) {
			r.look(s.now, p, i) // it may be back
		}
		if i < 0 || s.hits[k].run.Len() == 0 || p.entries[i].grade != grade || !p.mayServe(i, q) {
			continue
		}
		hit := s.hits[k].tokens(z)
		held := hit.Tokens()
		if held <= 0 {
			continue
		}
		depth := int(held * depths / max(held, prompt))
		if hit.LowerTokens > 0 {
			depth += depths + 1
		}
		micros := p.price(s.now, i, &x.asked, hit)
		x.depths[depth].offer(i, micros)
		least = min(least, micros)
	}
	for d := range x.depths {
		for _, i := range x.depths[d].members[:x.depths[d].n] {
			r.take(s.now, p, grade, i, q, false)
		}
	}
	return least
}

// roughLoad is about what a member has to do, by sums.
func (r *Router) roughLoad(now clock.Instant, m *fleet.Member, class *cost.Class) cost.Load {
	step := tokenTime(class, m.Ledger.InFlight())
	m.Ledger.Settle(now, step)
	return m.Rough(now, class, step, fleet.Typical{
		PromptTokens: r.typical.promptTokens, UncachedTokens: r.typical.uncachedTokens, OutputTokens: r.typical.outputTokens})
}
