package cost

import "math"

const (
	// histogramPerOctave bins to a factor of 2 make a bin 19 % wide.
	histogramPerOctave = 4
	// histogramBins reach from 1 to 2^17.
	histogramBins = 17*histogramPerOctave + 1
)

// histogram counts positive numbers in bins of equal ratio, and forgets: a
// streaming sketch of fixed size whose quantiles are off by half a bin at most.
// The zero value is empty.
type histogram struct {
	bins   [histogramBins]float32
	weight float64
}

// add counts a number; memory is over how many numbers it averages.
func (h *histogram) add(x, memory float64) {
	if h.weight >= memory {
		keep := (memory - 1) / h.weight
		h.weight = 0
		for i := range h.bins {
			h.bins[i] *= float32(keep)
			h.weight += float64(h.bins[i])
		}
	}
	h.bins[binOf(x)]++
	h.weight++
}

func binOf(x float64) int {
	if !(x > 1) {
		return 0
	}
	return min(histogramBins-1, int(math.Log2(x)*histogramPerOctave+0.5))
}

// binValue is the middle of a bin.
func binValue(i int) float64 { return math.Exp2(float64(i) / histogramPerOctave) }

// quantile returns the number that a share q of all are at most; 0 of none.
func (h *histogram) quantile(q float64) float64 {
	if h.weight == 0 {
		return 0
	}
	left := q * h.weight
	last := 0
	for i, n := range h.bins {
		if n == 0 {
			continue
		}
		last = i
		if left -= float64(n); left <= 0 {
			break
		}
	}
	return binValue(last)
}

// mean returns the mean of all, each taken for limit at most; 0 of none.
func (h *histogram) mean(limit float64) float64 {
	if h.weight == 0 {
		return 0
	}
	sum := 0.0
	for i, n := range h.bins {
		if n > 0 {
			sum += float64(n) * min(limit, binValue(i))
		}
	}
	return sum / h.weight
}
