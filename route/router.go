package route

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/cost"
	"github.com/rhizome-router/rhizome/fleet"
	"github.com/rhizome-router/rhizome/index"
	"github.com/rhizome-router/rhizome/kv"
	"github.com/rhizome-router/rhizome/prompt"
)

// Deps are what a Router works on.
type Deps struct {
	Fleet  interface{ View() *fleet.View }
	Index  *index.Index
	Approx *index.Approx
	Clock  clock.Clock
}

// Router places requests. Its methods are safe for concurrent use.
//
// Matching runs outside the lock; scoring, choosing and booking run under it,
// because a decision that others can't see at once makes them herd. It is held
// for microseconds.
type Router struct {
	cfg  Config
	deps Deps

	mu       sync.Mutex
	rand     *rand.Rand
	turn     int // round-robin's
	sizes    *prompt.Calibration
	output   cost.OutputLength
	fits     map[string]*cost.ScaleFit // by class name
	traffic  traffic
	typical  typical
	sessions *sessions
	ring     *ring
	stats    Stats
	cands    []candidate // scratch
}

// Stats counts what the router did since it started.
type Stats struct {
	Requests uint64                   // decisions
	Ended    [len(resultNames)]uint64 // by Result
	// CachedPredicted and CachedActual are summed over the completed requests
	// whose response told its cached tokens; CachedAbsError sums |difference|.
	CachedPredicted uint64
	CachedActual    uint64
	CachedAbsError  uint64
}

// New returns a Router that has seen nothing.
func New(cfg Config, deps Deps) *Router {
	if cfg.Explained == 0 {
		cfg.Explained = defaultExplained
	}
	return &Router{
		cfg: cfg, deps: deps, rand: clock.Rand(cfg.Seed, "route"), sizes: prompt.NewCalibration(),
		fits: make(map[string]*cost.ScaleFit), traffic: newTraffic(), sessions: newSessions(), ring: newRing(cfg.Explained),
	}
}

// Reconfigure makes the next decisions by cfg's policy, weights and article. The
// number of decisions explained and the seed stay what they were.
func (r *Router) Reconfigure(cfg Config) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cfg.Policy, r.cfg.Weights, r.cfg.Article = cfg.Policy, cfg.Weights, cfg.Article
}

// Stats returns the counts so far.
func (r *Router) Stats() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stats
}

// Explain returns what is remembered of a decision.
func (r *Router) Explain(id string) (Explanation, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ring.get(id)
}

// candidate is one member under consideration, with what it would cost.
type candidate struct {
	member   *fleet.Member
	cache    fleet.Cache
	hit      cost.Hit
	source   string      // of the hit: fromEvents, fromSent or ""
	form     prompt.Form // of its blocks where the index speaks for it, else zero
	class    cost.Class
	signals  fleet.Signals
	inFlight int     // before this request
	scale    float64 // of class
	overhead float64 // µs
	load     cost.Load
	terms    cost.Terms
	total    float64 // µs
}

// Decide chooses a worker for q and books the request there. The error is
// [ErrUnknownModel] or [ErrNoWorker].
func (r *Router) Decide(q Query) (*Decision, error) {
	view := r.deps.Fleet.View()
	members, known := view.Serving(q.Prompt.Model)
	switch {
	case !known && view.Pending():
		return nil, ErrNoWorker
	case !known:
		return nil, ErrUnknownModel
	}
	now := r.deps.Clock.Now()
	members, err := eligible(now, view, members, &q)
	if err != nil {
		return nil, err
	}
	hits := r.match(members, q.Prompt)

	r.mu.Lock()
	defer r.mu.Unlock()
	r.deps.Index.Expire(now)
	request := cost.Request{
		PromptTokens: float64(r.sizes.PromptTokens(q.Prompt)),
		OutputTokens: expectedOutput(&q, r.output.Predict(q.Prompt.MaxTokens)),
		Choices:      float64(q.Prompt.N * q.Prompt.Prompts),
	}
	r.cands = r.cands[:0]
	for i, m := range members {
		r.cands = append(r.cands, r.price(now, m, hits[i], q.Prompt, request))
	}
	r.addLaterWait(now)
	chosen, why := r.choose(now, q, request)
	d := r.book(now, q, request, &r.cands[chosen])
	d.trial = d.member.Circuit.Begin(now)
	r.ring.put(r.explain(now, q, request, d, chosen, why))
	return d, nil
}

// excluded reports whether t's worker was tried: its ranks share a fate.
func excluded(list []kv.Target, t kv.Target) bool {
	return slices.ContainsFunc(list, func(e kv.Target) bool { return e.Worker == t.Worker })
}

// price scores one member.
func (r *Router) price(now clock.Instant, m *fleet.Member, h matched, p *prompt.Request, request cost.Request) candidate {
	c := candidate{member: m, cache: h.cache, source: h.source, form: h.form, signals: m.Signals(), inFlight: m.Ledger.InFlight()}
	c.scale, c.overhead = r.fit(m)
	c.class = classOf(m, c.scale, &c.signals)
	c.class.BudgetTokens = max(c.class.BudgetTokens, h.cache.StepTokens)
	perByte, _ := r.sizes.TokensPerByte(p.Model)
	c.hit = h.tokens(request.PromptTokens, perByte)
	step := tokenTime(&c.class, m.Ledger.InFlight())
	m.Ledger.Settle(now, step)
	c.load = m.Ledger.Load(now, &c.class, step, false)
	full := c.load.Decoding+float64(c.load.QueuedSeqs)+request.Choices > float64(c.class.MaxSeqs) ||
		c.class.CapacityTokens > 0 && c.load.UniqueTokens+request.PromptTokens > 0.9*c.class.CapacityTokens
	if full {
		c.load = m.Ledger.Load(now, &c.class, step, true)
	}
	r.addForeign(&c.load, &c.signals)
	c.terms = cost.Score(&c.class, &c.load, request, c.hit, r.cfg.Weights)
	return c
}

// classOf returns a member's constants at its scale, with the limits and
// bandwidths that the worker told or showed.
func classOf(m *fleet.Member, scale float64, s *fleet.Signals) cost.Class {
	class := m.Class.Scaled(scale)
	if s.CapacityTokens.Source != fleet.Default {
		class.CapacityTokens = s.CapacityTokens.Value
	}
	if s.MaxSeqs.Value > 0 {
		class.MaxSeqs = int(s.MaxSeqs.Value)
	}
	if s.KVBytes.Source != fleet.Default {
		class.KVBytes = s.KVBytes.Value
	}
	for tier, bandwidth := range s.BytesPerMicro {
		if bandwidth.Source != fleet.Default {
			class.Links[tier].BytesPerMicro = bandwidth.Value
		}
	}
	return class
}

// addForeign adds what others sent to a worker, each request taken for an
// average one of ours, and how congested its links are.
func (r *Router) addForeign(l *cost.Load, s *fleet.Signals) {
	for tier := range l.Rho {
		l.Rho[tier] = s.Rho[tier].Value
	}
	running, waiting := s.ForeignRunning.Value, s.ForeignWaiting.Value
	l.Decoding += running
	l.ContextTokens += running * r.typical.promptTokens
	l.UniqueTokens += running * r.typical.promptTokens
	l.RemainingTokens += running * r.output.Predict(0) / 2
	if waiting <= 0 {
		return
	}
	tokens := waiting * r.typical.uncachedTokens
	if s.WaitingTokens.Source != fleet.Default && s.Waiting.Value > 0 {
		tokens = s.WaitingTokens.Value * waiting / s.Waiting.Value
	}
	l.QueuedTokens += tokens
	l.QueuedPairs += waiting * cost.Pairs(tokens/waiting, 0)
	l.QueuedSeqs += int(waiting)
}

// typical is the mean request: what one that isn't ours is taken for.
type typical struct {
	promptTokens, uncachedTokens float64
	requests                     float64
}

func (t *typical) observe(promptTokens, uncachedTokens float64) {
	t.requests = min(t.requests+1, 200)
	t.promptTokens += (promptTokens - t.promptTokens) / t.requests
	t.uncachedTokens += (uncachedTokens - t.uncachedTokens) / t.requests
}

// addLaterWait completes the candidates' costs by what they make those wait
// who come later.
func (r *Router) addLaterWait(now clock.Instant) {
	queued := 0.0
	for i := range r.cands {
		queued += r.cands[i].terms.QueueMicros
	}
	traffic := r.traffic.perWorker(now, len(r.cands))
	traffic.QueueMicros = queued / float64(len(r.cands))
	for i := range r.cands {
		t := &r.cands[i].terms
		t.QueueExternalityMicros = r.cfg.Weights.QueueExternality * traffic.LaterWaitMicros(t.PrefillMicros)
		r.cands[i].total = t.TotalMicros()
	}
}

// fit returns how much slower than its class's constants a member is, and its
// fixed overhead in µs.
func (r *Router) fit(m *fleet.Member) (scale, overheadMicros float64) {
	return m.Fit.Within(r.classFit(m))
}

// classFit is the fit of all members of m's class together. There are as many
// classes as presets.
func (r *Router) classFit(m *fleet.Member) *cost.ScaleFit {
	f, ok := r.fits[m.Class.Name]
	if !ok {
		f = new(cost.ScaleFit)
		r.fits[m.Class.Name] = f
	}
	return f
}

// tokenTime is how long a decode step takes on a worker with so many requests.
func tokenTime(class *cost.Class, inFlight int) time.Duration {
	micros := class.StepMicros + class.SeqMicros*float64(inFlight)
	return time.Duration(micros * float64(time.Microsecond))
}

// book enters the chosen candidate into its member's ledger and promises its
// blocks.
func (r *Router) book(now clock.Instant, q Query, request cost.Request, c *candidate) *Decision {
	p := cost.Uncached(request, c.hit)
	b := &fleet.Booking{
		PromptTokens: request.PromptTokens, HBMTokens: c.hit.HBMTokens,
		UncachedTokens: p, UncachedPairs: cost.Pairs(p, request.PromptTokens-p),
		OutputTokens: request.OutputTokens, Choices: request.Choices,
		PredictedTTFT: time.Duration((c.overhead + c.terms.TTFTMicros()) * float64(time.Microsecond)),
		Silent:        !q.Prompt.Stream,
	}
	idle := c.member.Ledger.InFlight() == 0
	c.member.Ledger.Book(now, b)
	alone := cost.Score(&c.member.Class, &cost.Load{}, request, c.hit, cost.Weights{})
	d := &Decision{
		ID: q.ID, Target: c.member.Target, Worker: c.member.Worker,
		PredictedCachedTokens: int(c.hit.HBMTokens + c.hit.LowerTokens),
		PredictedTTFT:         b.PredictedTTFT, CostMicros: c.total,
		member: c.member, booking: b, query: q.Prompt, bookedAt: now,
		sample: idle && c.hit.LowerTokens == 0, alone: alone.TTFTMicros(),
	}
	r.typical.observe(request.PromptTokens, p)
	r.traffic.observe(now, c.terms.PrefillMicros, len(r.cands))
	r.promise(now, d, c)
	r.sessions.put(now, q.Session, c.member.Target)
	r.stats.Requests++
	return d
}

// FirstByte reports that the first byte of a streamed response's body came.
func (r *Router) FirstByte(d *Decision) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if d.firstByte || d.done {
		return
	}
	d.firstByte = true
	now := r.deps.Clock.Now()
	ttft := now.Sub(d.bookedAt)
	scale, _ := r.fit(d.member)
	class := d.member.Class.Scaled(scale)
	d.member.Ledger.FirstToken(now, d.booking, tokenTime(&class, d.member.Ledger.InFlight()))
	d.member.FirstToken(now, d.booking.UncachedTokens)
	if d.sample {
		d.member.Fit.Observe(d.alone, float64(ttft.Microseconds()))
		r.classFit(d.member).Observe(d.alone, float64(ttft.Microseconds()))
	}
	if d.ticket != 0 {
		r.deps.Index.Extend(d.ticket, now.Add(confirmLag))
	}
	r.ring.update(d.ID, func(e *Explanation) { e.ActualTTFTMillis = millis(ttft) })
}

// Done reports the end of a request. Only the first call of a decision counts.
func (r *Router) Done(d *Decision, o Outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if d.done {
		return
	}
	d.done = true
	now := r.deps.Clock.Now()
	d.member.Ledger.Release(now, d.booking)
	r.settlePromise(now, d, o)
	r.stats.Ended[o.Result]++
	settleCircuit(now, d, &o)
	if o.Unreachable {
		d.member.SetHealthy(false)
	}
	u := o.Usage
	if u.Known && o.Result == Completed {
		r.sizes.Observe(d.query.Model, d.query.TextBytes, u.PromptTokens-len(d.query.Tokens)-d.query.ExtraTokens)
		if d.query.Kind != prompt.Embedding {
			r.output.Observe(u.CompletionTokens / max(1, d.query.N*d.query.Prompts))
		}
		if u.CachedTokens >= 0 {
			r.stats.CachedPredicted += uint64(d.PredictedCachedTokens)
			r.stats.CachedActual += uint64(u.CachedTokens)
			r.stats.CachedAbsError += uint64(max(u.CachedTokens-d.PredictedCachedTokens, d.PredictedCachedTokens-u.CachedTokens))
		}
	}
	r.ring.update(d.ID, func(e *Explanation) {
		e.Result = o.Result.String()
		if u.Known {
			e.ActualPromptTokens, e.ActualCachedTokens = u.PromptTokens, u.CachedTokens
		}
	})
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1e3 }
