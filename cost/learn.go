package cost

import "math"

// ScaleFit learns how many times slower than its class's constants a worker
// really is, and the fixed overhead of HTTP and tokenisation that comes on top,
// from first tokens of requests that met an empty queue:
//
//	measured = overhead + scale·predicted
//
// by least squares with weights 1/predicted and forgetting: long prompts, whose
// measurement a busy machine disturbs least, say most about the scale. A wrong
// scale moves all terms alike, so the choice survives until it is known. The
// zero value has learned nothing.
type ScaleFit struct {
	// Decayed sums over x, predicted, and y, measured: of 1, 1/x, x, y, y/x.
	n, inverse, x, y, ratio float64
	samples                 int
}

const (
	// scaleSamples is how many samples a fit needs to count as calibrated.
	scaleSamples = 20
	// scaleMemory is how many samples a fit remembers.
	scaleMemory = 200
	// scaleOutlier bounds what one sample may say: so many times more or less
	// than what the fit expects.
	scaleOutlier = 4
	// scaleShrinkage is how many samples of its own a worker needs to be
	// believed as much as its class.
	scaleShrinkage = 50
)

// Observe records a request whose TTFT was predicted at scale 1 and then
// measured, both in microseconds. Non-positive values are ignored.
func (f *ScaleFit) Observe(predictedMicros, measuredMicros float64) {
	if predictedMicros <= 0 || measuredMicros <= 0 {
		return
	}
	x, y := predictedMicros, measuredMicros
	if f.samples >= scaleSamples {
		scale, overhead := f.line()
		expected := overhead + scale*x
		y = max(expected/scaleOutlier, min(expected*scaleOutlier, y))
	}
	const keep = 1 - 1.0/scaleMemory
	f.n, f.inverse, f.x, f.y, f.ratio = f.n*keep+1, f.inverse*keep+1/x, f.x*keep+x, f.y*keep+y, f.ratio*keep+y/x
	f.samples++
}

// line returns the fitted scale, above 0, and the overhead in microseconds, at
// least 0; 1 and 0 before the first sample.
func (f *ScaleFit) line() (scale, overheadMicros float64) {
	if f.n == 0 {
		return 1, 0
	}
	proportional := f.y / f.x
	spread := f.inverse*f.x - f.n*f.n
	if f.samples < scaleSamples || spread < 0.1*f.n*f.n {
		return proportional, 0 // too few or too equal to tell the two apart
	}
	scale = (f.inverse*f.y - f.n*f.ratio) / spread
	overheadMicros = (f.ratio - scale*f.n) / f.inverse
	if scale <= 0 || overheadMicros < 0 {
		return proportional, 0
	}
	return scale, overheadMicros
}

// Within returns the scale and the overhead of one worker of a class, shrunk
// to the class's: a worker that was not measured yet is taken for an average
// one, and not for a slower or faster one than its measured neighbours.
func (f *ScaleFit) Within(class *ScaleFit) (scale, overheadMicros float64) {
	scale, overheadMicros = class.line()
	if f.n == 0 || class.n == 0 {
		return scale, overheadMicros
	}
	own, ownOverhead := f.line()
	share := f.n / (f.n + scaleShrinkage)
	scale = math.Exp(share*math.Log(own) + (1-share)*math.Log(scale))
	return scale, share*ownOverhead + (1-share)*overheadMicros
}

// Calibrated reports whether the fit rests on enough samples.
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
