package workload

import (
	"slices"
	"time"

	"github.com/rhizome-router/rhizome/clock"
)

// Tick is the step in which Mooncake's traces count time, to within a few
// milliseconds.
const Tick = 3 * time.Second

// Jitter returns a copy of reqs, which must be ordered by arrival, in which the
// requests that share one timestamp are spread uniformly over the time until
// the next timestamp, or over one [Tick] when that is further away. Equal seeds
// give equal arrivals, and the order of requests stays the same.
//
// Without it a trace recorded in ticks would arrive in bursts that nobody sent.
func Jitter(reqs []Request, seed uint64) []Request {
	out := slices.Clone(reqs)
	rng := clock.Rand(seed, "workload/jitter")
	var offsets []time.Duration
	for from := 0; from < len(out); {
		at, to := out[from].At, from+1
		for to < len(out) && out[to].At == at {
			to++
		}
		span := Tick
		if to < len(out) {
			span = min(span, out[to].At-at)
		}
		offsets = offsets[:0]
		for range to - from {
			offsets = append(offsets, time.Duration(rng.Int64N(int64(span))))
		}
		slices.Sort(offsets)
		for i, d := range offsets {
			out[from+i].At = at + d
		}
		from = to
	}
	return out
}
