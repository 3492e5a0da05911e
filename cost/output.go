package cost

import (
	"math"
	"math/bits"

	"github.com/rhizome-router/rhizome/kv"
)

// OutputKey says what is known of a request before it runs that its output's
// length may depend on. Empty fields are unknown, which is a value like others.
type OutputKey struct {
	Model  string
	Tenant string
	Head   kv.Key // of the prompt's beginning: system prompt and tools
	Tool   string // the tool or step of an agent that the answer is for
	// PromptTokens counts by its power of two only.
	PromptTokens int
}

// OutputLength predicts how many tokens requests produce, from sketches of
// those before: per model; within it per tenant; within that per head of the
// prompt; and within that per tool and prompt size. A sketch of n lengths has
// the weight n/(n+25) against the coarser one, and the coarsest against a cold
// start of median 200 and p90 800 tokens. The number of sketches is bounded:
// the least recently used half goes when there are too many.
//
// It is not safe for concurrent use.
type OutputLength struct {
	recent, older map[OutputKey]*histogram
}

const (
	coldOutputTokens    = 200.0
	coldOutputP90Tokens = 800.0
	// outputShrinkage is how many lengths a sketch needs to be believed as much
	// as the coarser one.
	outputShrinkage = 25.0
	// outputMemory is how many lengths a sketch remembers.
	outputMemory = 1000.0
	// maxSketches bounds each of the two generations: 300 B each.
	maxSketches = 4096
	// outputLevels of keys, from the coarsest to the finest.
	outputLevels = 4
)

// NewOutputLength returns one that has learned nothing.
func NewOutputLength() *OutputLength {
	return &OutputLength{recent: make(map[OutputKey]*histogram)}
}

// at returns the key of a level.
func (k OutputKey) at(level int) OutputKey {
	coarse := OutputKey{Model: k.Model}
	if level > 0 {
		coarse.Tenant = k.Tenant
	}
	if level > 1 {
		coarse.Head = k.Head
	}
	if level > 2 {
		coarse.Tool, coarse.PromptTokens = k.Tool, bits.Len(uint(max(0, k.PromptTokens)))
	} else {
		coarse.PromptTokens = -1 - level // so that levels never share a key
	}
	return coarse
}

// sketch returns a level's sketch, nil where there is none.
func (o *OutputLength) sketch(k OutputKey) *histogram {
	if h := o.recent[k]; h != nil {
		return h
	}
	return o.older[k]
}

// Observe records a finished response of that many tokens.
func (o *OutputLength) Observe(k OutputKey, tokens int) {
	for level := range outputLevels {
		key := k.at(level)
		h := o.recent[key]
		if h == nil {
			if h = o.older[key]; h == nil {
				h = new(histogram)
			}
			if len(o.recent) >= maxSketches {
				o.older, o.recent = o.recent, make(map[OutputKey]*histogram)
			}
			o.recent[key] = h
		}
		h.add(float64(tokens), outputMemory)
	}
}

// shrunk blends what every level says of the key with the cold start.
func (o *OutputLength) shrunk(k OutputKey, cold float64, of func(*histogram) float64) float64 {
	v := cold
	for level := range outputLevels {
		if h := o.sketch(k.at(level)); h != nil && h.weight > 0 {
			v += h.weight / (h.weight + outputShrinkage) * (of(h) - v)
		}
	}
	return v
}

// Predict returns d, the expected length: at least 1, and no response is taken
// to be longer than maxTokens where that is given (positive).
func (o *OutputLength) Predict(k OutputKey, maxTokens int) float64 {
	limit := math.Inf(1)
	if maxTokens > 0 {
		limit = float64(maxTokens)
	}
	d := o.shrunk(k, min(limit, coldOutputTokens), func(h *histogram) float64 { return h.mean(limit) })
	return max(1, min(limit, d))
}

// Upper returns a length that a share q of responses won't exceed, for a q
// above one half: conformal, that is the ⌈(n+1)·q⌉-th smallest of n at every
// level, so that few samples give a wide bound and not a lucky one.
func (o *OutputLength) Upper(k OutputKey, q float64, maxTokens int) float64 {
	cold := coldOutputTokens * math.Pow(coldOutputP90Tokens/coldOutputTokens, normalQuantile(q)/normalQuantile(0.9))
	v := o.shrunk(k, cold, func(h *histogram) float64 { return h.quantile(min(1, q*(h.weight+1)/h.weight)) })
	if maxTokens > 0 {
		v = min(v, float64(maxTokens))
	}
	return max(1, v)
}

// Span is a range of lengths, in tokens.
type Span struct{ Low, High float64 }

// Clamp returns tokens, or the end of the span that lies nearest.
func (s Span) Clamp(tokens float64) float64 { return max(s.Low, min(tokens, s.High)) }

// usualSamples is how many lengths a tenant must have seen before what is usual
// for it can be told.
const usualSamples = 25

// Usual returns the p10 and p90 of the key's tenant's own lengths, on the key's
// model; everything until there are 25.
func (o *OutputLength) Usual(k OutputKey) Span {
	h := o.sketch(k.at(1))
	if h == nil || h.weight < usualSamples {
		return Span{0, math.Inf(1)}
	}
	return Span{h.quantile(0.1), h.quantile(0.9)}
}

// normalQuantile is the standard normal distribution's.
func normalQuantile(q float64) float64 { return math.Sqrt2 * math.Erfinv(2*q-1) }

// Sketches returns how many sketches are kept.
func (o *OutputLength) Sketches() int { return len(o.recent) + len(o.older) }
