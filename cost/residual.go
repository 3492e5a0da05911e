package cost

import "math"

// Residuals is a sketch of how far predictions were off. The zero value is
// empty.
type Residuals struct{ sketch histogram }

// residualUnit is the resolution of a sketch of relative errors: 0.1 %.
const residualUnit = 1e-3

// Observe records a prediction and what came of it. Values that aren't above 0
// are ignored.
func (r *Residuals) Observe(predicted, measured float64) {
	if off := math.Abs(math.Log(predicted / measured)); predicted > 0 && measured > 0 && !math.IsInf(off, 0) {
		r.sketch.add(off/residualUnit, 1000)
	}
}

// Quantile returns the |log(predicted/measured)| that a share q of the last
// thousand were at most; 0 without any. Small values are relative errors.
func (r *Residuals) Quantile(q float64) float64 { return residualUnit * r.sketch.quantile(q) }
