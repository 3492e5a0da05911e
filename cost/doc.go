// Package cost is the cost model: what it costs, in expected microseconds, to
// send a request to a worker.
//
// It is pure and deterministic: constants ([Class]), the worker's state
// ([Load]), the request ([Request]) and its cache hit ([Hit]) go in, [Terms]
// come out. The model rests on one equation of an engine iteration
//
//	τ = base + e·P + q·S,  base = a + b·B + c·K
//
// with P prefill tokens in the iteration, S = Σ over its chunks of
// chunk·(context before + chunk/2), B decoding sequences and K their context.
// Start reading at [Score].
package cost

import "github.com/rhizome-router/rhizome/kv"

// Class holds the physical constants of one kind of worker: a model on an
// engine on an accelerator. All times are microseconds.
type Class struct {
	Name string
	// OverheadMicros (o) is what HTTP and scheduling add to a first token, and
	// PromptTokenMicros what tokenising does, per prompt token. They are part of
	// predictions, not of the choice.
	OverheadMicros, PromptTokenMicros float64

	StepMicros     float64 // a: one iteration's fixed part
	SeqMicros      float64 // b: per decoding sequence and iteration
	KVTokenMicros  float64 // c: per context token read and iteration
	TokenMicros    float64 // e: per prefill token
	PairMicros     float64 // q: per (query, key) pair of prefill attention
	Schedule       Schedule
	BudgetTokens   int     // tokens in one iteration at most (chunk budget)
	MaxSeqs        int     // sequences running at most
	CapacityTokens float64 // KV pool in HBM; 0 when unknown, which means no limit
	KVBytes        float64 // KV bytes per token
	Links          [kv.NumTiers]Link
}

// Schedule says what an iteration may hold.
type Schedule uint8

const (
	// Mixed: decodes and prefill chunks together (vLLM).
	Mixed Schedule = iota
	// PrefillFirst: while there is a prompt to compute, decodes wait (SGLang's
	// default).
	PrefillFirst
)

// Link is the way from a lower tier up to HBM.
type Link struct {
	SetupMicros   float64 // t0
	BytesPerMicro float64 // nominal bandwidth (1 GB/s = 1000 B/µs); 0: nothing can be loaded
}

// Scaled returns the class of a worker that does everything s times as slowly.
func (c Class) Scaled(s float64) Class {
	c.OverheadMicros *= s
	c.PromptTokenMicros *= s
	c.StepMicros *= s
	c.SeqMicros *= s
	c.KVTokenMicros *= s
	c.TokenMicros *= s
	c.PairMicros *= s
	for i := range c.Links {
		c.Links[i].SetupMicros *= s
		c.Links[i].BytesPerMicro /= s
	}
	return c
}

// GenericName is the name of the class of a worker of unknown class.
const GenericName = "generic"

// Generic returns the constants assumed for a worker of unknown class: those
// of Llama-3-8B on an H100 (Vidur's operator profiles, see the preset of that
// name). Little but their ratios is trusted: a [Fit] finds the rest.
func Generic() Class {
	c := Class{
		Name: GenericName, OverheadMicros: 2000, PromptTokenMicros: 0.5,
		StepMicros: 5900, SeqMicros: 10, KVTokenMicros: 0.049, TokenMicros: 22, PairMicros: 1.06e-3,
		BudgetTokens: 2048, MaxSeqs: 256, KVBytes: 131072,
	}
	c.Links[kv.CPU] = Link{BytesPerMicro: 64_000}
	c.Links[kv.Disk] = Link{SetupMicros: 80, BytesPerMicro: 7_000}
	c.Links[kv.Remote] = Link{BytesPerMicro: 12_500}
	c.Links[kv.Other] = c.Links[kv.Disk]
	return c
}

// Load is a worker's state at the moment of a decision.
type Load struct {
	QueuedTokens    float64 // ΣP: booked prefill tokens not computed yet
	QueuedPairs     float64 // Σ p·(ctx + p/2) of those
	QueuedSeqs      int     // the requests they belong to
	Decoding        float64 // B: sequences decoding
	ContextTokens   float64 // K: their total context
	RemainingTokens float64 // Σ d_rem of the decoding sequences
	UniqueTokens    float64 // U: KV occupied and not evictable, a shared prefix once
	// Residents, earliest to finish first; read only when room is short.
	Residents []Resident
	Rho       [kv.NumTiers]float64 // utilisation of each link, 0 to 1, higher is more congested
	// Closed is how far the gate of each tier is closed, 0 to 1: see [Gate].
	Closed [kv.NumTiers]float64
}

// Resident is a request that holds KV on a worker.
type Resident struct {
	RemainingTokens float64 // d_rem: output tokens still to come, at least 1
	ExclusiveTokens float64 // KV that only it holds, freed when it finishes
}

// Traffic is what the workers of a model have to cope with on average.
type Traffic struct {
	ArrivalsPerMicro float64 // requests a worker gets per microsecond
	Busy             float64 // share of its time that their prefills take, 0 to 1
	WaitMicros       float64 // v: how long one must wait now where the wait is shortest
}

// Request is what is to be placed.
type Request struct {
	PromptTokens float64 // ISL
	OutputTokens float64 // d: predicted, per choice
	Choices      float64 // n
	Return       Return  // of the workflow it belongs to
}

// Return is the expectation that an agent's workflow comes back with what this
// request leaves in the cache. The zero value is that of a request without
// agent context, of which nothing is expected.
type Return struct {
	Probability   float64 // that it comes back, 0 to 1
	AfterMicros   float64 // expected time until then
	ContextTokens float64 // prompt and output that it comes back with
}

// Hit is how much of the prompt a worker holds.
type Hit struct {
	HBMTokens   float64
	InUseTokens float64 // part of HBMTokens that requests in flight hold: it takes no more room
	LowerTokens float64 // found after them in one lower tier
	Tier        kv.Tier // that tier
}

// Tokens returns the tokens held on any tier.
func (h Hit) Tokens() float64 { return h.HBMTokens + h.LowerTokens }

// Weights are the exchange rates between my wait and others'. They are fixed,
// never tuned per deployment.
type Weights struct {
	// OwnDecode, w_d, is the share of the request's own decode time that counts.
	OwnDecode float64 `yaml:"own_decode" config:"zero"`
	// PrefillExternality, w_p, is how much a µs counts by which the prefill
	// delays the sequences that decode there.
	PrefillExternality float64 `yaml:"prefill_externality" config:"zero"`
	// KVExternality, w_k, is how much a µs counts by which the request's KV makes
	// their steps longer.
	KVExternality float64 `yaml:"kv_externality" config:"zero"`
	// QueueExternality, w_q, is how much a µs counts that those wait who come
	// later.
	QueueExternality float64 `yaml:"queue_externality" config:"zero"`
}

// DefaultWeights are the rates the product ships with: what rhizome-lab tune
// found on set A, rounded.
func DefaultWeights() Weights {
	return Weights{OwnDecode: 0.3, PrefillExternality: 0.06, KVExternality: 0, QueueExternality: 1.4}
}
