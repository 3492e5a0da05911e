package route

import (
	"slices"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/cost"
	"github.com/rhizome-router/rhizome/fleet"
)

// Where a model has more workers than preselectFrom, a decision looks closely
// only at those that may turn out the cheapest by a rough price, which goes by
// sums and looks at no request by itself.
const (
	preselectFrom = 32
	// perClass is how many are taken of each class of workers, perDepth of those
	// that hold about equally much of the prompt, and atRandom of all: whoever
	// looks dear by stale numbers is looked at now and then.
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
	taken   []bool // by member
	order   []int  // the members taken, ascending
	classes [maxClasses]shortlist
	depths  [2 * (depths + 1)]shortlist // HBM alone, and with a lower tier
}

// shortlist keeps the cheapest of what it is offered, cheapest first.
type shortlist struct {
	class   *cost.Fit
	n       int
	members [perClass]int
	micros  [perClass]float64
}

func (s *shortlist) offer(member int, micros float64, limit int) {
	if s.n == limit && micros >= s.micros[limit-1] {
		return
	}
	s.n = min(limit, s.n+1)
	i := s.n - 1
	for ; i > 0 && s.micros[i-1] > micros; i-- {
		s.members[i], s.micros[i] = s.members[i-1], s.micros[i-1]
	}
	s.members[i], s.micros[i] = member, micros
}

// preselect returns which of the members to price, as their indices in
// ascending order: all of them where they are few or the policy looks at all.
// Else the cheapest of each class, the cheapest holders by how much of the prompt
// they hold, some at random, the session's last worker, and that of its
// workflow's lease. The result is valid until the next call.
func (r *Router) preselect(now clock.Instant, members []*fleet.Member, hits []matched, q *Query, z *sizing, request cost.Request) []int {
	s := &r.preselection
	s.order = s.order[:0]
	if len(members) <= preselectFrom || r.cfg.Policy != Rhizome {
		for i := range members {
			s.order = append(s.order, i)
		}
		return s.order
	}
	s.taken = slices.Grow(s.taken[:0], len(members))[:len(members)]
	clear(s.taken)
	for i := range s.classes {
		s.classes[i].n, s.classes[i].class = 0, nil
	}
	for i := range s.depths {
		s.depths[i].n = 0
	}
	last, known := r.sessions.get(q.session())
	leased, _, hasLease := r.leases.held(now, q)
	for i, m := range members {
		if m.ClassFit == nil {
			r.classOf(m, q.Prompt.Model)
		}
		hit := hits[i].tokens(z)
		micros := r.rough(now, m, request, hit)
		s.of(m.ClassFit).offer(i, micros, perClass)
		if held := hit.Tokens(); held > 0 {
			depth := int(held * depths / max(held, request.PromptTokens))
			if hit.LowerTokens > 0 {
				depth += depths + 1
			}
			s.depths[depth].offer(i, micros, perDepth)
		}
		if known && m.Target == last.target || hasLease && m.Target == leased.Holder.Target {
			s.taken[i] = true
		}
	}
	for i := range s.classes {
		s.take(&s.classes[i])
	}
	for i := range s.depths {
		s.take(&s.depths[i])
	}
	for range atRandom {
		s.taken[r.rand.IntN(len(members))] = true
	}
	for i, taken := range s.taken {
		if taken {
			s.order = append(s.order, i)
		}
	}
	return s.order
}

func (s *preselection) take(list *shortlist) {
	for _, i := range list.members[:list.n] {
		s.taken[i] = true
	}
}

// of returns the list of a class.
func (s *preselection) of(c *cost.Fit) *shortlist {
	i := slices.IndexFunc(s.classes[:], func(l shortlist) bool { return l.class == c || l.class == nil })
	if i < 0 {
		i = maxClasses - 1
	}
	if s.classes[i].class == nil {
		s.classes[i].class = c
	}
	return &s.classes[i]
}

// rough is about what the request would cost on a member.
func (r *Router) rough(now clock.Instant, m *fleet.Member, request cost.Request, hit cost.Hit) float64 {
	class := r.constants(m)
	m.Limits(&class)
	step := tokenTime(&class, m.Ledger.InFlight())
	m.Ledger.Settle(now, step)
	load := m.Rough(now, &class, step, fleet.Typical{
		PromptTokens: r.typical.promptTokens, UncachedTokens: r.typical.uncachedTokens, OutputTokens: r.typical.outputTokens})
	terms := cost.Score(&class, &load, request, hit, r.cfg.Weights)
	return terms.TotalMicros()
}
