package cost

import "github.com/rhizome-router/rhizome/kv"

// Load is a worker's state at the moment of a decision.
type Load struct {
	QueuedTokens float64 // ΣP: booked prefill tokens not computed yet
	QueuedPairs  float64 // Σ p·(ctx + p/2) of those
	QueuedSeqs   int     // the requests they belong to
	// LateMicros is how much longer the queue should take than its tokens say, by
	// when the prefills in it should be over. [Class.QueueMicros] tells the latter.
	LateMicros      float64
	Decoding        float64 // B: sequences decoding
	ContextTokens   float64 // K: their total context
	RemainingTokens float64 // Σ d_rem of the decoding sequences
	UniqueTokens    float64 // U: KV occupied and not evictable, a shared prefix once
	// Residents, earliest to finish first; read only when room is short.
	Residents []Resident
	Rho       [kv.NumTiers]float64 // utilisation of each link, 0 to 1, higher is more congested
	// Closed is how far the gate of each tier is closed, 0 to 1: see [Gate].
	Closed [kv.NumTiers]float64
	// BacklogBytes is what each tier's link has in flight and waiting, where
	// BacklogKnown says that the engine reports it; Rho does not count then.
	BacklogBytes [kv.NumTiers]float64
	BacklogKnown [kv.NumTiers]bool
	Cache        Pressure
	Distance     Distance
}

// Distance is how far away a worker is. The zero value is next door.
type Distance struct {
	RTTMicros float64 // a round trip to it
	// ShadowMicrosPerByte is what a byte over the link between data centers is
	// worth, in time: see Distance.Micros.
	ShadowMicrosPerByte float64
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
	// HighTokens is what the prompt has at most in 9 of 10 cases, where its length
	// is a guess: admission is priced by it. 0: PromptTokens.
	HighTokens   float64
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
	// UnsureTokens is how many of these, on average, will turn out not to be
	// there: of those that are only promised, as requests on their way will
	// compute them, the share 1 − P(confirm).
	UnsureTokens float64
	// ProducerMicros is how long those requests still need for it.
	ProducerMicros float64
}

// Tokens returns the tokens held on any tier.
func (h Hit) Tokens() float64 { return h.HBMTokens + h.LowerTokens }
