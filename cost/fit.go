package cost

import (
	"math"

	"github.com/rhizome-router/rhizome/kv"
)

// Fit learns a worker's constants from measured times. Each [Sample] is one
// equation of the model,
//
//	measured = Σ constant·count,
//
// and a fit is an extended Kalman filter, that is recursive least squares, on
// the logarithms of how far the constants are from those it started with. So
// constants stay above 0, errors count in proportion, and a common scale, which
// is what is least known of a generic start, is exactly linear: the first
// samples find it, and the constants part ways only as the samples tell them
// apart. There is no order in which to learn them: what the samples say nothing
// about keeps its ratio to the rest.
//
// A class has one fit, made by [NewClassFit], and each of its workers another,
// whose zero value is ready, of how it differs from its class. They share every
// sample by their doubts: at first it is the class that learns, later the
// worker, and a worker that was not measured is taken for an average one.
// Outliers are bounded (Huber's weights) or left out, and where the errors of a
// class or of one of its workers keep to one side (Page-Hinkley, see drift) its
// doubt is widened.
//
// A Fit is not safe for concurrent use.
type Fit struct {
	// What decisions read of workers comes first, in one line of the processor's
	// cache where nothing was measured.
	begin   *prior // nil: workerPrior, not begun
	seen    int    // samples of the class when this worker's last was taken, or it last rested
	samples int
	alarms  int
	error   float64 // running mean of |log(measured/predicted)|
	factor  vector  // exp(shown)
	shown   vector  // log as last published, see publish
	log     vector  // of constant / start
	doubt   matrix  // covariance of log
	noise   [numKinds]float64
	drift   drift
}

const (
	// calibratedSamples is how many samples a fit needs to count as calibrated.
	calibratedSamples = 20
	// huber is from how many standard deviations on a sample counts no more
	// than at them.
	huber = 2.5
	// absurd is from where on it counts for nothing but an alarm.
	absurd = 6.0
	// maxLog bounds how far the constants may go from their start.
	maxLog = 9.0
	// publishLog is how little a change is not worth telling.
	publishLog = 0.002
	// The noise of a kind of sample, relative: at the start, and its bounds.
	startNoise, leastNoise, mostNoise = 0.15, 0.02, 0.6
	// noiseMemory is over how many samples noise and error are averaged.
	noiseMemory = 100
)

// NewClassFit returns a fit of all workers of a class. Of constants named
// "generic" little is taken to be known, of others much.
func NewClassFit(base *Class) *Fit {
	f := new(Fit)
	if base.Name == GenericName {
		f.start(&genericPrior)
	} else {
		f.start(&presetPrior)
	}
	return f
}

func (f *Fit) start(p *prior) {
	f.begin = p
	f.doubt = matrix{}
	f.doubt.add(p)
	f.log, f.shown = vector{}, vector{}
	for i := range f.factor {
		f.factor[i] = 1
	}
	for i := range f.noise {
		f.noise[i] = startNoise * startNoise
	}
}

// Observe learns from a sample of a worker whose constants were taken for base.
// class is the fit of its class, which learns too; nil where f is that itself.
// Samples that can't be, such as negative or infinite ones, are ignored.
func (f *Fit) Observe(base *Class, class *Fit, s *Sample) {
	x := s.micros(base)
	if !usable((*[numParams]float64)(&x), s) {
		return
	}
	if f.begin == nil {
		f.start(&workerPrior)
	}
	whole := f
	if class != nil {
		whole = class
	}
	predicted := s.KnownMicros
	share := vector(x) // the gradient of log(predicted)
	for i := range share {
		share[i] *= f.factor[i]
		if class != nil {
			share[i] *= class.factor[i]
		}
		predicted += share[i]
	}
	for i := range share {
		share[i] /= predicted
	}
	off := math.Log(s.MeasuredMicros / predicted)
	own := f.doubt.times(&share)
	unsure := own.dot(&share)
	var common vector
	if class != nil {
		common = class.doubt.times(&share)
		unsure += common.dot(&share)
	}
	open := s.DoubtMicros / predicted
	variance := unsure + whole.noise[s.Kind] + open*open
	deviation := math.Sqrt(variance)
	if math.Abs(off) < absurd*deviation {
		bounded := max(-huber*deviation, min(huber*deviation, off))
		f.update(&own, bounded, variance)
		if class != nil {
			class.update(&common, bounded, variance)
		}
	}
	whole.learnNoise(s.Kind, off*off, variance)
	f.count(off)
	if class != nil {
		class.count(off)
		f.seen = class.samples
		if class.drift.observe(off / deviation) {
			class.alarm()
			f.drift = drift{} // it is not its own fault
			return
		}
	}
	if f.drift.observe(off / deviation) {
		f.alarm()
	}
}

const (
	// restEvery is after how many samples of its class a worker that had none
	// itself rests again, and restMemory in how many what is known of it fades.
	restEvery, restMemory = 512, 5000.0
)

// Rest lets what is known of a worker fade while the others of its class are
// measured and it is not: one that was slow once, and gets no requests for it,
// becomes an average one in time, and is tried again. It may be called at any
// time and seldom does anything.
func (f *Fit) Rest(class *Fit) {
	missed := class.samples - f.seen
	if f.begin == nil || missed < restEvery {
		return
	}
	f.seen = class.samples
	keep := math.Exp(-float64(missed) / restMemory)
	for i := range numParams {
		f.log[i] *= keep
		for j := range numParams {
			f.doubt[i][j] = keep*keep*f.doubt[i][j] + (1-keep*keep)*f.begin.covariance(i, j)
		}
	}
	f.publish()
}

// learnNoise follows the variance of a kind of sample: half of the squared
// errors must be under the median of what is expected of them. A median
// because a mean would take a few outliers for noise, and then believe them.
func (f *Fit) learnNoise(k SampleKind, square, variance float64) {
	const medianOfSquare = 0.455 // of a standard normal variable
	n := &f.noise[k]
	change := 2.0 / noiseMemory
	if square < medianOfSquare*variance {
		change = -change
	}
	// Where doubt dwarfs it, nothing is seen of it.
	*n *= math.Exp(change * *n / variance)
	*n = max(leastNoise*leastNoise, min(mostNoise*mostNoise, *n))
}

// update is the filter's step: gain is the covariance with what was measured.
func (f *Fit) update(gain *vector, off, variance float64) {
	keep := 1 - f.begin.forget
	common := f.begin.forget * f.begin.common * f.begin.common
	for i := range numParams {
		f.log[i] = max(-maxLog, min(maxLog, (1-f.begin.forget/2)*(f.log[i]+gain[i]*off/variance)))
		row := gain[i] / variance
		for j := range i + 1 {
			v := keep*(f.doubt[i][j]-row*gain[j]) + common
			f.doubt[i][j], f.doubt[j][i] = v, v
		}
		f.doubt[i][i] += f.begin.forget * f.begin.own[i] * f.begin.own[i]
	}
	f.publish()
}

// count takes note of a sample and how far it was from what was predicted.
func (f *Fit) count(off float64) {
	f.samples++
	f.error += (min(1, math.Abs(off)) - f.error) / float64(min(f.samples, noiseMemory))
}

func (f *Fit) alarm() {
	f.alarms++
	f.doubt.add(&suspectPrior)
}

// publish makes the constants known when they have changed enough to matter, so
// that reading them costs no exponentials.
func (f *Fit) publish() {
	for i := range f.log {
		if math.Abs(f.log[i]-f.shown[i]) > publishLog {
			f.shown[i] = f.log[i]
			f.factor[i] = math.Exp(f.log[i])
		}
	}
}

// Class returns a worker's constants: base, as class and f have learned to
// change it. class may be nil.
func (f *Fit) Class(base Class, class *Fit) Class {
	f.Apply(&base, class)
	return base
}

// Apply changes a worker's constants as class and f have learned to. class may be
// nil.
func (f *Fit) Apply(c *Class, class *Fit) {
	if class != nil && class.begin != nil {
		class.apply(c)
	}
	if f.begin != nil {
		f.apply(c)
	}
}

func (f *Fit) apply(c *Class) {
	c.OverheadMicros *= f.factor[overhead]
	c.PromptTokenMicros *= f.factor[promptToken]
	c.StepMicros *= f.factor[step]
	c.SeqMicros *= f.factor[seq]
	c.KVTokenMicros *= f.factor[kvToken]
	c.TokenMicros *= f.factor[token]
	c.PairMicros *= f.factor[pair]
	for t := kv.CPU; t < kv.NumTiers; t++ {
		slower := f.factor[firstLink+param(t-kv.CPU)]
		c.Links[t].SetupMicros *= slower
		c.Links[t].BytesPerMicro /= slower
	}
}

// Samples returns how many samples the fit has taken.
func (f *Fit) Samples() int { return f.samples }

// Calibrated reports whether the fit rests on enough samples.
func (f *Fit) Calibrated() bool { return f.samples >= calibratedSamples }

// Alarms returns how often the worker's errors kept to one side for so long
// that its constants must have changed.
func (f *Fit) Alarms() int { return f.alarms }

// MeanError returns the mean of |log(measured/predicted)| over the last hundred
// samples, each predicted before it was learned from; 0 before the first.
func (f *Fit) MeanError() float64 { return f.error }
