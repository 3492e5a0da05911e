package model

// Load is what one iteration works on.
type Load struct {
	Decoding      int     // sequences that decode one token each
	KVTokens      int64   // their context, summed: tokens read from the KV cache
	PrefillTokens int     // prompt tokens computed
	PrefillPairs  float64 // (query, key) pairs of them: Σ chunk·(context before + chunk/2)
	KVUsage       float64 // share of the HBM pool in use, 0…1
}

// Timing says how long iterations take, in microseconds. Implementations are
// pure. [Linear] is the usual one; a model of another form is another Timing.
type Timing interface {
	// Iteration returns the duration of one iteration.
	Iteration(l Load) float64
	// Decodes returns the duration of k consecutive iterations that only
	// decode: the first has load l, and every following one reads l.Decoding
	// more KV tokens. It grows with k, and Decodes(l, 1) = Iteration(l).
	Decodes(l Load, k int) float64
}

// Linear is the iteration time A + B·sequences + C·KV tokens + E·prefill
// tokens + Q·prefill pairs.
type Linear struct {
	A float64 // µs per iteration
	B float64 // µs per decoding sequence
	C float64 // µs per KV token read
	E float64 // µs per prefill token
	Q float64 // µs per (query, key) pair
}

// Iteration implements Timing.
func (t Linear) Iteration(l Load) float64 {
	return t.base(l) + t.E*float64(l.PrefillTokens) + t.Q*l.PrefillPairs
}

// Decodes implements Timing in closed form.
func (t Linear) Decodes(l Load, k int) float64 {
	n := float64(k)
	return n*t.base(l) + t.C*float64(l.Decoding)*n*(n-1)/2
}

func (t Linear) base(l Load) float64 {
	return t.A + t.B*float64(l.Decoding) + t.C*float64(l.KVTokens)
}
