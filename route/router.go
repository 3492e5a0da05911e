package route

import (
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/cost"
	"github.com/rhizome-router/rhizome/fleet"
	"github.com/rhizome-router/rhizome/index"
	"github.com/rhizome-router/rhizome/kv"
	"github.com/rhizome-router/rhizome/mesh"
	"github.com/rhizome-router/rhizome/prompt"
)

// Deps are what a Router works on.
type Deps struct {
	Fleet  interface{ View() *fleet.View }
	Index  *index.Index
	Approx *index.Approx
	Clock  clock.Clock
	// Learned is what is known of the tokens of text prompts; nil: nothing.
	Learned *prompt.Learned
	// Mesh is where other replicas are told what this one does, by Tell, and
	// where it hears of them, on the same Clock; nil for a router that is alone.
	// The router is to be made before the mesh runs.
	Mesh *mesh.Node
	// Leases are the workflows' places that replicas agreed on; nil: none.
	Leases Leases
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
	source   *rand.PCG
	rand     *rand.Rand // of source
	turn     int        // round-robin's
	sizes    *prompt.Calibration
	output   *cost.OutputLength
	classAt  map[ClassKey]*class
	classes  map[*cost.Fit]*class // the same by their fit
	traffic  traffic
	typical  typical
	sessions *sessions
	ring     *ring
	audits   audits
	stats    Stats
	peers    struct { // see SetPeers
		replicas int
		delay    time.Duration
	}
	peering   *peering // nil: alone
	agents    *agents
	leases    leasing
	harnesses harnesses
	queue     backlog
	serving   int         // members that might serve the request under way
	cands     []candidate // scratch
	probe     candidate   // scratch of roomOn
	byCost    []ranked    // scratch of explain
	tie       NearTie     // of the decision under way
	ties      []string    // why a near tie of so many was decided as it was
	preselection
	ends     []float64 // scratch of size
	pools    pools
	seats    atomic.Pointer[seats]
	searches sync.Pool   // of *search
	choosy   atomic.Bool // the policy looks at the best of many members alone
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
	// Keyed counts the decisions by what named the prompt.
	Keyed [numKeyed]uint64
}

// New returns a Router that has seen nothing.
func New(cfg Config, deps Deps) *Router {
	if cfg.Explained == 0 {
		cfg.Explained = defaultExplained
	}
	source := clock.Source(cfg.Seed, "route")
	x := &Router{
		cfg: cfg, deps: deps, source: source, rand: rand.New(source),
		sizes: prompt.NewCalibration(), output: cost.NewOutputLength(), traffic: newTraffic(),
		classAt: make(map[ClassKey]*class), classes: make(map[*cost.Fit]*class),
		sessions: newSessions(), agents: newAgents(), ring: newRing(cfg.Explained), audits: newAudits(),
		peering: newPeering(deps.Mesh), leases: newLeasing(deps.Leases),
	}
	x.searches.New = func() any { return new(search) }
	x.choosy.Store(cfg.Policy == Rhizome)
	x.listen()
	return x
}

// Reconfigure makes the next decisions by cfg's policy, weights, near-tie
// margins, temperature, article, tier gate, slow start and queue; those who wait
// by the old queue are placed by the new one, or at once if there is none any
// more. The number of decisions explained and the seed stay what they were.
func (r *Router) Reconfigure(cfg Config) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cfg.Policy, r.cfg.Weights, r.cfg.Article, r.cfg.TierGate = cfg.Policy, cfg.Weights, cfg.Article, cfg.TierGate
	r.cfg.SlowStart, r.cfg.NearTie, r.cfg.TemperatureMicros = cfg.SlowStart, cfg.NearTie, cfg.TemperatureMicros
	r.cfg.Queue = cfg.Queue
	r.choosy.Store(cfg.Policy == Rhizome)
	r.pools = pools{} // they are by the weights
	r.requeue()
}

// SetPeers tells how many other replicas place requests on the same workers,
// and how long what they tell of it takes to arrive. Without a call there are
// none.
func (r *Router) SetPeers(replicas int, delay time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.peers.replicas, r.peers.delay = replicas, delay
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
	r.judgeDue(r.deps.Clock.Now())
	return r.ring.get(id)
}

// Decide chooses a worker for q and books the request there. The error is
// [ErrUnknownModel], [ErrNoWorker] or [ErrTooLong].
func (r *Router) Decide(q Query) (*Decision, error) {
	d := new(Decision)
	if err := r.DecideInto(q, d); err != nil {
		return nil, err
	}
	return d, nil
}

// DecideInto is Decide in the caller's memory, so that it needs none of its own
// where the prompt's keys are known. On an error d is as it was; once Done has
// returned for it, d may be used again.
func (r *Router) DecideInto(q Query, d *Decision) error {
	s, err := r.find(&q)
	if err != nil {
		return err
	}
	defer r.searches.Put(s)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.judgeDue(s.now)
	request, z, err := r.priceAll(s, &q)
	if err != nil {
		return err
	}
	r.place(s.now, &q, request, &z, 0, d)
	return nil
}

// place chooses one of r.cands for q, which has waited here that long, and books
// it there, as d.
func (r *Router) place(now clock.Instant, q *Query, request cost.Request, z *sizing, waited time.Duration, d *Decision) {
	chosen := r.choose(now, q, request)
	r.book(now, q, request, z, &r.cands[chosen.index], d)
	d.trial = d.member.Circuit.Begin(now)
	e, weighed := r.explain(now, q, request, chosen, r.ring.spare())
	if r.cfg.Policy == ArticleCost {
		r.harnesses.observe(q, r.cands[chosen.index].form)
	}
	r.leases.placed(now, q, d.member, r.agents.find(q) != nil)
	d.workflow, d.tools = r.agents.begin(now, now.Add(-waited), q, d.Target), toolsOf(q)
	e.WaitedMillis = millis(waited)
	r.ring.put(e, weighed)
}

// Preview returns the decision that Decide would make of q at this instant, and
// makes none: it books and promises nothing, remembers no session, counts
// nothing and leaves the random numbers as they were. What time alone has
// brought (prefills that are over, numbers scraped) it takes up, as every
// decision does first. Errors are those of Decide.
func (r *Router) Preview(q Query) (Explanation, error) {
	s, err := r.find(&q)
	if err != nil {
		return Explanation{}, err
	}
	defer r.searches.Put(s)
	r.mu.Lock()
	defer r.mu.Unlock()
	turn, source := r.turn, *r.source
	request, _, err := r.priceAll(s, &q)
	if err != nil {
		return Explanation{}, err
	}
	chosen := r.choose(s.now, &q, request)
	r.turn, *r.source = turn, source
	e, weighed := r.explain(s.now, &q, request, chosen, nil)
	return e.told(weighed), nil
}

// find returns who may serve q, and what they hold of its prompt. The search is
// to be put back.
func (r *Router) find(q *Query) (*search, error) {
	view := r.deps.Fleet.View()
	members, known := view.Serving(q.Prompt.Model)
	switch {
	case !known && view.Pending():
		return nil, ErrNoWorker
	case !known:
		return nil, ErrUnknownModel
	}
	s := r.searches.Get().(*search)
	s.now, s.view, s.members = r.deps.Clock.Now(), view, members
	s.pooled = len(members) > preselectFrom && q.Pin == "" && r.choosy.Load()
	if !s.pooled {
		if err := s.eligible(q); err != nil {
			r.searches.Put(s)
			return nil, err
		}
	}
	r.deps.Index.Expire(s.now)
	if s.pooled {
		r.matchHolders(s, q.Prompt)
	} else {
		r.match(s, q.Prompt)
	}
	return s, nil
}

// outputKey is what the length of the answer may depend on.
func outputKey(q *Query, promptTokens int) cost.OutputKey {
	k := cost.OutputKey{Model: q.Prompt.Model, Tenant: q.Tenant, Tool: q.Tool, PromptTokens: promptTokens}
	if chunks := q.Prompt.Chunks(); len(chunks) > 0 {
		k.Head = chunks[0].Key
	} else {
		k.Head = q.Prompt.FirstTokenKey(sentForm)
	}
	return k
}

// excluded reports whether t's worker was tried: its ranks share a fate.
func excluded(list []kv.Target, t kv.Target) bool {
	return slices.ContainsFunc(list, func(e kv.Target) bool { return e.Worker == t.Worker })
}

// book enters the chosen candidate into its member's ledger and promises its
// blocks, as d.
func (r *Router) book(now clock.Instant, q *Query, request cost.Request, z *sizing, c *candidate, d *Decision) {
	p := cost.Uncached(request, c.hit)
	*d = Decision{booking: fleet.Booking{
		PromptTokens: request.PromptTokens, HBMTokens: c.hit.HBMTokens,
		UncachedTokens: p, UncachedPairs: cost.Pairs(p, request.PromptTokens-p),
		OutputTokens: request.OutputTokens, Choices: request.Choices, WorkMicros: c.terms.PrefillMicros,
		PredictedTTFT: c.expect(request),
		Silent:        !q.Prompt.Stream,
	}}
	b := &d.booking
	b.Parts = r.parts(c, q.Prompt)
	b.Parts.Ends = slices.Clone(b.Parts.Ends)
	b.InUseTokens = c.hit.InUseTokens
	if b.Silent && c.form.BlockTokens > 0 {
		b.LastBlock = r.lastBlock(c, b.Parts.Keys)
	}
	d.seen, d.predicted = r.watch(now, c), r.predict(now, c, q.Prompt)
	c.member.Ledger.Book(now, b)
	r.happened(now, c.member)
	r.peering.touch(c.member)
	d.ID, d.Target, d.Worker = q.ID, c.member.Target, c.member.Worker
	d.PredictedCachedTokens, d.PredictedTTFT, d.CostMicros = int(c.hit.Tokens()), b.PredictedTTFT, c.total
	d.member, d.query, d.bookedAt, d.output = c.member, q.Prompt, now, z.output
	d.promised, d.RenderClass, d.source = c.promised, c.render, c.source
	d.guessed, d.earlier, d.blockTokens = z.total, z.earlier, c.cache.BlockTokens
	r.typical.observe(request.PromptTokens, p, request.OutputTokens)
	r.traffic.observe(now, c.terms.PrefillMicros, r.serving)
	r.promise(now, d, c)
	r.observeReuse(q.session(), c)
	d.session = q.session()
	r.sessions.put(d.session, session{target: c.member.Target, at: now, clock: c.member.Clock(c.cache), slot: c.cache.Slot, tokens: int32(z.total)})
	r.stats.Requests++
	r.stats.Keyed[c.keyed()]++
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
	class := r.constants(d.member)
	d.member.Ledger.FirstToken(now, &d.booking, tokenTime(&class, d.member.Ledger.InFlight()))
	d.member.FirstToken(now, d.booking.UncachedTokens)
	r.happened(now, d.member)
	r.peering.touch(d.member)
	d.seen.first, d.seen.firstAt = d.member.Ledger.Work(now, &class), now
	if d.query.Stream {
		d.seen.class.residuals.Observe(d.PredictedTTFT.Seconds(), ttft.Seconds())
		d.seen.class.late.observe(d.PredictedTTFT, ttft)
		r.auditOf(d.Target).ttft.observe(ttft.Seconds() / max(d.PredictedTTFT, time.Microsecond).Seconds())
	}
	if d.ticket != 0 {
		r.deps.Index.Extend(d.ticket, now.Add(confirmLag))
		r.peering.promise(d, ticketFirstToken, now.Add(confirmLag))
	}
	r.ring.update(d.ID, func(e *Explanation) { e.ActualTTFTMillis = millis(ttft) })
	r.freed(now, d.member)
}

// Done reports the end of a request. Only the first call of a decision counts.
func (r *Router) Done(d *Decision, o Outcome) {
	// Decisions take back the promises that are over by then. Nobody waits for that
	// here, so the fewer are left to them the better.
	defer func() { r.deps.Index.Expire(r.deps.Clock.Now()) }()
	r.mu.Lock()
	defer r.mu.Unlock()
	if d.done {
		return
	}
	d.done = true
	now := r.deps.Clock.Now()
	if o.Result == Completed {
		d.observeConfirm(&o.Usage)
		r.learn(now, d, o.Usage)
		r.peering.ended(now.Sub(d.bookedAt))
	}
	d.member.Ledger.Release(now, &d.booking)
	defer r.ended(now, d.member)
	r.peering.touch(d.member)
	r.endStep(now, d, &o)
	defer r.freed(now, d.member)
	r.settlePromise(now, d, o)
	r.stats.Ended[o.Result]++
	settleCircuit(now, d, &o)
	if o.Unreachable {
		d.member.SetHealthy(false)
	}
	u := o.Usage
	if o.Result == Completed && d.query.Prompts == 1 {
		r.auditWindow(now, d, u)
	}
	if u.Known && o.Result == Completed {
		r.sizes.Observe(d.query, d.guessed, u.PromptTokens, u.CompletionTokens/max(1, d.query.N*d.query.Prompts))
		r.sessions.resize(d.session, d.bookedAt, u.PromptTokens+r.sizes.KeptTokens(d.query.Model, prompt.Size{OutputTokens: u.CompletionTokens}))
		if u.CachedTokens >= 0 && d.source == fromSession {
			r.sessions.observe(d.PredictedCachedTokens, u.CachedTokens)
		}
		if u.CachedTokens >= 0 && d.blockTokens > 0 {
			r.sizes.ObserveKept(d.query.Model, d.earlier, u.CachedTokens, d.blockTokens)
		}
		if d.query.Kind != prompt.Embedding {
			r.output.Observe(d.output, u.CompletionTokens/max(1, d.query.N*d.query.Prompts))
		}
		if u.CachedTokens >= 0 {
			r.audit(now, d, u.CachedTokens)
			r.auditOf(d.Target).cached.observe(float64(u.CachedTokens-d.PredictedCachedTokens) / float64(max(1, u.PromptTokens)))
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
