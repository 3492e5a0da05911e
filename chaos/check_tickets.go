package chaos

import "time"

// ticketsEnd: no promise of a peer's request is held past its deadline, nor after
// the fence of its origin.
func ticketsEnd() Checker {
	const name = "tickets"
	return Checker{name, "no ticket is held past its deadline or its origin's fence", func(_ *Scenario, h *History) []Violation {
		f := findings{name: name}
		for i := range h.Samples {
			x := &h.Samples[i]
			for _, t := range x.Tickets {
				if t.Fenced {
					f.add(x.At, "replica %d holds ticket %d of %s, which was fenced", x.Replica, t.No, t.Origin)
				} else if late := x.At - t.Deadline; late > ticketSlack {
					f.add(x.At, "replica %d holds ticket %d of %s, %v after its deadline", x.Replica, t.No, t.Origin, late)
				}
			}
		}
		return f.all
	}}
}

// ticketSlack is how often deadlines are looked at, at the latest.
const ticketSlack = time.Second
