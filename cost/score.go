package cost

import "math"

// Terms are the parts of a cost, each in microseconds and at least 0.
type Terms struct {
	QueueMicros              float64 `json:"queue_micros"`
	AdmissionMicros          float64 `json:"admission_micros"`
	LoadMicros               float64 `json:"load_micros"`
	PrefillMicros            float64 `json:"prefill_micros"`
	OwnDecodeMicros          float64 `json:"own_decode_micros"`
	PrefillExternalityMicros float64 `json:"prefill_externality_micros"`
	KVExternalityMicros      float64 `json:"kv_externality_micros"`
	QueueExternalityMicros   float64 `json:"queue_externality_micros"`
	EvictionMicros           float64 `json:"eviction_micros"`
	WorkflowMicros           float64 `json:"workflow_micros"`
	DistanceMicros           float64 `json:"distance_micros"`
	HeadOfLineMicros         float64 `json:"head_of_line_micros"`
}

// TTFTMicros is the wait for the first token: loads start at admission, and
// the prefills ahead run meanwhile.
func (t Terms) TTFTMicros() float64 {
	return max(t.QueueMicros, t.AdmissionMicros+t.LoadMicros) + t.PrefillMicros
}

// ExpectMicros is what the client will measure as time to first token: HTTP and
// the tokeniser run while the prefills ahead do, and where none is ahead the
// decode step that runs has half its time left on average.
func (t Terms) ExpectMicros(c *Class, l *Load, r Request) float64 {
	before := c.OverheadMicros + c.PromptTokenMicros*r.PromptTokens
	if l.QueuedTokens <= 0 && l.Decoding > 0 {
		before += c.base(l) / 2
	}
	return max(t.QueueMicros, before+t.AdmissionMicros+t.LoadMicros) + t.PrefillMicros
}

// TotalMicros is the cost: what the request waits and what it makes others
// wait, at their rates.
func (t Terms) TotalMicros() float64 {
	return t.TTFTMicros() + t.OwnDecodeMicros + t.PrefillExternalityMicros + t.KVExternalityMicros + t.QueueExternalityMicros +
		t.EvictionMicros + t.WorkflowMicros + t.DistanceMicros + t.HeadOfLineMicros
}

// Uncached returns p, the prompt tokens that a worker must compute, as far as
// can be expected: what no tier holds, and always at least one.
func Uncached(r Request, h Hit) float64 {
	return max(1, r.PromptTokens-h.HBMTokens-h.LowerTokens+h.UnsureTokens)
}

// Pairs returns the (query, key) pairs of prefilling p tokens after ctx.
func Pairs(p, ctx float64) float64 { return p * (ctx + p/2) }

// Score prices one worker for one request, all but the queue externality, which
// depends on the other workers too: see [Traffic.LaterWaitMicros]. Matched
// lower-tier tokens are loaded or not as the engine's policy has it: see
// [Class.Engaged].
func Score(c *Class, l *Load, r Request, h Hit, w Weights) Terms {
	h = c.Engaged(l, h)
	p := Uncached(r, h)
	ctx := max(0, r.PromptTokens-p)
	base := c.base(l)
	room, prefillBase := c.prefilling(l, base)
	ahead := math.Ceil(l.QueuedTokens / room)
	compute := c.TokenMicros*p + c.PairMicros*Pairs(p, ctx)

	var t Terms
	t.QueueMicros = max(h.ProducerMicros, c.QueueMicros(l)+l.LateMicros)
	t.AdmissionMicros = c.admission(l, r, h, ahead, base, prefillBase+c.TokenMicros*room)
	t.LoadMicros = c.load(l, h)
	iterations := math.Ceil((l.QueuedTokens+p)/room) - ahead
	if l.QueuedTokens == 0 {
		iterations = max(1, iterations)
	}
	t.PrefillMicros = compute + prefillBase*iterations

	d, steps := r.OutputTokens, c.Steps(r.OutputTokens)
	t.OwnDecodeMicros = w.OwnDecode * steps *
		(c.StepMicros + c.SeqMicros*(l.Decoding+1) + c.KVTokenMicros*(l.ContextTokens+r.PromptTokens+d/2))
	stall := compute // what an iteration is longer for the residents
	if c.Schedule == PrefillFirst {
		stall = t.PrefillMicros // they wait for all of it
	}
	t.PrefillExternalityMicros = w.PrefillExternality * l.Decoding * stall
	t.KVExternalityMicros = w.KVExternality * l.Decoding * l.overlap(d) *
		(c.SeqMicros + c.KVTokenMicros*(r.PromptTokens+d/2)) * steps
	if w.Eviction > 0 {
		t.EvictionMicros = w.Eviction * c.eviction(l, r, p)
	}
	t.WorkflowMicros = c.workflow(l, r)
	t.DistanceMicros = l.Distance.Micros(c, h)
	excess := max(0, float64(l.QueuedSeqs)-w.HeadOfLineSlack)
	t.HeadOfLineMicros = w.HeadOfLineMicros * excess * excess
	return t
}

// PrefillMicros is [Terms.PrefillMicros] of a prompt of which a worker holds
// nothing, where it has nothing else to do.
func (c *Class) PrefillMicros(promptTokens float64) float64 {
	p := max(1, promptTokens)
	iterations := max(1, math.Ceil(p/max(1, float64(c.BudgetTokens))))
	return c.TokenMicros*p + c.PairMicros*Pairs(p, max(0, promptTokens-p)) + c.StepMicros*iterations
}

// maxBusy bounds the utilisation that LaterWaitMicros believes: beyond it the
// formula for a steady state says more than anybody knows.
const maxBusy = 0.9

// LaterWaitMicros is how long all who come later wait for x µs of prefill work
// put on a worker now. If even the least busy worker has v µs of work to do
// first, whoever comes waits, until the fleet has caught up, and each x added
// to one of N workers puts that off by x/N for all. In a queue that N servers
// share, Λ·N·v/(1−ρ) requests come before that. While some worker is free, work
// put on another keeps nobody waiting.
func (t Traffic) LaterWaitMicros(x float64) float64 {
	return x * t.ArrivalsPerMicro * t.WaitMicros / (1 - min(maxBusy, t.Busy))
}

// QueueMicros is how long the prefills ahead take by their tokens: iterations
// are shared, so it goes by tokens and not by requests.
func (c *Class) QueueMicros(l *Load) float64 {
	room, prefillBase := c.prefilling(l, c.base(l))
	return c.TokenMicros*l.QueuedTokens + c.PairMicros*l.QueuedPairs + math.Ceil(l.QueuedTokens/room)*prefillBase
}

// prefilling returns the tokens that decodes leave for prefill in each
// iteration, at least 1, and what an iteration that computes prompts takes
// besides, where one that computes none takes base.
func (c *Class) prefilling(l *Load, base float64) (room, micros float64) {
	if c.Schedule == PrefillFirst {
		return max(1, float64(c.BudgetTokens)), c.StepMicros
	}
	return max(1, float64(c.BudgetTokens)-l.Decoding), base
}

func (c *Class) base(l *Load) float64 {
	return c.StepMicros + c.SeqMicros*l.Decoding + c.KVTokenMicros*l.ContextTokens
}

// overlap is the share of my d decode steps that the residents see.
func (l *Load) overlap(d float64) float64 {
	if d <= 0 || l.Decoding <= 0 {
		return 0
	}
	return min(1, l.RemainingTokens/l.Decoding/d)
}
