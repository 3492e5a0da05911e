package route

import (
	"math"
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/cost"
)

// trafficHorizon is how far back the averages of traffic reach.
const trafficHorizon = 10 * time.Second

// traffic averages what arrives at the whole fleet: requests and the prefill
// work they bring. The zero value has seen nothing.
type traffic struct {
	requests, workMicros float64 // decayed sums
	at                   clock.Instant
}

// observe records a request that brings so much prefill work.
func (t *traffic) observe(now clock.Instant, workMicros float64) {
	decay := math.Exp(-float64(now.Sub(t.at)) / float64(trafficHorizon))
	t.requests = t.requests*decay + 1
	t.workMicros = t.workMicros*decay + workMicros
	t.at = now
}

// perWorker returns what falls to each of n workers, n at least 1.
func (t *traffic) perWorker(now clock.Instant, n int) cost.Traffic {
	// The decayed sums stand for one horizon. Right after the start that is too
	// much, so that a first burst is not taken for what always comes.
	share := math.Exp(-float64(now.Sub(t.at))/float64(trafficHorizon)) / float64(trafficHorizon.Microseconds()) / float64(n)
	return cost.Traffic{ArrivalsPerMicro: t.requests * share, Busy: t.workMicros * share}
}
