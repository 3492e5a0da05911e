package policy

import (
	"fmt"
	"slices"
)

// Param is one number of a rule that an optimiser may set.
type Param struct {
	Name      string
	Low, High float64 // bounds, both allowed
	Log       bool    // to be searched on a logarithmic scale; Low is above 0 then
	Default   float64 // as published
}

// Tunable is a rule with parameters: what they are and how to make it from
// their values, which are in the order of Params.
type Tunable struct {
	Params []Param
	Make   func(x []float64) Maker
}

// Tunables returns the rules that get the same tuning as Rhizome, by name.
func Tunables() map[string]Tunable {
	return map[string]Tunable{
		"lmetric":       tunableLMetric(),
		"dynamo":        tunableDynamo(),
		"llm-d-precise": tunableLLMDPrecise(),
		"sgl-router":    tunableSGLRouter(),
	}
}

// Defaults returns the published values.
func (t Tunable) Defaults() []float64 {
	x := make([]float64, len(t.Params))
	for i, p := range t.Params {
		x[i] = p.Default
	}
	return x
}

// Clamp returns x with each value moved into its parameter's bounds. It panics
// if there are not as many values as parameters.
func (t Tunable) Clamp(x []float64) []float64 {
	if len(x) != len(t.Params) {
		panic(fmt.Sprintf("policy: %d values for %d parameters", len(x), len(t.Params)))
	}
	x = slices.Clone(x)
	for i, p := range t.Params {
		x[i] = min(max(x[i], p.Low), p.High)
	}
	return x
}
