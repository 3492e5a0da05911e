package indexbench

import (
	"math"
	"runtime/metrics"
	"slices"
	"time"
)

// pauses reads the runtime's histogram of the collector's pauses.
type pauses struct{ counts []uint64 }

const pausesMetric = "/sched/pauses/total/gc:seconds"

func readPauses() (*metrics.Float64Histogram, bool) {
	sample := []metrics.Sample{{Name: pausesMetric}}
	metrics.Read(sample)
	if sample[0].Value.Kind() != metrics.KindFloat64Histogram {
		return nil, false
	}
	return sample[0].Value.Float64Histogram(), true
}

// newPauses begins to count.
func newPauses() *pauses {
	h, ok := readPauses()
	if !ok {
		return &pauses{}
	}
	return &pauses{slices.Clone(h.Counts)}
}

// p99Micros returns the 99th percentile of the pauses since: the upper edge of
// the runtime's bucket that it fell into.
func (p *pauses) p99Micros() float64 {
	h, ok := readPauses()
	if !ok || len(h.Counts) != len(p.counts) {
		return 0
	}
	total := uint64(0)
	for i, n := range h.Counts {
		total += n - p.counts[i]
	}
	seen := uint64(0)
	for i, n := range h.Counts {
		if seen += n - p.counts[i]; seen > 0 && float64(seen) >= 0.99*float64(total) {
			if edge := h.Buckets[i+1]; !math.IsInf(edge, 1) {
				return edge * 1e6
			}
			return h.Buckets[i] * 1e6
		}
	}
	return 0
}

// quantile returns the q-quantile of sorted values, 0 of none.
func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

func median(values []float64) float64 { return quantile(slices.Sorted(slices.Values(values)), 0.5) }

// ThreadCPU returns the CPU time of the calling thread, or where the system does
// not tell it the time of day: differences of it are what matters.
func ThreadCPU() time.Duration {
	if t := threadCPU(); t > 0 {
		return t
	}
	return time.Duration(time.Now().UnixNano())
}
