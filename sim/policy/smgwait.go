package policy

// The constants of smg's expected wait.
const (
	smgKVWeightSeconds   = 0.15
	smgMeanPrefillTokens = 1024
	smgTokensPerSecond   = 2000
)

// leastWait returns the worker of some with the least expected wait by smg's
// rule least-load, in seconds:
//
//	(queued + sent since)/2000 + 0.15·k/(1 − k)
//
// queued are the uncached tokens that waited at the last look at the metrics,
// or the requests that did × 1024 where the engine doesn't tell tokens; sent
// since are the prompt tokens this replica has sent there since that look; k
// is the KV usage. A worker never looked at scores like the best one that was,
// plus its requests in flight × 1024/2000; if none was looked at, the requests
// in flight decide.
//
// Source: smg-project/smg, model_gateway/src/policies/least_load.rs with
// defaults. Assumed: metrics have no rate of generation, so that the default
// of 2000 tokens/s stands.
func (r *replica) leastWait(among []int) int {
	l, baseline, known := r.least(), 0.0, false
	for _, w := range among {
		if g := &r.gauges[w]; g.known {
			if wait := expectedWait(g); !known || wait < baseline {
				baseline, known = wait, true
			}
		}
	}
	for _, w := range among {
		requests := float64(r.book.loads[w].requests)
		switch g := &r.gauges[w]; {
		case g.known:
			l.offer(w, expectedWait(g))
		case known:
			l.offer(w, baseline+requests*smgMeanPrefillTokens/smgTokensPerSecond)
		default:
			l.offer(w, requests)
		}
	}
	return l.worker
}

// expectedWait returns leastWait's score of a worker that was looked at.
func expectedWait(g *gauges) float64 {
	queued := or(g.t.WaitingTokens, 0)
	if queued <= 0 {
		queued = max(0, or(g.t.Waiting, 0)) * smgMeanPrefillTokens
	}
	k := min(max(or(g.t.KVUsage, 0), 0), 0.999)
	return (queued+float64(g.sentTokensSince))/smgTokensPerSecond + smgKVWeightSeconds*k/(1-k)
}
