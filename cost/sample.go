package cost

import (
	"math"

	"github.com/rhizome-router/rhizome/kv"
)

// SampleKind says how a sample was taken. The noise of each kind is learned by
// itself, so that the sharper one counts for more.
type SampleKind uint8

const (
	// FirstTokens: the time to first token of a request that met an empty
	// queue.
	FirstTokens SampleKind = iota
	// Decodes: the time from a request's first token to its end.
	Decodes
	// Steps: the mean step time that the engine itself reports.
	Steps
	// Responses: the time of a whole response that shows nothing before its
	// end.
	Responses
	numKinds
)

// Sample is a measured time together with what the engine did in it: every
// field but the first three counts, summed over the iterations that fall into
// the time.
type Sample struct {
	Kind           SampleKind
	MeasuredMicros float64
	// KnownMicros is a part of the time that the fit has nothing to learn of.
	KnownMicros float64
	// DoubtMicros is the standard deviation of what the counts leave open.
	DoubtMicros float64

	Requests      float64 // HTTP round trips: 1 of first tokens
	PromptTokens  float64 // tokenised
	Iterations    float64
	Sequences     float64 // Σ B
	KVTokens      float64 // Σ K
	PrefillTokens float64 // Σ P
	PrefillPairs  float64 // Σ S
	// LoadedTokens came up from a lower tier, in Loads transfers; tokens are
	// counted 1/(1 − ρ) times on a link of utilisation ρ.
	LoadedTokens, Loads [kv.NumTiers]float64
}

// micros returns a sample's counts in the order of the parameters, priced by a
// class's constants: their sum is the time the class predicts, in µs.
func (s *Sample) micros(c *Class) (x [numParams]float64) {
	x[overhead] = s.Requests * c.OverheadMicros
	x[promptToken] = s.PromptTokens * c.PromptTokenMicros
	x[step] = s.Iterations * c.StepMicros
	x[seq] = s.Sequences * c.SeqMicros
	x[kvToken] = s.KVTokens * c.KVTokenMicros
	x[token] = s.PrefillTokens * c.TokenMicros
	x[pair] = s.PrefillPairs * c.PairMicros
	for t := kv.CPU; t < kv.NumTiers; t++ {
		if link := &c.Links[t]; link.BytesPerMicro > 0 {
			x[firstLink+param(t-kv.CPU)] = s.Loads[t]*link.SetupMicros + s.LoadedTokens[t]*c.KVBytes/link.BytesPerMicro
		}
	}
	return x
}

// PredictMicros returns the time that a class's constants give for a sample.
func (s *Sample) PredictMicros(c *Class) float64 {
	sum := s.KnownMicros
	for _, x := range s.micros(c) {
		sum += x
	}
	return sum
}

// maxMicros bounds a sample: what says it took longer than 12 days says nothing.
const maxMicros = 1e12

// usable reports whether nothing in it is negative, infinite or no number.
func usable(x *[numParams]float64, s *Sample) bool {
	sum := s.KnownMicros + s.DoubtMicros
	least := min(s.KnownMicros, s.DoubtMicros)
	for _, v := range x {
		sum += v
		least = min(least, v)
	}
	return s.Kind < numKinds && least >= 0 && sum > 0 && sum < maxMicros &&
		s.MeasuredMicros > 0 && s.MeasuredMicros < maxMicros && !math.IsNaN(sum)
}
