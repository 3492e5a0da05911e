package cost

import "math"

// watermark is the share of the KV pool up to which engines admit prompts.
const watermark = 0.95

// minAvailable is the least share of a link that a load is assumed to get.
const minAvailable = 0.02

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
	return t.TTFTMicros() + t.OwnDecodeMicros + t.PrefillExternalityMicros + t.KVExternalityMicros + t.QueueExternalityMicros
}

// Uncached returns p, the prompt tokens that a worker must compute: what no
// tier holds, and always at least one.
func Uncached(r Request, h Hit) float64 {
	return max(1, r.PromptTokens-h.HBMTokens-h.LowerTokens)
}

// Pairs returns the (query, key) pairs of prefilling p tokens after ctx.
func Pairs(p, ctx float64) float64 { return p * (ctx + p/2) }

// Score prices one worker for one request, all but the queue externality, which
// depends on the other workers too: see [Traffic.LaterWaitMicros]. Every matched lower-tier token is
// taken to be loaded, since that is what engines do with it.
func Score(c *Class, l *Load, r Request, h Hit, w Weights) Terms {
	p := Uncached(r, h)
	ctx := max(0, r.PromptTokens-p)
	base := c.base(l)
	// What decodes leave for prefill in each iteration, and what an iteration
	// that computes prompts takes besides.
	room, prefillBase := max(1, float64(c.BudgetTokens)-l.Decoding), base
	if c.Schedule == PrefillFirst {
		room, prefillBase = max(1, float64(c.BudgetTokens)), c.StepMicros
	}
	ahead := math.Ceil(l.QueuedTokens / room)
	compute := c.TokenMicros*p + c.PairMicros*Pairs(p, ctx)

	var t Terms
	t.QueueMicros = c.TokenMicros*l.QueuedTokens + c.PairMicros*l.QueuedPairs + ahead*prefillBase
	t.AdmissionMicros = c.admission(l, r, h, ahead, base, prefillBase+c.TokenMicros*room)
	t.LoadMicros = c.load(l, h)
	iterations := math.Ceil((l.QueuedTokens+p)/room) - ahead
	if l.QueuedTokens == 0 {
		iterations = max(1, iterations)
	}
	t.PrefillMicros = compute + prefillBase*iterations

	d := r.OutputTokens
	t.OwnDecodeMicros = w.OwnDecode * d *
		(c.StepMicros + c.SeqMicros*(l.Decoding+1) + c.KVTokenMicros*(l.ContextTokens+r.PromptTokens+d/2))
	stall := compute // what an iteration is longer for the residents
	if c.Schedule == PrefillFirst {
		stall = t.PrefillMicros // they wait for all of it
	}
	t.PrefillExternalityMicros = w.PrefillExternality * l.Decoding * stall
	t.KVExternalityMicros = w.KVExternality * l.Decoding * l.overlap(d) *
		(c.SeqMicros*d + c.KVTokenMicros*(r.PromptTokens*d+d*d/2))
	return t
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

func (c *Class) base(l *Load) float64 {
	return c.StepMicros + c.SeqMicros*l.Decoding + c.KVTokenMicros*l.ContextTokens
}

// load is the time to bring the lower tier's blocks up over a link that others
// use too.
func (c *Class) load(l *Load, h Hit) float64 {
	if h.LowerTokens <= 0 {
		return 0
	}
	link := c.Links[h.Tier]
	if link.BytesPerMicro <= 0 {
		// No way up: what the tier holds will be computed after all. Price it
		// so, rather than as free.
		return c.TokenMicros * h.LowerTokens
	}
	micros := link.SetupMicros + h.LowerTokens*c.KVBytes/(link.BytesPerMicro*available(l.Rho[h.Tier]))
	recompute := c.TokenMicros*h.LowerTokens + c.PairMicros*Pairs(h.LowerTokens, h.HBMTokens)
	return gated(micros, recompute, l.Closed[h.Tier])
}

// available is the share of a link of utilisation rho that a load gets.
func available(rho float64) float64 { return max(1-rho, minAvailable) }

// admission is the wait until the earliest-finishing residents have freed the
// KV and the sequence slots that the request, and those queued ahead, need.
func (c *Class) admission(l *Load, r Request, h Hit, ahead, base, prefilling float64) float64 {
	needTokens := 0.0
	if c.CapacityTokens > 0 {
		needTokens = l.UniqueTokens + r.PromptTokens - h.InUseTokens - watermark*c.CapacityTokens
	}
	needSeqs := 0.0
	if c.MaxSeqs > 0 {
		needSeqs = l.Decoding + float64(l.QueuedSeqs) + max(1, r.Choices) - float64(c.MaxSeqs)
	}
	if needTokens <= 0 && needSeqs <= 0 {
		return 0
	}
	iterations := 0.0
	for _, res := range l.Residents {
		if needTokens <= 0 && needSeqs <= 0 {
			break
		}
		needTokens -= res.ExclusiveTokens
		needSeqs--
		iterations = max(iterations, res.RemainingTokens)
	}
	if (needTokens > 0 || needSeqs > 0) && l.Decoding > 0 {
		// Those known one by one are not enough: others hold the rest, and an
		// average one of them has to finish.
		iterations = max(iterations, l.RemainingTokens/max(1, l.Decoding))
	}
	full := min(iterations, ahead)
	if c.Schedule == PrefillFirst {
		return ahead*prefilling + iterations*base // prompts first, and no token meanwhile
	}
	return full*prefilling + (iterations-full)*base
}

// overlap is the share of my d decode steps that the residents see.
func (l *Load) overlap(d float64) float64 {
	if d <= 0 || l.Decoding <= 0 {
		return 0
	}
	return min(1, l.RemainingTokens/l.Decoding/d)
}
