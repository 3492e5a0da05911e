package route

import (
	"slices"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/cost"
	"github.com/rhizome-router/rhizome/fleet"
	"github.com/rhizome-router/rhizome/kv"
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

// maxCandidates bounds what is kept of one decision: so many, and the chosen.
const maxCandidates, mostWeighed = 16, 17

// weighed is what is kept of a candidate as it was priced. A Candidate is made of
// it when somebody asks.
type weighed struct {
	member                     *fleet.Member
	source                     string
	hbmTokens, lowerTokens     int
	tier                       kv.Tier // of the latter
	queued, decoding, inFlight int
	terms                      cost.Terms
	article                    *cost.ArticleTerms
	total, slowStartMicros     float64
	clockMicros, tokensMicros  float64
	breakEven                  float64
	inBand, chosen             bool
	fit                        FitState
	signals                    *fleet.Signals
	links                      *linkUse // nil where no peer says anything of them
}

// explain tells how r.cands were weighed, but for the candidates themselves,
// which it appends to dst.
func (r *Router) explain(now clock.Instant, q *Query, request cost.Request, chosen choice, dst []weighed) (Explanation, []weighed) {
	best := &r.cands[chosen.index]
	e := Explanation{
		ID: q.ID, AtSeconds: now.Micros() / 1e6, Model: q.Prompt.Model, Policy: r.cfg.Policy,
		PromptTokens: int(request.PromptTokens), PromptExact: q.Prompt.TextBytes == 0 || best.known.Told, PromptKeys: best.keyed().String(), OutputTokens: int(request.OutputTokens),
		Worker: best.member.Worker.Spec.URL, Name: best.member.Worker.Spec.ID, Rank: best.member.Target.Rank, Why: chosen.why,
		CachedTokens: int(best.hit.Tokens()), TTFTMillis: millis(best.expect(request)),
		Agent: r.agents.state(q, request.Return), NearTie: chosen.tie, Lease: chosen.lease, ActualPromptTokens: -1, ActualCachedTokens: -1,
	}
	order := r.byCost[:0]
	for i := range r.cands {
		order = append(order, ranked{r.cands[i].total, i})
	}
	r.byCost = order
	slices.SortFunc(order, ranked.compare)
	dst = slices.Grow(dst, min(len(order), mostWeighed))
	for n, o := range order {
		if n < maxCandidates || o.index == chosen.index {
			dst = append(dst, weighed{})
			w := &dst[len(dst)-1]
			r.weigh(&r.cands[o.index], w)
			w.chosen = o.index == chosen.index
		}
	}
	return e, dst
}

// ranked is which of r.cands costs so much.
type ranked struct {
	total float64
	index int
}

func (a ranked) compare(b ranked) int {
	switch {
	case a.total < b.total:
		return -1
	case a.total > b.total:
		return 1
	}
	return a.index - b.index
}

// weigh keeps of a candidate, as w, which is empty, what explains it.
func (r *Router) weigh(c *candidate, w *weighed) {
	w.member, w.source, w.signals = c.member, c.source, c.signals
	if c.links.combined {
		links := c.links
		w.links = &links
	}
	w.hbmTokens, w.lowerTokens = int(c.hit.HBMTokens), int(c.hit.LowerTokens)
	w.queued, w.decoding, w.inFlight = int(c.load.QueuedTokens), int(c.load.Decoding), c.inFlight
	w.terms, w.total, w.slowStartMicros, w.clockMicros, w.tokensMicros, w.inBand = c.terms, c.total, c.slowStartMicros, c.clockMicros, c.tokensMicros, c.inBand
	w.fit = r.fitState(c.member, &c.class)
	if w.lowerTokens > 0 {
		w.tier, w.breakEven = c.hit.Tier, c.class.BreakEvenBytesPerMicro(c.hit)
	}
	if r.cfg.Policy == ArticleCost {
		terms := c.article
		w.article = &terms
	}
}

// candidate is what is told of it.
func (w *weighed) candidate() Candidate {
	spec := &w.member.Worker.Spec
	c := Candidate{
		Worker: spec.URL, Name: spec.ID, Rank: w.member.Target.Rank, HBMTokens: w.hbmTokens, LowerTokens: w.lowerTokens, Source: w.source,
		QueuedTokens: w.queued, Decoding: w.decoding, InFlight: w.inFlight, Terms: w.terms, Article: w.article, CostMicros: w.total,
		SlowStartMicros: w.slowStartMicros, ClockMicros: w.clockMicros, TokensMicros: w.tokensMicros, InBand: w.inBand,
		BreakEvenBytesPerMicro: w.breakEven, Chosen: w.chosen, Fit: w.fit, Signals: *w.signals,
	}
	if w.lowerTokens > 0 {
		c.Tier = w.tier.String()
	}
	if w.links != nil {
		c.Signals.Rho = w.links.rho
	}
	return c
}

// told completes an explanation by its candidates, in memory of its own.
func (e Explanation) told(all []weighed) Explanation {
	e.Candidates = make([]Candidate, len(all))
	for i := range all {
		e.Candidates[i] = all[i].candidate()
	}
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
	// slabs have room for the candidates of slabEntries entries each, one behind the
	// other: memory that was not in use for so long is written fastest in order. There
	// is one more than entries fill, so that what a slab had before has been
	// overwritten when its turn comes again.
	slabs [][]weighed
	slab  int // that the next are put into
	free  int // from there on
}

const slabEntries = 256

// remembered is an explanation with its candidates, and the memory of its tie.
type remembered struct {
	Explanation
	weighed []weighed
	tie     NearTie
}

func newRing(size int) *ring {
	slabs := (size+slabEntries-1)/slabEntries + 1
	return &ring{entries: make([]remembered, size), at: make(map[string]int, size), slabs: make([][]weighed, slabs)}
}

// spare is memory for the candidates of what put takes next.
func (r *ring) spare() []weighed {
	slab := &r.slabs[r.slab]
	if *slab == nil {
		*slab = make([]weighed, mostWeighed*min(slabEntries, len(r.entries)))
	}
	return (*slab)[r.free : r.free : r.free+mostWeighed]
}

// put remembers an explanation whose candidates are in spare.
func (r *ring) put(e Explanation, all []weighed) {
	old := &r.entries[r.next]
	if i, ok := r.at[old.ID]; ok && i == r.next {
		delete(r.at, old.ID)
	}
	if e.NearTie != nil {
		old.tie = *e.NearTie
		e.NearTie = &old.tie
	}
	old.Explanation, old.weighed = e, all
	r.free += len(all)
	r.at[e.ID] = r.next
	r.next = (r.next + 1) % len(r.entries)
	if r.next%slabEntries == 0 {
		r.slab, r.free = (r.slab+1)%len(r.slabs), 0
	}
}

func (r *ring) get(id string) (Explanation, bool) {
	i, ok := r.at[id]
	if !ok {
		return Explanation{}, false
	}
	x := &r.entries[i]
	return x.told(x.weighed), true
}

func (r *ring) update(id string, f func(*Explanation)) {
	if i, ok := r.at[id]; ok {
		f(&r.entries[i].Explanation)
	}
}
