package cost

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/rhizome-router/rhizome/kv"
)

// FitState is what a fit of a class has learned, in a form that outlives the
// process. It holds the constants themselves, so it can be restored over other
// ones to start with.
type FitState struct {
	// Micros are the constants by name: µs, and µs per loaded KV byte of links.
	Micros map[string]float64 `json:"micros"`
	// Doubt is the lower triangle of the covariance of their logarithms.
	Doubt   []float64 `json:"doubt"`
	Noise   []float64 `json:"noise"` // variance of each kind of sample, relative
	Samples int       `json:"samples"`
}

// State returns what the fit has learned, from a start at base.
func (f *Fit) State(base Class) FitState {
	s := FitState{Micros: make(map[string]float64, numParams), Samples: f.samples, Noise: slices.Clone(f.noise[:])}
	x := priced(&base)
	for i := range numParams {
		s.Micros[paramNames[i]] = x[i] * math.Exp(f.log[i])
		s.Doubt = append(s.Doubt, f.doubt[i][:i+1]...)
	}
	return s
}

// priced returns a class's constants in the order of the parameters.
func priced(c *Class) vector {
	x := vector{overhead: c.OverheadMicros, promptToken: c.PromptTokenMicros, step: c.StepMicros, seq: c.SeqMicros,
		kvToken: c.KVTokenMicros, token: c.TokenMicros, pair: c.PairMicros}
	for t := kv.CPU; t < kv.NumTiers; t++ {
		if b := c.Links[t].BytesPerMicro; b > 0 {
			x[firstLink+param(t-kv.CPU)] = 1 / b
		}
	}
	return x
}

// errFitState is wrapped by what Restore returns.
var errFitState = errors.New("not a state of a fit")

// Restore makes the fit of a class that starts at base go on where another one
// ended. After an error the fit is as it was. Constants that the state or base
// lacks stay at their start.
func (f *Fit) Restore(base Class, s FitState) error {
	if len(s.Doubt) != int(numParams*(numParams+1)/2) || len(s.Noise) != int(numKinds) || s.Samples < 0 {
		return fmt.Errorf("restore a fit of %s: %w: %d doubts and %d noises of %d samples; learn anew", base.Name, errFitState, len(s.Doubt), len(s.Noise), s.Samples)
	}
	next := *NewClassFit(&base)
	x := priced(&base)
	at := 0
	for i := range numParams {
		if v := s.Micros[paramNames[i]]; v > 0 && x[i] > 0 {
			next.log[i] = max(-maxLog, min(maxLog, math.Log(v/x[i])))
		}
		for j := range i + 1 {
			next.doubt[i][j], next.doubt[j][i] = s.Doubt[at], s.Doubt[at]
			at++
		}
		if !(next.doubt[i][i] > 0 && next.doubt[i][i] < 100) {
			return fmt.Errorf("restore a fit of %s: %w: the variance of %s is %v; learn anew", base.Name, errFitState, paramNames[i], next.doubt[i][i])
		}
	}
	// A covariance is bounded by its variances; anything else would blow up.
	for i := range numParams {
		for j := range i {
			if c := next.doubt[i][j]; !(c*c <= next.doubt[i][i]*next.doubt[j][j]*1.0001) {
				return fmt.Errorf("restore a fit of %s: %w: impossible covariance of %s and %s; learn anew", base.Name, errFitState, paramNames[i], paramNames[j])
			}
		}
	}
	for k, v := range s.Noise {
		next.noise[k] = max(leastNoise*leastNoise, min(mostNoise*mostNoise, v))
	}
	next.samples = s.Samples
	next.publish()
	*f = next
	return nil
}
