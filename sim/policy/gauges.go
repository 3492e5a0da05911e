package policy

import "github.com/rhizome-router/rhizome/engine"

// gauges is the newest look at a worker's metrics, and what this replica has
// sent there since it came.
type gauges struct {
	known bool
	t     engine.RankTelemetry
	own   load // this replica's bookings when the look came

	sentSince       int // requests
	sentTokensSince int // of their prompts
}

// or returns a value if it is known, else what to assume.
func or(v engine.Value, missing float64) float64 {
	if v.Known {
		return v.Value
	}
	return missing
}

// foreignRequests is how many of the worker's requests at the last look were
// not this replica's.
func (g *gauges) foreignRequests() float64 {
	return max(0, or(g.t.Running, 0)+or(g.t.Waiting, 0)-float64(g.own.requests))
}

// foreignTokens is how many of the uncached tokens that waited at the last
// look were not this replica's; 0 where the engine doesn't tell them.
func (g *gauges) foreignTokens() float64 {
	return max(0, or(g.t.WaitingTokens, 0)-float64(g.own.prefillTokens))
}
