package route

import (
	"math"
	"time"

	"github.com/rhizome-router/rhizome/cost"
)

// What bounds how long a promise waits for the first token of its request.
const (
	leastPromise = 500 * time.Millisecond
	mostPromise  = 30 * time.Second
	// promiseMargin is how much longer than 99 of 100 first tokens take.
	promiseMargin = 1.5
	// assumedLateness is how much later than predicted a first token is taken to
	// come at worst, until leastFirsts of them were measured.
	assumedLateness = 4
	leastFirsts     = 20
)

// lateness is how much later than predicted the first tokens of a class come.
// One that comes early counts as in time: a promise ends with it anyway.
type lateness struct {
	firsts int // measured
	ratios cost.Residuals
}

func (l *lateness) observe(predicted, actual time.Duration) {
	l.firsts++
	l.ratios.Observe(predicted.Seconds(), max(predicted, actual).Seconds())
}

// p99 is the factor by which 99 of 100 first tokens are late at most.
func (l *lateness) p99() float64 {
	if l.firsts < leastFirsts {
		return assumedLateness
	}
	return math.Exp(l.ratios.Quantile(0.99))
}

// promiseLife is how long the blocks of a request that should see its first
// token after the predicted time count as on their way, if nothing is heard of
// it: min(30 s, max(0.5 s, 1.5 × p99(queue + prefill))).
func (c *class) promiseLife(predicted time.Duration) time.Duration {
	p99 := predicted.Seconds() * c.late.p99()
	return min(mostPromise, max(leastPromise, time.Duration(min(mostPromise.Seconds(), promiseMargin*p99)*float64(time.Second))))
}
