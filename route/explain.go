package route

import (
	"cmp"
	"slices"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/cost"
	"github.com/rhizome-router/rhizome/fleet"
)

// Explanation is one decision as it was made, and what came of it. Negative
// actual tokens were not told.
type Explanation struct {
	ID           string  `json:"id"`
	AtSeconds    float64 `json:"at_seconds"` // since the router started
	Model        string  `json:"model"`
	Policy       Policy  `json:"policy"`
	PromptTokens int     `json:"prompt_tokens"`       // exact for token ids, else guessed
	PromptExact  bool    `json:"prompt_tokens_exact"` // which of them
	PromptKeys   string  `json:"prompt_keys"`         // what named its parts: see Keyed
	OutputTokens int     `json:"output_tokens"`       // predicted
	Worker       string  `json:"worker"`              // chosen
	Name         string  `json:"name,omitempty"`      // that operators gave it
	Rank         int16   `json:"rank"`                // of it; -1: the worker as a whole
	Why          string  `json:"why"`
	CachedTokens int     `json:"cached_tokens"` // predicted
	TTFTMillis   float64 `json:"ttft_ms"`       // predicted
	WaitedMillis float64 `json:"waited_ms"`     // in the router, before this was decided

	// Agent is what was known of its workflow; nil where the request named none.
	Agent *AgentState `json:"agent,omitempty"`
	// Lease is its workflow's; nil where it has none.
	Lease      *LeaseState `json:"lease,omitempty"`
	NearTie    *NearTie    `json:"near_tie,omitempty"` // under policies that go by cost
	Candidates []Candidate `json:"candidates"`         // cheapest first

	Result             string  `json:"result,omitempty"` // empty while it runs
	ActualPromptTokens int     `json:"actual_prompt_tokens"`
	ActualCachedTokens int     `json:"actual_cached_tokens"`
	ActualTTFTMillis   float64 `json:"actual_ttft_ms"`  // streamed responses only, else 0
	Audit              *Audit  `json:"audit,omitempty"` // of cached tokens, where the response told them
}

// NearTie says which candidates counted as equal, and what decided among them.
type NearTie struct {
	// BandMicros is how far above the least cost a candidate counts as equal.
	BandMicros float64 `json:"band_micros"`
	Inside     int     `json:"inside"` // how many are, the cheapest among them
	Rule       TieRule `json:"rule"`
}

// TieRule is what decided among the candidates of a near tie.
type TieRule string

// The rules, the first that applies counts.
const (
	BySession TieRule = "session" // one of them served the session last
	ByCost    TieRule = "cost"    // there is one alone
	ByHit     TieRule = "hit"     // one holds more of the prompt than the others
	ByDraw    TieRule = "draw"    // several hold equally much: a uniform draw

	ByTemperature TieRule = "temperature" // the band did not matter: see Config.TemperatureMicros
)

// Candidate is one worker as it was priced.
type Candidate struct {
	Worker       string     `json:"worker"`
	Name         string     `json:"name,omitempty"` // that operators gave it
	Rank         int16      `json:"rank"`           // -1: the worker as a whole
	HBMTokens    int        `json:"hbm_tokens"`
	LowerTokens  int        `json:"lower_tokens"`
	Tier         string     `json:"tier,omitempty"`   // of the lower tokens
	Source       string     `json:"source,omitempty"` // of the hit: events, learned, sent or session
	QueuedTokens int        `json:"queued_tokens"`
	Decoding     int        `json:"decoding"`
	InFlight     int        `json:"in_flight"` // of this router, before the request
	Terms        cost.Terms `json:"terms"`
	// Article are the terms of the article's cost, which is CostMicros then; nil
	// under other policies.
	Article    *cost.ArticleTerms `json:"article_terms,omitempty"`
	CostMicros float64            `json:"cost_micros"`
	// SlowStartMicros is what being new adds to the cost, beside the terms.
	SlowStartMicros float64 `json:"slow_start_micros,omitempty"`
	// ClockMicros is the queue of this router's prefills by the virtual clock, and
	// TokensMicros by the tokens in it. The queue term takes the longer, and adds
	// what others have there.
	ClockMicros  float64 `json:"clock_micros"`
	TokensMicros float64 `json:"queue_tokens_micros"`
	InBand       bool    `json:"in_band,omitempty"` // of the near tie
	// BreakEvenBytesPerMicro is the bandwidth below which computing the lower
	// tokens would be faster than loading them; without such tokens 0.
	BreakEvenBytesPerMicro float64 `json:"break_even_bytes_per_micro,omitempty"`

	Chosen bool     `json:"chosen,omitempty"`
	Fit    FitState `json:"fit"` // its constants and what they rest on
	// Signals is what the worker was known to say, each with its source.
	Signals fleet.Signals `json:"signals"`
}

// maxCandidates bounds what is kept of one decision.
const maxCandidates = 16

// explain tells how r.cands were weighed. It appends the candidates to dst.
func (r *Router) explain(now clock.Instant, q Query, request cost.Request, chosen choice, dst []Candidate) Explanation {
	best := &r.cands[chosen.index]
	e := Explanation{
		ID: q.ID, AtSeconds: now.Micros() / 1e6, Model: q.Prompt.Model, Policy: r.cfg.Policy,
		PromptTokens: int(request.PromptTokens), PromptExact: q.Prompt.TextBytes == 0 || best.known.Told, PromptKeys: best.keyed().String(), OutputTokens: int(request.OutputTokens),
		Worker: best.member.Worker.Spec.URL, Name: best.member.Worker.Spec.ID, Rank: best.member.Target.Rank, Why: chosen.why,
		CachedTokens: int(best.hit.Tokens()), TTFTMillis: millis(best.expect(request)),
		Agent: r.agents.state(&q, request.Return), NearTie: chosen.tie, Lease: chosen.lease, ActualPromptTokens: -1, ActualCachedTokens: -1,
		Candidates: slices.Grow(dst, min(len(r.cands), maxCandidates+1)),
	}
	order := r.byCost[:0]
	for i := range r.cands {
		order = append(order, i)
	}
	r.byCost = order
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(r.cands[a].total, r.cands[b].total) })
	for n, i := range order {
		if n >= maxCandidates && i != chosen.index {
			continue
		}
		c := &r.cands[i]
		out := Candidate{
			Worker: c.member.Worker.Spec.URL, Name: c.member.Worker.Spec.ID, Rank: c.member.Target.Rank, HBMTokens: int(c.hit.HBMTokens), LowerTokens: int(c.hit.LowerTokens), Source: c.source,
			QueuedTokens: int(c.load.QueuedTokens), Decoding: int(c.load.Decoding), InFlight: c.inFlight,
			Terms: c.terms, CostMicros: c.total, SlowStartMicros: c.slowStartMicros, ClockMicros: c.clockMicros, TokensMicros: c.tokensMicros, InBand: c.inBand, Chosen: i == chosen.index, Fit: r.fitState(c.member, &c.class), Signals: c.signals,
		}
		if out.LowerTokens > 0 {
			out.Tier, out.BreakEvenBytesPerMicro = c.hit.Tier.String(), c.class.BreakEvenBytesPerMicro(c.hit)
		}
		if r.cfg.Policy == ArticleCost {
			terms := c.article
			out.Article = &terms
		}
		e.Candidates = append(e.Candidates, out)
	}
	return e
}

// clone returns an explanation that shares no memory with this one that will be
// overwritten.
func (e Explanation) clone() Explanation {
	e.Candidates = slices.Clone(e.Candidates)
	if e.NearTie != nil {
		tie := *e.NearTie
		e.NearTie = &tie
	}
	return e
}

// ring keeps the last explanations, oldest overwritten first.
type ring struct {
	entries []remembered
	next    int
	at      map[string]int
}

// remembered is an explanation with the memory of its tie.
type remembered struct {
	Explanation
	tie NearTie
}

func newRing(size int) *ring {
	return &ring{entries: make([]remembered, size), at: make(map[string]int, size)}
}

// spare is the memory of the candidates that put will overwrite next.
func (r *ring) spare() []Candidate { return r.entries[r.next].Candidates[:0] }

func (r *ring) put(e Explanation) {
	old := &r.entries[r.next]
	if i, ok := r.at[old.ID]; ok && i == r.next {
		delete(r.at, old.ID)
	}
	if e.NearTie != nil {
		old.tie = *e.NearTie
		e.NearTie = &old.tie
	}
	old.Explanation = e
	r.at[e.ID] = r.next
	r.next = (r.next + 1) % len(r.entries)
}

func (r *ring) get(id string) (Explanation, bool) {
	i, ok := r.at[id]
	if !ok {
		return Explanation{}, false
	}
	return r.entries[i].clone(), true
}

func (r *ring) update(id string, f func(*Explanation)) {
	if i, ok := r.at[id]; ok {
		f(&r.entries[i].Explanation)
	}
}
