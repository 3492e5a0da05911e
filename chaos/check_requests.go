package chaos

import "slices"

// requestsConserved: each request that was accepted ends exactly once, with the
// whole answer or a documented error, and none fails that met no fault.
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
