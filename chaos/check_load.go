package chaos

// loadReturns: once all is over nothing is booked, promised or left over.
func loadReturns() Checker {
	const name = "load"
	return Checker{name, "in-flight requests, promises and slots of the index return to zero", func(s *Scenario, h *History) []Violation {
		f := findings{name: name}
		for _, x := range lastSamples(h) {
			if x.InFlight != 0 {
				f.add(x.At, "replica %d still has %d requests booked", x.Replica, x.InFlight)
			}
			if x.Promises != 0 {
				f.add(x.At, "replica %d still has %d blocks promised", x.Replica, x.Promises)
			}
			if x.Slots > s.Workers {
				f.add(x.At, "replica %d has %d slots in its index for %d workers", x.Replica, x.Slots, s.Workers)
			}
		}
		return f.all
	}}
}

// lastSamples are each live replica's last, by number.
func lastSamples(h *History) []*Sample {
	last := make(map[int]*Sample)
	n := 0
	for i := range h.Samples {
		x := &h.Samples[i]
		last[x.Replica] = x
		n = max(n, x.Replica+1)
	}
	var all []*Sample
	for i := range n {
		if x := last[i]; x != nil && x.Live {
			all = append(all, x)
		}
	}
	return all
}
