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

	StepMicros      float64 // a: one iteration's fixed part
	SeqMicros       float64 // b: per decoding sequence and iteration
	KVTokenMicros   float64 // c: per context token read and iteration
	TokenMicros     float64 // e: per prefill token
	PairMicros      float64 // q: per (query, key) pair of prefill attention
	Schedule        Schedule
	Admit           Admission
	LoadPolicy      LoadPolicy
	LoadLeastTokens float64 // LoadThreshold's n
	// TokensPerStep (s) is how many tokens a decoding sequence puts out in one
	// iteration: more than 1 under speculative decoding. Less counts as 1.
	TokensPerStep  float64
	BudgetTokens   int     // tokens in one iteration at most (chunk budget)
	MaxSeqs        int     // sequences running at most
	CapacityTokens float64 // KV pool in HBM; 0 when unknown, which means no limit
	KVBytes        float64 // KV bytes per token
	Links          [kv.NumTiers]Link
}

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
		TokensPerStep: 1, BudgetTokens: 2048, MaxSeqs: 256, KVBytes: 131072,
	}
	c.Links[kv.CPU] = Link{BytesPerMicro: 64_000}
	c.Links[kv.Disk] = Link{SetupMicros: 80, BytesPerMicro: 7_000}
	c.Links[kv.Remote] = Link{BytesPerMicro: 12_500}
	c.Links[kv.Other] = c.Links[kv.Disk]
	return c
}
