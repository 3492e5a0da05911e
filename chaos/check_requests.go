package chaos

import (
	"slices"
	"time"
)

// requestsConserved: each request that was accepted ends exactly once, with the
// whole answer or a documented error, and none fails that met no fault. That its
// replica is down excuses a request for as long as balancers need to notice.
func requestsConserved() Checker {
	const name = "requests"
	return Checker{name, "each accepted request ends exactly once, with a whole answer or a documented error", func(s *Scenario, h *History) []Violation {
		f := findings{name: name}
		failed := 0
		for i := range h.Requests {
			r := &h.Requests[i]
			switch {
			case r.Ends == 0 || r.Outcome == Open:
				f.add(r.At, "request %d to replica %d never ended", r.ID, r.Replica)
			case r.Ends > 1:
				f.add(r.At, "request %d ended %d times", r.ID, r.Ends)
			case !slices.Contains([]Outcome{Answered, Refused, WorkerLost, ReplicaLost}, r.Outcome):
				f.add(r.End, "request %d ended as %q, which is no documented end", r.ID, r.Outcome)
			case r.Outcome != Answered && r.Faultless:
				failed++
			case r.Outcome != Answered:
				if down := downFor(h, r); down > balancedWithin {
					f.add(r.At, "request %d failed at replica %d, which had been down for %v when it came", r.ID, r.Replica, down)
				}
			}
		}
		if n := float64(len(h.Requests)); float64(failed) > s.Bounds.Failed*n {
			f.add(h.End, "%d of %d requests failed though nothing that they met did; the bound is %g of them", failed, len(h.Requests), s.Bounds.Failed)
		}
		if len(h.Requests) == 0 && h.Place != Bubble { // where there are none
			f.add(h.End, "no request was made")
		}
		return f.all
	}}
}

// balancedWithin is how long a replica that is down may still be sent requests: a
// balancer asks every 200 ms, and waits a second for an answer.
const balancedWithin = 1500 * time.Millisecond

// downFor is for how long a request's replica had been down when it came; 0 if it
// was up.
func downFor(h *History, r *Request) time.Duration {
	since, down := time.Duration(0), false
	for i := range h.Replicas {
		l := &h.Replicas[i]
		switch {
		case l.Replica != r.Replica || l.From > r.At:
		case l.Until == 0 || l.Until > r.At:
			return 0
		default:
			since, down = max(since, l.Until), true
		}
	}
	if !down {
		return 0
	}
	return r.At - since
}
