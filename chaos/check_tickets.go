package chaos

import "time"

// ticketsEnd: no promise of a peer's request is held past its deadline, nor after
// the fence of its origin.
func ticketsEnd() Checker {
	const name = "tickets"
	return Checker{name, "no ticket is held past its deadline or its origin's fence", func(s *Scenario, h *History) []Violation {
		f := findings{name: name}
		seen := 0
		for i := range h.Samples {
			x := &h.Samples[i]
			seen += len(x.Tickets)
			for _, t := range x.Tickets {
				if t.Fenced {
					f.add(x.At, "replica %d holds ticket %d of %s, which was fenced", x.Replica, t.No, t.Origin)
				} else if late := x.At - t.Deadline; late > ticketSlack {
					f.add(x.At, "replica %d holds ticket %d of %s, %v after its deadline", x.Replica, t.No, t.Origin, late)
				}
			}
		}
		if seen == 0 && h.Place == Pure && s.Replicas > 1 && len(h.Requests) > 0 { // elsewhere none are seen
			f.add(h.End, "no promise was seen")
		}
		return f.all
	}}
}

// ticketSlack is how often deadlines are looked at, at the latest.
const ticketSlack = time.Second
