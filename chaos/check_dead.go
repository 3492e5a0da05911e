package chaos

import "time"

// deadAvoided: a worker that has been dead for a while is sent nothing.
func deadAvoided() Checker {
	const name = "dead"
	return Checker{name, "no request goes to a worker that has been dead longer than it takes to notice", func(s *Scenario, h *History) []Violation {
		f := findings{name: name}
		bound := s.Bounds.Dead
		if bound == 0 {
			bound = deadWithin
		}
		for i := range h.Requests {
			r := &h.Requests[i]
			tries := r.Tries
			if tries == nil && r.Worker >= 0 {
				tries = []Try{{r.Sent, r.Worker}}
			}
			for _, t := range tries {
				if since, dead := deadSince(h, t); dead && t.At-since > bound {
					f.add(t.At, "request %d was sent to worker %d, which had been dead for %v", r.ID, t.Worker, t.At-since)
				}
			}
		}
		return f.all
	}}
}

const deadWithin = 3 * time.Second

// deadSince reports whether the worker of a try was dead at its time.
func deadSince(h *History, t Try) (since time.Duration, dead bool) {
	for i := range h.Workers {
		l := &h.Workers[i]
		switch {
		case l.Worker != t.Worker || l.From > t.At:
		case l.Until == 0 || l.Until > t.At:
			return 0, false
		default:
			since, dead = max(since, l.Until), true
		}
	}
	return since, dead
}
