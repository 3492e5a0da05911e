package route

import (
	"math"
	"time"
)

// pauses is how long after the end of a step workflows come back, and how many
// never do: a survival curve in bins of equal ratio, since such times are
// heavy-tailed, that forgets slowly. The zero value has seen nothing.
type pauses struct {
	bins [pauseBins]float32
	back float64 // Σ bins
	gone float64
}

const (
	// pauseBins to a factor of 2 reach from a millisecond to 37 hours.
	pauseBins = 27
	// pauseMemory is how many steps a curve remembers; then it forgets half.
	pauseMemory = 500.0
	// pauseShrinkage is how many steps a curve must have seen to be believed as
	// much as the coarser one: as with output lengths.
	pauseShrinkage = 25.0
	// What is assumed before anything was seen, with the weight of so many steps:
	// an agent that names its workflow mostly goes on (coding agents take 33 turns
	// in the median), and its tools are fast but for a tail.
	coldReturn       = 0.9
	coldPauseSeconds = 2.0
	coldPauses       = 10.0
)

// add records that a workflow came back after a pause.
func (p *pauses) add(after time.Duration) {
	p.forget()
	p.bins[pauseBin(after)]++
	p.back++
}

// addGone records that one did not come back.
func (p *pauses) addGone() {
	p.forget()
	p.gone++
}

func (p *pauses) forget() {
	if p.back+p.gone < pauseMemory {
		return
	}
	p.back, p.gone = 0, p.gone/2
	for i := range p.bins {
		p.bins[i] /= 2
		p.back += float64(p.bins[i])
	}
}

func pauseBin(d time.Duration) int {
	millis := float64(d) / float64(time.Millisecond)
	return int(max(0, min(math.Log2(max(millis, 1)), pauseBins-1)))
}

// outlook is what a curve says of the next step.
type outlook struct {
	returns      float64 // probability that there is one
	pauseSeconds float64 // mean time until it comes, if it does
}

// outlook returns what p says, shrunk to what is known without it.
func (p *pauses) outlook(without outlook, shrinkage float64) outlook {
	all := p.back + p.gone
	o := without
	o.returns = (p.back + shrinkage*without.returns) / (all + shrinkage)
	if p.back > 0 {
		sum := 0.0
		for i, n := range p.bins {
			sum += float64(n) * 1.5e-3 * math.Exp2(float64(i)) // the middle of 2^i to 2^(i+1) ms
		}
		o.pauseSeconds = (sum + shrinkage*without.pauseSeconds) / (p.back + shrinkage)
	}
	return o
}
