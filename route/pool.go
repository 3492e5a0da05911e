package route

import (
	"math/bits"
	"slices"
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/cost"
	"github.com/rhizome-router/rhizome/fleet"
	"github.com/rhizome-router/rhizome/kv"
)

// A pool keeps the members that serve a model in order, by what typical requests
// would cost on them by a rough price, so that a decision looks at the first of
// each order only, however many there are. A member is looked at anew when
// something happened there that this router did, and when its metrics were read;
// of what else changes, a peer's word and time, the next look tells. Members have
// one in turn, every lookEvery if decisions are many, and those that come first in
// an order have one whenever they changed. The router's lock guards a pool.
type pool struct {
	view     *fleet.View
	members  []*fleet.Member
	lengths  []int               // tokens that each takes at most; 0: any
	at       map[kv.Target]int32 // places in members
	inView   []int32             // places in members by those in view.Members; -1
	fromPool []int32             // and the other way round
	entries  []entry
	heaps    [typicals][]int32 // where each member stands in its order
	grades   [fleet.Draining]graded
	next     int           // whom it is the turn of to be looked at
	lookedAt clock.Instant // by when turns were taken
	worseAt  clock.Instant // when those that are not of the best grade were
	epoch    uint64        // counts decisions
}

// graded are the members of a grade.
type graded struct {
	members int
	classes []pooled
}

// pooled are those of a class.
type pooled struct {
	fit    *cost.Fit
	class  cost.Class // of the one looked at last
	orders [typicals]struct{ idle, busy order }
}

// entry is what is known of a member since the last look.
type entry struct {
	grade   fleet.Grade
	class   int32 // place among its grade's
	busy    bool  // prefills wait there: keys are instants, in µs, at which the cost would be 0
	keys    [typicals]float64
	floors  [typicals]float64 // what the cost is once they wait no more
	slope   float64           // µs a prompt token, and a (query, key) pair
	pairs   float64
	ready   clock.Instant // when nothing should wait any more
	looked  clock.Instant
	signals uint64 // fleet.Member.Changes then
	ledger  uint64 // fleet.Ledger.Changes then
	taken   uint64 // by the decision of that epoch
	heldBy  uint64 // the epoch of the search that found it to hold something
	hit     int32  // which of the search's hits that is
}

const (
	// typicals are the lengths of prompts that orders are kept for.
	typicals                = 2
	shortPrompt, longPrompt = 1 << 10, 1 << 14 // tokens
	typicalOutput           = 200
	lookEvery, worseEvery   = time.Second, 250 * time.Millisecond
	mostLooks               = 4 // whose turn it is, at once
	lateTurns               = lookEvery / 8
)

func typicalTokens(i int) float64 { return float64([typicals]int{shortPrompt, longPrompt}[i]) }

// typicalOf returns for which length of prompts a request's order is kept.
func typicalOf(promptTokens float64) int {
	if bits.Len64(uint64(promptTokens)) > (bits.Len64(shortPrompt)+bits.Len64(longPrompt))/2 {
		return 1
	}
	return 0
}

// pools are those of the present view, by model.
type pools struct {
	view  *fleet.View
	all   []*pool
	of    map[string]*pool
	where map[*fleet.Member][]standing // of those in more than one pool, or one
}

// standing is a member's place in a pool.
type standing struct {
	pool *pool
	at   int32
}

// poolOf returns the pool of those that serve a model. Models that the same
// members serve share one.
func (r *Router) poolOf(now clock.Instant, view *fleet.View, model string, members []*fleet.Member) *pool {
	ps := &r.pools
	if ps.view != view {
		*ps = pools{view: view, of: make(map[string]*pool), where: make(map[*fleet.Member][]standing)}
	}
	if p := ps.of[model]; p != nil {
		return p
	}
	lengths := make([]int, len(members))
	for i, m := range members {
		lengths[i] = view.MaxModelLen(model, m)
	}
	for _, p := range ps.all {
		if slices.Equal(p.members, members) && slices.Equal(p.lengths, lengths) {
			ps.of[model] = p
			return p
		}
	}
	p := newPool(view, members, lengths)
	p.lookedAt, p.worseAt = now, now
	ps.of[model], ps.all = p, append(ps.all, p)
	for i, m := range members {
		ps.where[m] = append(ps.where[m], standing{p, int32(i)})
		r.classOf(m, model)
		r.look(now, p, int32(i))
	}
	return p
}

func newPool(view *fleet.View, members []*fleet.Member, lengths []int) *pool {
	p := &pool{view: view, members: members, lengths: lengths, at: make(map[kv.Target]int32, len(members)),
		inView: make([]int32, len(view.Members)), fromPool: make([]int32, len(members)), entries: make([]entry, len(members))}
	for i, m := range members {
		p.at[m.Target] = int32(i)
		p.entries[i].grade = fleet.Draining
		p.fromPool[i] = -1
	}
	for i, m := range view.Members {
		p.inView[i] = -1
		if at, ok := p.at[m.Target]; ok {
			p.inView[i], p.fromPool[at] = at, int32(i)
		}
	}
	for t := range p.heaps {
		p.heaps[t] = make([]int32, len(members))
		for i := range p.heaps[t] {
			p.heaps[t][i] = -1
		}
	}
	return p
}

// happened puts a member at its place in all orders, after something happened
// there.
func (r *Router) happened(now clock.Instant, m *fleet.Member) {
	for _, s := range r.pools.where[m] {
		r.look(now, s.pool, s.at)
	}
}

// ended is happened at the end of a request.
func (r *Router) ended(now clock.Instant, m *fleet.Member) {
	for _, s := range r.pools.where[m] {
		r.look(now, s.pool, s.at)
		r.takeTurns(now, s.pool, 0)
	}
}

// look puts a member at its place in the orders of a pool.
func (r *Router) look(now clock.Instant, p *pool, i int32) {
	m, e := p.members[i], &p.entries[i]
	grade := m.Grade(now)
	m.Seen(now, grade)
	e.looked, e.signals = now, m.Changes()
	if grade == fleet.Draining {
		p.out(i)
		return
	}
	at := p.classAt(grade, m.ClassFit)
	g := &p.grades[grade].classes[at]
	class := &g.class
	r.constantsInto(m, class)
	m.Limits(class)
	load := r.roughLoad(now, m, class)
	e.ledger = m.Ledger.Changes()
	if busy := load.QueuedTokens > 0; e.grade != grade || e.class != at || e.busy != busy {
		p.out(i)
		e.grade, e.class, e.busy = grade, at, busy
		p.grades[grade].members++
	}
	stalled := 1 + r.cfg.Weights.PrefillExternality*load.Decoding
	e.slope, e.pairs = stalled*class.TokenMicros, stalled*class.PairMicros
	zero := 0.0
	if e.busy {
		zero = now.Micros()
		e.ready = now.Add(micros(class.QueueMicros(&load)))
	}
	for t := range typicals {
		request := cost.Request{PromptTokens: typicalTokens(t), OutputTokens: typicalOutput, Choices: 1}
		terms := cost.Score(class, &load, request, cost.Hit{}, r.cfg.Weights)
		e.keys[t] = zero + terms.TotalMicros()
		terms.QueueMicros = 0
		e.floors[t] = terms.TotalMicros()
		g.order(t, e.busy).put(p.heaps[t], i, e.keys[t])
	}
}

func (g *pooled) order(t int, busy bool) *order {
	if busy {
		return &g.orders[t].busy
	}
	return &g.orders[t].idle
}

// out takes a member out of all orders.
func (p *pool) out(i int32) {
	e := &p.entries[i]
	if e.grade == fleet.Draining {
		return
	}
	g := &p.grades[e.grade]
	for t := range typicals {
		g.classes[e.class].order(t, e.busy).drop(p.heaps[t], i)
	}
	g.members--
	e.grade = fleet.Draining
}

// classAt returns the place of a class among those of a grade. What is beyond
// maxClasses counts as of the last.
func (p *pool) classAt(grade fleet.Grade, fit *cost.Fit) int32 {
	g := &p.grades[grade]
	i := slices.IndexFunc(g.classes, func(c pooled) bool { return c.fit == fit })
	if i >= 0 {
		return int32(i)
	}
	if len(g.classes) < maxClasses {
		g.classes = append(g.classes, pooled{fit: fit})
	}
	return int32(len(g.classes) - 1)
}

// takeTurns looks at those whose turn it is, where turns are so late. It is done
// when requests end, which nobody waits for, and by decisions only where that
// doesn't suffice.
func (r *Router) takeTurns(now clock.Instant, p *pool, late time.Duration) {
	n := len(p.members)
	p.lookedAt = max(p.lookedAt, now.Add(-lookEvery))
	each := lookEvery / time.Duration(n)
	if now.Sub(p.lookedAt) < late {
		return
	}
	s := r.seats.Load()
	for range min(mostLooks, int(now.Sub(p.lookedAt)/max(1, each))) {
		p.lookedAt = p.lookedAt.Add(each)
		p.next = (p.next + 1) % n
		r.look(now, p, int32(p.next))
		if i := p.fromPool[p.next]; i >= 0 && s != nil && s.view == p.view {
			s.check(i)
		}
	}
}

// lookAround looks at those whose turn it is, and at those that may have become
// better.
func (r *Router) lookAround(now clock.Instant, p *pool) {
	r.takeTurns(now, p, lateTurns)
	best := p.best()
	if p.grades[min(best, fleet.Suspect)].members == len(p.members) || now.Sub(p.worseAt) < worseEvery {
		return
	}
	p.worseAt = now
	for i := range p.entries {
		if p.entries[i].grade > best || best == fleet.Draining {
			r.look(now, p, int32(i))
		}
	}
}

// best returns the best grade that there are members of; Draining: there are
// none.
func (p *pool) best() fleet.Grade {
	for g := range p.grades {
		if p.grades[g].members > 0 {
			return fleet.Grade(g)
		}
	}
	return fleet.Draining
}

// changed reports whether something happened at a member since it was looked at.
func (p *pool) changed(now clock.Instant, i int32) bool {
	m, e := p.members[i], &p.entries[i]
	return e.looked < now && (e.busy && e.ready <= now) || e.ledger != m.Ledger.Changes() || e.signals != m.Changes() || e.grade != m.Grade(now)
}

// asked is a request as rough prices see it.
type asked struct {
	request cost.Request
	typical int // for which length of prompts its order is kept
	// What a member computes that holds nothing, above what a typical prompt makes
	// it compute.
	tokens, pairs float64
}

func askOf(request cost.Request) asked {
	a := asked{request: request, typical: typicalOf(request.PromptTokens)}
	a.tokens, a.pairs = a.beyond(cost.Hit{})
	return a
}

// beyond returns what is computed above the typical prompt where so much is held.
func (a *asked) beyond(hit cost.Hit) (tokens, pairs float64) {
	uncached, typical := cost.Uncached(a.request, hit), typicalTokens(a.typical)
	return uncached - typical, cost.Pairs(uncached, a.request.PromptTokens-uncached) - cost.Pairs(typical, 0)
}

// price is about what a request would cost on a member that holds so much of its
// prompt, by the last look there.
func (p *pool) price(now clock.Instant, i int32, a *asked, hit cost.Hit) float64 {
	e := &p.entries[i]
	micros := e.keys[a.typical]
	if e.busy {
		micros = max(e.floors[a.typical], micros-now.Micros())
	}
	tokens, pairs := a.tokens, a.pairs
	if hit.Tokens() > 0 {
		tokens, pairs = a.beyond(hit)
	}
	micros += e.slope*tokens + e.pairs*pairs
	if hit.LowerTokens > 0 && e.grade != fleet.Draining {
		c := &p.grades[e.grade].classes[e.class].class
		if link := c.Links[hit.Tier]; link.BytesPerMicro > 0 {
			micros += link.SetupMicros + hit.LowerTokens*c.KVBytes/link.BytesPerMicro
		}
	}
	return micros
}

// serving returns how many members there are of the best grade.
func (p *pool) serving() int {
	if g := p.best(); g < fleet.Draining {
		return p.grades[g].members
	}
	return 0
}
