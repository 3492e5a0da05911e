package route

import (
	"math"
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/cost"
	"github.com/rhizome-router/rhizome/fleet"
	"github.com/rhizome-router/rhizome/index"
	"github.com/rhizome-router/rhizome/prompt"
)

// candidate is one member under consideration, with what it would cost.
type candidate struct {
	member     *fleet.Member
	cache      *fleet.Cache
	hit        cost.Hit
	source     string       // of the hit: fromEvents, fromLearned, fromSent, fromSession or ""
	sure       int          // blocks of it that are no mere promise
	inHBM      int          // leading ones of these in HBM
	told       int          // blocks of it that the index tells of, promises counted
	discounted int          // tokens taken off it by experience
	mark       index.Mark   // from before the match
	form       prompt.Form  // of its blocks where the index speaks for all of them, else zero
	known      prompt.Known // what it speaks for of a text
	render     prompt.Class // how the member turns a text into tokens
	group      *class
	class      cost.Class // as learned, with the limits that it told or showed
	signals    *fleet.Signals
	links      linkUse
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

// requestOf is q, whose prompt is as large as z says, as the cost model sees it.
// It notes in z what it expects the answer's length by. It needs r.mu.
func (r *Router) requestOf(q *Query, z *sizing) cost.Request {
	z.output = outputKey(q, int(z.total))
	var usual cost.Span
	if q.ExpectedOutputTokens > 0 {
		usual = r.output.Usual(z.output)
	}
	request := cost.Request{
		PromptTokens: z.total, HighTokens: z.high,
		OutputTokens: expectedOutput(q, r.output.Predict(z.output, q.Prompt.MaxTokens), usual),
		Choices:      float64(q.Prompt.N * q.Prompt.Prompts),
	}
	request.Return = r.agents.expect(q, request.PromptTokens+request.OutputTokens)
	return request
}

// priceAll prices for q, as r.cands, all members that may serve it; where they are
// many, those that preselect returns. Errors are those of Decide. It needs r.mu.
func (r *Router) priceAll(s *search, q *Query) (cost.Request, sizing, error) {
	z := r.size(q, s.deepest)
	request := r.requestOf(q, &z)
	r.cands = r.cands[:0]
	if s.pooled {
		p := r.poolOf(s.now, s.view, q.Prompt.Model, s.members)
		for _, c := range r.preselect(s, p, q, &z, request) {
			m, h := p.members[c.member], s.held(p, c.member)
			if h == nil {
				s.blank = r.none(s, m, q.Prompt)
				h = &s.blank
			}
			r.consider(s, m, h, &z, q, request)
		}
		r.serving = p.serving()
	}
	if len(r.cands) == 0 { // all of few, or of many of whom none was found
		if s.pooled {
			if err := s.eligible(q); err != nil {
				return request, z, err
			}
			r.match(s, q.Prompt)
		}
		for i, m := range s.members {
			r.consider(s, m, &s.hits[i], &z, q, request)
		}
		r.serving = len(s.members)
	}
	r.slowStart(s.now, request)
	r.addLaterWait(s.now)
	return request, z, nil
}

// consider prices a member as one of r.cands.
func (r *Router) consider(s *search, m *fleet.Member, h *matched, z *sizing, q *Query, request cost.Request) {
	r.cands = append(r.cands, candidate{member: m})
	r.price(s.now, &r.cands[len(r.cands)-1], h, z, q.Prompt, request)
}

// price scores one member.
func (r *Router) price(now clock.Instant, c *candidate, h *matched, z *sizing, p *prompt.Request, request cost.Request) {
	m := c.member
	c.cache, c.source, c.form, c.known, c.render = h.cache, h.source, h.form, h.known, h.class
	c.signals, c.inFlight = m.SignalsAt(), m.Ledger.InFlight()
	r.peering.combine(now, m.Target, c.signals, &c.links)
	c.group = r.classOf(m, p.Model)
	m.Fit.Rest(m.ClassFit)
	r.learnSteps(now, c)
	r.constantsInto(m, &c.class)
	limit(&c.class, c.signals)
	c.class.BudgetTokens = m.BudgetTokens(h.cache, c.class.BudgetTokens)
	c.hit, c.sure, c.inHBM, c.told, c.mark = h.tokens(z), h.sure, h.inHBM, h.run.Len(), h.mark
	if z.known && (h.unknown() || z.session.restored && h.endsKnown()) {
		if hit := r.sessions.fallback(z.session, m, c.cache, z); hit.Tokens() > c.hit.Tokens() {
			c.hit, c.source = hit, fromSession
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
	r.addForeign(&c.load, c.signals)
	c.links.putInto(&c.load)
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
