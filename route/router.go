package route

import (
	"math"
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
	// Learned is what is known of the tokens of text prompts; nil: nothing.
	Learned *prompt.Learned
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
	agents    *agents
	harnesses harnesses
	queue     backlog
	serving   int         // members that might serve the request under way
	cands     []candidate // scratch
	probe     candidate   // scratch of roomOn
	preselection
	ends []float64 // scratch of size
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
	return &Router{
		cfg: cfg, deps: deps, source: source, rand: rand.New(source), sizes: prompt.NewCalibration(),
		output: cost.NewOutputLength(), classAt: make(map[ClassKey]*class), classes: make(map[*cost.Fit]*class), traffic: newTraffic(), sessions: newSessions(), agents: newAgents(), ring: newRing(cfg.Explained),
		audits: newAudits(),
	}
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

// candidate is one member under consideration, with what it would cost.
type candidate struct {
	member     *fleet.Member
	cache      fleet.Cache
	hit        cost.Hit
	source     string       // of the hit: fromEvents, fromLearned, fromSent, fromSession or ""
	sure       int          // blocks of it that are no mere promise
	told       int          // blocks of it that the index tells of, promises counted
	discounted int          // tokens taken off it by experience
	mark       index.Mark   // from before the match
	form       prompt.Form  // of its blocks where the index speaks for all of them, else zero
	known      prompt.Known // what it speaks for of a text
	render     prompt.Class // how the member turns a text into tokens
	group      *class
	class      cost.Class // as learned, with the limits that it told or showed
	signals    fleet.Signals
	inFlight   int // before this request
	load       cost.Load
	// What we have decoding of that, and its context.
	decoding, contextTokens float64
	terms                   cost.Terms
	article                 cost.ArticleTerms // under that policy
	slowStartMicros         float64           // what being new adds
	clockMicros             float64           // the queue by the virtual clock
	tokensMicros            float64           // and by the tokens in it, of ours
	judged                  cost.Terms        // terms, less what a laboratory leaves out
	total                   float64           // µs
	promised                float64           // tokens of hit that are only promised
	inBand                  bool              // of the near tie
}

// Decide chooses a worker for q and books the request there. The error is
// [ErrUnknownModel], [ErrNoWorker] or [ErrTooLong].
func (r *Router) Decide(q Query) (*Decision, error) {
	now, members, hits, err := r.find(&q)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.judgeDue(now)
	request, z := r.priceAll(now, &q, members, hits)
	return r.place(now, q, request, &z, 0), nil
}

// place chooses one of r.cands for q, which has waited here that long, and books
// it there.
func (r *Router) place(now clock.Instant, q Query, request cost.Request, z *sizing, waited time.Duration) *Decision {
	chosen := r.choose(now, q, request)
	d := r.book(now, q, request, z, &r.cands[chosen.index])
	d.trial = d.member.Circuit.Begin(now)
	e := r.explain(now, q, request, chosen)
	if r.cfg.Policy == ArticleCost {
		r.harnesses.observe(&q, r.cands[chosen.index].form)
	}
	d.workflow, d.tools = r.agents.begin(now, now.Add(-waited), &q, d.Target), toolsOf(&q)
	e.WaitedMillis = millis(waited)
	r.ring.put(e)
	return d
}

// Preview returns the decision that Decide would make of q at this instant, and
// makes none: it books and promises nothing, remembers no session, counts
// nothing and leaves the random numbers as they were. What time alone has
// brought (prefills that are over, numbers scraped) it takes up, as every
// decision does first. Errors are those of Decide.
func (r *Router) Preview(q Query) (Explanation, error) {
	now, members, hits, err := r.find(&q)
	if err != nil {
		return Explanation{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	turn, source := r.turn, *r.source
	request, _ := r.priceAll(now, &q, members, hits)
	chosen := r.choose(now, q, request)
	r.turn, *r.source = turn, source
	return r.explain(now, q, request, chosen), nil
}

// find returns the members that may serve q, and what each holds of its prompt.
func (r *Router) find(q *Query) (now clock.Instant, members []*fleet.Member, hits []matched, err error) {
	view := r.deps.Fleet.View()
	members, known := view.Serving(q.Prompt.Model)
	switch {
	case !known && view.Pending():
		return 0, nil, nil, ErrNoWorker
	case !known:
		return 0, nil, nil, ErrUnknownModel
	}
	now = r.deps.Clock.Now()
	if members, err = eligible(now, view, members, q); err != nil {
		return 0, nil, nil, err
	}
	r.deps.Index.Expire(now)
	return now, members, r.match(members, q.Prompt), nil
}

// requestOf is q, whose prompt is as large as z says, as the cost model sees it.
// It needs r.mu.
func (r *Router) requestOf(q *Query, z *sizing) cost.Request {
	key := outputKey(q, int(z.total))
	request := cost.Request{
		PromptTokens: z.total,
		OutputTokens: expectedOutput(q, r.output.Predict(key, q.Prompt.MaxTokens), r.output.Usual(key)),
		Choices:      float64(q.Prompt.N * q.Prompt.Prompts),
	}
	request.Return = r.agents.expect(q, request.PromptTokens+request.OutputTokens)
	return request
}

// priceAll prices for q the members that preselect returns, as r.cands. It needs r.mu.
func (r *Router) priceAll(now clock.Instant, q *Query, members []*fleet.Member, hits []matched) (cost.Request, sizing) {
	z := r.size(q, hits)
	request := r.requestOf(q, &z)
	r.cands, r.serving = r.cands[:0], len(members)
	for _, i := range r.preselect(now, members, hits, q, &z, request) {
		r.cands = append(r.cands, candidate{member: members[i]})
		r.price(now, &r.cands[len(r.cands)-1], &hits[i], &z, q.Prompt, request)
	}
	r.slowStart(now, request)
	r.addLaterWait(now)
	return request, z
}

// outputKey is what the length of the answer may depend on.
func outputKey(q *Query, promptTokens int) cost.OutputKey {
	k := cost.OutputKey{Model: q.Prompt.Model, Tenant: q.Tenant, Tool: q.Tool, PromptTokens: promptTokens}
	if chunks := q.Prompt.Chunks(); len(chunks) > 0 {
		k.Head = chunks[0].Key
	} else if keys := q.Prompt.TokenKeys(sentForm); len(keys) > 0 {
		k.Head = keys[0]
	}
	return k
}

// excluded reports whether t's worker was tried: its ranks share a fate.
func excluded(list []kv.Target, t kv.Target) bool {
	return slices.ContainsFunc(list, func(e kv.Target) bool { return e.Worker == t.Worker })
}

// price scores one member.
func (r *Router) price(now clock.Instant, c *candidate, h *matched, z *sizing, p *prompt.Request, request cost.Request) {
	m := c.member
	c.cache, c.source, c.form, c.known, c.render = h.cache, h.source, h.form, h.known, h.class
	c.signals, c.inFlight = m.Signals(), m.Ledger.InFlight()
	c.group = r.classOf(m, p.Model)
	m.Fit.Rest(m.ClassFit)
	r.learnSteps(now, c)
	c.class = r.constants(m)
	limit(&c.class, &c.signals)
	c.class.BudgetTokens = m.BudgetTokens(&h.cache, c.class.BudgetTokens)
	c.hit, c.sure, c.told, c.mark = h.tokens(z), h.sure, h.run.Len(), h.mark
	if h.unknown() && z.known {
		if c.hit = r.sessions.fallback(z.session, m, &c.cache, z); c.hit.Tokens() > 0 {
			c.source = fromSession
		}
	}
	c.discount()
	parts := r.parts(c, p)
	c.hit.InUseTokens = min(request.PromptTokens, m.Ledger.InUseTokens(&parts))
	r.takeEvidence(now, c)
	step := tokenTime(&c.class, m.Ledger.InFlight())
	c.load = m.Ledger.Load(now, &c.class, step, false)
	if c.class.Crowded(&c.load, request, c.hit) {
		c.load = m.Ledger.Load(now, &c.class, step, true)
	}
	c.decoding, c.contextTokens = c.load.Decoding, c.load.ContextTokens
	// The later of two opinions on our own queue: the tokens in it and the
	// virtual clock (docs/cost-model.md has what that is worth).
	c.tokensMicros = c.class.QueueMicros(&c.load)
	c.load.LateMicros = max(0, c.clockMicros-c.tokensMicros)
	r.addForeign(&c.load, &c.signals)
	peers := m.PeerShare(now)
	peers.AddTo(&c.load)
	r.addPressure(now, c, request)
	r.addPromised(now, c, h, &parts, request)
	c.hit = c.class.Engaged(&c.load, c.hit)
	c.terms = cost.Score(&c.class, &c.load, request, c.hit, r.cfg.Weights)
	c.judged = c.terms
	if r.cfg.Omit != 0 {
		c.judged = r.cfg.Omit.Score(&c.class, &c.load, request, c.hit, r.cfg.Weights)
	}
}

// parts returns how a prompt's shared part can be told on a candidate, once its
// size is found out. Ends lie in scratch memory.
func (r *Router) parts(c *candidate, p *prompt.Request) fleet.Parts {
	if c.form.BlockTokens > 0 {
		return fleet.Parts{Keys: p.TokenKeys(c.form), KeyTokens: float64(c.form.BlockTokens)}
	}
	keys, chunks := sentKeys(p)
	if len(chunks) == 0 {
		return fleet.Parts{Keys: keys, KeyTokens: sentBlockTokens}
	}
	return fleet.Parts{Keys: keys, Ends: r.ends}
}

// limit puts the limits and bandwidths that a worker told or showed into its
// constants.
func limit(class *cost.Class, s *fleet.Signals) {
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
}

// addLaterWait completes the candidates' costs by what they make those wait
// who come later.
func (r *Router) addLaterWait(now clock.Instant) {
	traffic := r.traffic.perWorker(now, r.serving)
	traffic.WaitMicros = math.Inf(1)
	for i := range r.cands {
		t := &r.cands[i].judged
		traffic.WaitMicros = min(traffic.WaitMicros, max(t.QueueMicros, t.AdmissionMicros))
	}
	for i := range r.cands {
		c := &r.cands[i]
		c.judged.QueueExternalityMicros = r.cfg.Weights.QueueExternality * traffic.LaterWaitMicros(c.judged.PrefillMicros)
		c.terms.QueueExternalityMicros = c.judged.QueueExternalityMicros
		c.total = c.judged.TotalMicros() + c.slowStartMicros
	}
}

// tokenTime is how long an output token takes on a worker with so many requests.
func tokenTime(class *cost.Class, inFlight int) time.Duration {
	micros := class.Steps(class.StepMicros + class.SeqMicros*float64(inFlight))
	return time.Duration(micros * float64(time.Microsecond))
}

// expect is the time to first token that a client would see of c.
func (c *candidate) expect(request cost.Request) time.Duration {
	return time.Duration(c.terms.ExpectMicros(&c.class, &c.load, request) * float64(time.Microsecond))
}

// book enters the chosen candidate into its member's ledger and promises its
// blocks.
func (r *Router) book(now clock.Instant, q Query, request cost.Request, z *sizing, c *candidate) *Decision {
	p := cost.Uncached(request, c.hit)
	b := &fleet.Booking{
		PromptTokens: request.PromptTokens, HBMTokens: c.hit.HBMTokens,
		UncachedTokens: p, UncachedPairs: cost.Pairs(p, request.PromptTokens-p),
		OutputTokens: request.OutputTokens, Choices: request.Choices, WorkMicros: c.terms.PrefillMicros,
		PredictedTTFT: c.expect(request),
		Silent:        !q.Prompt.Stream,
	}
	b.Parts = r.parts(c, q.Prompt)
	b.Parts.Ends = slices.Clone(b.Parts.Ends)
	b.InUseTokens = c.hit.InUseTokens
	if b.Silent && c.form.BlockTokens > 0 {
		b.LastBlock = r.lastBlock(c, b.Parts.Keys)
	}
	seen, predicted := r.watch(now, c), r.predict(now, c, q.Prompt)
	c.member.Ledger.Book(now, b)
	d := &Decision{
		ID: q.ID, Target: c.member.Target, Worker: c.member.Worker,
		PredictedCachedTokens: int(c.hit.Tokens()),
		PredictedTTFT:         b.PredictedTTFT, CostMicros: c.total,
		member: c.member, booking: b, query: q.Prompt, bookedAt: now,
		output: outputKey(&q, int(request.PromptTokens)), seen: seen, promised: c.promised, predicted: predicted,
		RenderClass: c.render, source: c.source, guessed: z.total, earlier: z.earlier, blockTokens: c.cache.BlockTokens,
	}
	r.typical.observe(request.PromptTokens, p, request.OutputTokens)
	r.traffic.observe(now, c.terms.PrefillMicros, r.serving)
	r.promise(now, d, c)
	r.observeReuse(q.session(), c)
	d.session = q.session()
	r.sessions.put(d.session, session{target: c.member.Target, at: now, clock: c.member.Clock(&c.cache), slot: c.cache.Slot, tokens: int32(z.total)})
	r.stats.Requests++
	r.stats.Keyed[c.keyed()]++
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
	class := r.constants(d.member)
	d.member.Ledger.FirstToken(now, d.booking, tokenTime(&class, d.member.Ledger.InFlight()))
	d.member.FirstToken(now, d.booking.UncachedTokens)
	d.seen.first, d.seen.firstAt = d.member.Ledger.Work(now, &class), now
	if d.query.Stream {
		d.seen.class.residuals.Observe(d.PredictedTTFT.Seconds(), ttft.Seconds())
		d.seen.class.late.observe(d.PredictedTTFT, ttft)
		r.audits.of(d.Target).ttft.observe(ttft.Seconds() / max(d.PredictedTTFT, time.Microsecond).Seconds())
	}
	if d.ticket != 0 {
		r.deps.Index.Extend(d.ticket, now.Add(confirmLag))
	}
	r.ring.update(d.ID, func(e *Explanation) { e.ActualTTFTMillis = millis(ttft) })
	r.freed(now, d.member)
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
	if o.Result == Completed {
		d.observeConfirm(&o.Usage)
		r.learn(now, d, o.Usage)
	}
	d.member.Ledger.Release(now, d.booking)
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
			r.audits.of(d.Target).cached.observe(float64(u.CachedTokens-d.PredictedCachedTokens) / float64(max(1, u.PromptTokens)))
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
