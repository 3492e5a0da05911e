package route

import (
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/cost"
)

const (
	// trafficMemory is how many requests a worker the averages reach back. It
	// is a number of requests and not a time, so that what is learned does not
	// depend on how fast the workers are.
	trafficMemory = 8
	// quietStart is the silence assumed before the first request, so that a
	// first burst is not taken for what always comes.
	quietStart = 10 * time.Second
)

// traffic averages what arrives at the whole fleet: requests and the prefill
// work they bring.
type traffic struct {
	// Decayed sums over the last requests: of 1, of the time since the one
	// before, of the work; times in microseconds.
	requests, gapMicros, workMicros float64
	last                            clock.Instant
}

func newTraffic() traffic { return traffic{gapMicros: float64(quietStart.Microseconds())} }

// observe records a request to one of n workers that brings so much work.
func (t *traffic) observe(now clock.Instant, workMicros float64, n int) {
	keep := 1 - 1/float64(trafficMemory*n)
	gap := 0.0
	if t.requests > 0 {
		gap = float64(now.Sub(t.last).Microseconds())
	}
	t.requests = t.requests*keep + 1
	t.gapMicros = t.gapMicros*keep + gap
	t.workMicros = t.workMicros*keep + workMicros
	t.last = now
}

// perWorker returns what falls to each of n workers, n at least 1.
func (t *traffic) perWorker(now clock.Instant, n int) cost.Traffic {
	if t.requests == 0 {
		return cost.Traffic{}
	}
	span := (t.gapMicros + float64(now.Sub(t.last).Microseconds())) * float64(n)
	return cost.Traffic{ArrivalsPerMicro: t.requests / span, Busy: t.workMicros / span}
}
