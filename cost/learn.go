package cost

import "math"

// ScaleFit learns how many times slower than its class's constants a worker
// really is, from first tokens of requests that met an empty queue. A wrong
// scale moves all terms alike, so the choice survives until it is known. The
// zero value has learned nothing.
type ScaleFit struct {
	logSum, weight float64
	samples        int
}

// scaleSamples is how many samples a scale needs to count as calibrated.
const scaleSamples = 20

// maxLogStep bounds what one sample may say against the present scale.
const maxLogStep = 1.5

// Observe records a request whose TTFT was predicted at scale 1 and then
// measured, both in microseconds. Non-positive values are ignored.
func (f *ScaleFit) Observe(predictedMicros, actualMicros float64) {
	if predictedMicros <= 0 || actualMicros <= 0 {
		return
	}
	x := math.Log(actualMicros / predictedMicros)
	if f.samples >= scaleSamples {
		mean := f.logSum / f.weight
		x = mean + max(-maxLogStep, min(maxLogStep, x-mean))
	}
	const forget = 1 - 1.0/200
	f.logSum = f.logSum*forget + x
	f.weight = f.weight*forget + 1
	f.samples++
}

// Scale returns the factor, 1 before the first sample.
func (f *ScaleFit) Scale() float64 { return f.Within(&ScaleFit{}) }

// shrinkage is how many samples of its own a worker needs to be believed as
// much as its class.
const shrinkage = 20

// Within returns the factor of one worker of a class, shrunk to the class's:
// a worker that was not measured yet is taken for an average one, and not for
// a slower or faster one than its measured neighbours.
func (f *ScaleFit) Within(class *ScaleFit) float64 {
	switch {
	case f.weight == 0 && class.weight == 0:
		return 1
	case class.weight == 0:
		return math.Exp(f.logSum / f.weight)
	}
	prior := class.logSum / class.weight
	return math.Exp((f.logSum + prior*shrinkage) / (f.weight + shrinkage))
}

// Calibrated reports whether the scale rests on enough samples.
func (f *ScaleFit) Calibrated() bool { return f.samples >= scaleSamples }

// Samples returns how many requests the fit has seen.
func (f *ScaleFit) Samples() int { return f.samples }

// OutputLength predicts how many tokens a request will produce, from the mean
// of those before it. The zero value predicts the cold start's 200.
type OutputLength struct {
	sum, weight float64
}

const (
	coldOutputTokens = 200.0
	// coldWeight is how many observations the cold start counts as.
	coldWeight = 25.0
)

// Observe records a finished response of that many tokens.
func (o *OutputLength) Observe(tokens int) {
	const forget = 1 - 1.0/1000
	o.sum = o.sum*forget + float64(tokens)
	o.weight = o.weight*forget + 1
}

// Predict returns d, at least 1 and at most maxTokens where that is given
// (positive).
func (o *OutputLength) Predict(maxTokens int) float64 {
	d := (o.sum + coldOutputTokens*coldWeight) / (o.weight + coldWeight)
	if maxTokens > 0 {
		d = min(d, float64(maxTokens))
	}
	return max(1, d)
}
