package chaos

// resourcesBounded: a replica's memory and goroutines don't grow with faults.
func resourcesBounded() Checker {
	const name = "resources"
	return Checker{name, "memory and goroutines stay bounded", func(s *Scenario, h *History) []Violation {
		f := findings{name: name}
		first := make(map[int]*Sample) // the last before anything went wrong
		begin := h.End
		for i := range s.Faults {
			begin = min(begin, s.Faults[i].At)
		}
		for i := range h.Samples {
			if x := &h.Samples[i]; x.Live && x.At <= begin {
				first[x.Replica] = x
			}
		}
		for i := range h.Samples {
			if x := &h.Samples[i]; x.Memory > maxMemory {
				f.add(x.At, "replica %d uses %d MiB, of at most %d", x.Replica, x.Memory>>20, maxMemory>>20)
			}
		}
		for _, x := range lastSamples(h) {
			if at := first[x.Replica]; at != nil && x.Goroutines > 2*at.Goroutines+spareGoroutines {
				f.add(x.At, "replica %d has %d goroutines, and had %d before the faults", x.Replica, x.Goroutines, at.Goroutines)
			}
		}
		return f.all
	}}
}

const (
	maxMemory       = 1 << 30 // bytes, of a process or of what the pure ground counts
	spareGoroutines = 50
)
