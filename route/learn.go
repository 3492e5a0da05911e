package route

import (
	"math"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/cost"
	"github.com/rhizome-router/rhizome/engine"
	"github.com/rhizome-router/rhizome/fleet"
)

// ClassKey names the workers that learn from each other: one model on one
// engine, begun with the same constants.
type ClassKey struct {
	Model  string `json:"model"`
	Engine string `json:"engine,omitempty"` // empty until the worker was asked
	Preset string `json:"preset"`
}

// class is what the workers of one ClassKey have in common.
type class struct {
	key       ClassKey
	base      cost.Class // where the fit began
	fit       *cost.Fit
	residuals cost.Residuals // of predicted times to first token
	late      lateness       // of first tokens
	spans     int            // samples of decoding taken
	reuse     cost.Reuse
	confirm   cost.Confirm
}

// enoughSpans is how many samples of decoding make the engines' own counters
// superfluous: those come late and mix what computes prompts into what doesn't.
// With streams to time, errors of predicted times to first token were no
// smaller with the counters than without.
const enoughSpans = 20

// classOf returns the class that a member belongs to, which is settled when it
// is asked for a model first: adapters of one base share its class. There are
// as many as (model, engine, preset) among the workers.
func (r *Router) classOf(m *fleet.Member, model string) *class {
	if c, ok := r.classes[m.ClassFit]; ok && m.ClassFit != nil {
		return c
	}
	key := ClassKey{model, m.Engine(), m.Class.Name}
	c := r.classAt[key]
	if c == nil {
		c = &class{key: key, base: m.Class, fit: cost.NewClassFit(&m.Class)}
		if saved, ok := r.cfg.Fits[key]; ok {
			// A state that can't be restored is as good as none.
			_ = c.fit.Restore(c.base, saved)
		}
		r.peering.adopt(c)
		r.classAt[key], r.classes[c.fit] = c, c
	}
	m.ClassFit = c.fit
	return c
}

// constants returns a member's constants as learned, unless they are fixed, with
// the schedule and the admission of its engine.
func (r *Router) constants(m *fleet.Member) (c cost.Class) {
	r.constantsInto(m, &c)
	return c
}

// constantsInto is constants in the caller's memory.
func (r *Router) constantsInto(m *fleet.Member, c *cost.Class) {
	*c = m.Class
	if !r.cfg.Fixed {
		m.Fit.Apply(c, m.ClassFit)
	}
	if m.Engine() == engine.SGLang {
		c.Schedule = cost.PrefillFirst
		if m.Worker.Spec.Admit == "" {
			c.Admit = cost.SGLangRatio
		}
	}
}

// observation is what a decision keeps to learn from its outcome.
type observation struct {
	class *class
	// alone says that the request met an empty queue and room, so that its
	// first token shows what its own prefill takes.
	alone     bool
	base      cost.Class // before the fit
	budget    float64    // tokens a step
	step      float64    // base time of an iteration at booking, µs
	decoding  float64    // ours, at booking
	others    float64    // sequences that others have decoding
	othersKV  float64    // their context
	available float64    // share of the tier's link
	hit       cost.Hit
	knownLoad bool // the link's bandwidth is reported
	loadMicro float64
	crowded   bool // little KV is left, so that others may have had to go
	booked    fleet.Work
	first     fleet.Work
	firstAt   clock.Instant
}

// watch notes at booking what the outcome will be compared with. It comes
// before the booking itself.
func (r *Router) watch(now clock.Instant, c *candidate) observation {
	l := &c.load
	o := observation{
		class: c.group, base: c.member.Class, budget: float64(c.class.BudgetTokens), hit: c.hit,
		decoding: c.decoding, others: l.Decoding - c.decoding, othersKV: l.ContextTokens - c.contextTokens,
		step:      c.class.StepMicros + c.class.SeqMicros*l.Decoding + c.class.KVTokenMicros*l.ContextTokens,
		available: max(0.02, 1-l.Rho[c.hit.Tier]), loadMicro: c.terms.LoadMicros,
		knownLoad: c.signals.BytesPerMicro[c.hit.Tier].Source != fleet.Default,
		crowded:   crowded(c.signals),
		alone:     l.QueuedSeqs == 0 && c.terms.AdmissionMicros == 0,
	}
	o.base.KVBytes = c.class.KVBytes
	o.booked = c.member.Ledger.Work(now, &c.class)
	return o
}

// crowdedUsage is the share of the KV pool in use from which on engines may
// preempt: what a request waits then, nobody outside can tell.
const crowdedUsage = 0.9

func crowded(s *fleet.Signals) bool { return s.KVUsage.Value > crowdedUsage }

// leastDecoded is how many tokens a response must have to time its decoding.
const leastDecoded = 8

// learn takes the times of a request that ended well into the fit.
func (r *Router) learn(now clock.Instant, d *Decision, u Usage) {
	if r.cfg.Fixed || !u.Known || u.PromptTokens <= 0 || d.query.N*d.query.Prompts != 1 {
		return
	}
	o := &d.seen
	if signals := d.member.Signals(); o.crowded || crowded(&signals) {
		return
	}
	current := r.constants(d.member)
	if !d.firstByte {
		// Nothing was seen until the end: one time for all of it.
		o.first, o.firstAt = d.member.Ledger.Work(now, &current), now
		if s, ok := o.firstToken(d, u, &current); ok && u.CompletionTokens > 0 {
			o.addDecodes(&s, d, u, &current)
			d.member.Fit.Observe(&o.base, o.class.fit, &s)
		}
		return
	}
	if s, ok := o.firstToken(d, u, &current); ok {
		d.member.Fit.Observe(&o.base, o.class.fit, &s)
	}
	if u.CompletionTokens >= leastDecoded {
		s := o.decodes(now, d, u, &current)
		var load cost.Load
		signals := d.member.Signals()
		r.addForeign(&load, &signals)
		peers := d.member.PeerShare(now)
		peers.AddTo(&load)
		o.addOthers(&s, &load, d.member.Ledger.Work(now, &current), &current)
		o.class.spans++
		d.member.Fit.Observe(&o.base, o.class.fit, &s)
	}
}

// addOthers adds to a sample of decoding what others have the worker do: their
// sequences, between what they were at booking and are now, and their prompts,
// of which each sequence brings as many tokens as ours did so far. That is right
// on average, and says little of one request.
func (o *observation) addOthers(s *cost.Sample, load *cost.Load, ours fleet.Work, now *cost.Class) {
	sequences, context := (o.others+load.Decoding)/2, (o.othersKV+load.ContextTokens)/2
	n := s.Iterations
	s.Sequences += n * sequences
	s.KVTokens += n * context
	if ours.SeqSeconds <= 0 {
		return
	}
	share := sequences * s.MeasuredMicros / 1e6 / ours.SeqSeconds
	s.PrefillTokens += share * ours.PrefillTokens
	s.PrefillPairs += share * ours.PrefillPairs
	s.DoubtMicros += share * (now.TokenMicros*ours.PrefillTokens + now.PairMicros*ours.PrefillPairs)
}

// learnSteps takes what an engine said of its steps into the fit, once. The
// context of its sequences is taken to be that of ours at the time.
func (r *Router) learnSteps(now clock.Instant, c *candidate) {
	m, steps := c.member, &c.signals.Steps
	if steps.At <= m.StepsSeen || r.cfg.Fixed || c.group.spans >= enoughSpans {
		return
	}
	learned := r.constants(m)
	work := m.Ledger.Work(now, &learned)
	span := work.Since(m.StepsWork)
	m.StepsSeen, m.StepsWork = steps.At, work
	prefill := learned.TokenMicros * steps.PrefillTokens
	if prefill > steps.Micros/8 || span.SeqSeconds <= 0 || crowded(c.signals) {
		return // prompts, of which little is told, would hide the decodes
	}
	context := steps.Sequences * span.ContextSeconds / span.SeqSeconds
	s := cost.Sample{
		Kind: cost.Steps, MeasuredMicros: steps.Micros / learned.Steps(1), Iterations: 1, Sequences: steps.Sequences, KVTokens: context,
		PrefillTokens: steps.PrefillTokens, DoubtMicros: prefill/2 + learned.KVTokenMicros*context/4,
	}
	m.Fit.Observe(&m.Class, c.group.fit, &s)
}

// firstToken makes a sample of the time to first token; ok is false where the
// worker had other things to do in it too.
func (o *observation) firstToken(d *Decision, u Usage, now *cost.Class) (s cost.Sample, ok bool) {
	cached := float64(d.PredictedCachedTokens)
	if u.CachedTokens >= 0 {
		cached = float64(u.CachedTokens)
	}
	if !o.alone || o.hit.LowerTokens > 0 && math.Abs(cached-o.hit.Tokens()) > defaultBlockTokens {
		return s, false
	}
	micros := o.firstAt.Sub(d.bookedAt).Seconds() * 1e6
	prompt := float64(u.PromptTokens)
	p := max(1, prompt-cached)
	span := o.first.Since(o.booked)
	sequences := span.SeqSeconds*1e6/micros + o.others
	context := span.ContextSeconds*1e6/micros + o.othersKV
	room := max(1, o.budget-sequences)
	if now.Schedule == cost.PrefillFirst {
		room = o.budget
	}
	iterations := math.Ceil(p / room)
	s = cost.Sample{
		Kind: cost.FirstTokens, MeasuredMicros: micros, Requests: 1, PromptTokens: prompt,
		Iterations: iterations, PrefillTokens: p, PrefillPairs: cost.Pairs(p, prompt-p),
	}
	// Those that came later fill the last of several iterations; whether they
	// were in time for a single one can't be told.
	doubt := 0.0
	if more := min(iterations*room-p, span.Booked-d.booking.UncachedTokens); more > 0 && d.firstByte {
		doubt = now.TokenMicros * more
		if iterations > 1 {
			s.PrefillTokens += more
			doubt /= 2
		}
	}
	if o.decoding+o.others > 0 { // a step was under way, half of it on average
		s.Iterations += 0.5
		doubt += 0.29 * o.step
	}
	if o.others > 0 {
		// Their prompts go ahead of ours unseen, or not.
		doubt += othersDoubt * micros * o.others / (o.others + o.decoding + 1)
	}
	withDecodes := s.Iterations
	if now.Schedule == cost.PrefillFirst {
		withDecodes -= iterations
	}
	s.Sequences, s.KVTokens = sequences*withDecodes, context*withDecodes
	switch {
	case o.hit.LowerTokens > 0 && o.knownLoad:
		s.KnownMicros = o.loadMicro
		doubt += o.loadMicro / 2 // others' loads come and go
	case o.hit.LowerTokens > 0:
		s.Loads[o.hit.Tier], s.LoadedTokens[o.hit.Tier] = 1, o.hit.LowerTokens/o.available
	}
	s.DoubtMicros = doubt
	return s, true
}

// othersDoubt is what share of a first token's time may be the prompts of
// others, on a worker that works for them alone. Without it a worker on which
// others pile up was taken for one 6 times as slow (TestFitBesideOthers at
// other rates).
const othersDoubt = 0.3

// underWayDoubt is the deviation of a number of which nothing is known but that
// it is between 0 and 1.
const underWayDoubt = 0.29

// decodes makes a sample of the time from the first token to the last, of what
// we know to have been done in it.
func (o *observation) decodes(at clock.Instant, d *Decision, u Usage, now *cost.Class) cost.Sample {
	micros := at.Sub(o.firstAt).Seconds() * 1e6
	span := d.member.Ledger.Work(at, now).Since(o.first)
	iterations := now.Steps(float64(u.CompletionTokens - 1))
	return cost.Sample{
		Kind: cost.Decodes, MeasuredMicros: micros, Iterations: iterations + o.stalls(&span, now),
		Sequences:     iterations * span.SeqSeconds * 1e6 / micros,
		KVTokens:      iterations * span.ContextSeconds * 1e6 / micros,
		PrefillTokens: span.PrefillTokens, PrefillPairs: span.PrefillPairs,
		DoubtMicros: underWayDoubt * now.TokenMicros * span.UnderWay,
	}
}

// stalls is how many iterations of a span computed prompts while decodes
// waited.
func (o *observation) stalls(span *fleet.Work, now *cost.Class) float64 {
	if now.Schedule != cost.PrefillFirst {
		return 0
	}
	return span.PrefillTokens/o.budget + span.Prefills/2
}

// addDecodes makes a sample of a first token, of a response that shows nothing
// before its end, one of the whole response.
func (o *observation) addDecodes(s *cost.Sample, d *Decision, u Usage, now *cost.Class) {
	n := now.Steps(float64(u.CompletionTokens - 1))
	span := o.first.Since(o.booked)
	micros := s.MeasuredMicros
	s.Kind = cost.Responses
	s.Sequences += n * (span.SeqSeconds*1e6/micros + o.others)
	s.KVTokens += n * (span.ContextSeconds*1e6/micros + o.othersKV)
	s.Iterations += n
	// Prompts computed in between, but for its own, which counts as computed
	// when that was expected.
	others := max(0, span.PrefillTokens-d.booking.UncachedTokens)
	pairs := max(0, span.PrefillPairs-d.booking.UncachedPairs)
	s.PrefillTokens, s.PrefillPairs = s.PrefillTokens+others, s.PrefillPairs+pairs
	s.DoubtMicros += now.TokenMicros * (underWayDoubt*span.UnderWay + others/4)
}
