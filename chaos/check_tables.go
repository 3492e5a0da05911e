package chaos

import (
	"slices"
	"time"
)

// tablesEqual: soon after the faults every live replica's own table of leases is
// the same.
func tablesEqual() Checker {
	const name = "tables"
	return Checker{name, "all replicas' tables of leases are equal 2 s after the last fault", func(s *Scenario, h *History) []Violation {
		f := findings{name: name}
		for _, round := range rounds(h) {
			if round[0].At < s.Last()+tablesWithin {
				continue
			}
			at := make(map[uint64]uint64) // digest by index
			for _, x := range round {
				if d, ok := at[x.Applied]; ok && d != x.Leases {
					f.add(x.At, "replica %d has another table of leases at index %d than others", x.Replica, x.Applied)
				}
				at[x.Applied] = x.Leases
			}
			f.compareApplied(h, round)
		}
		return f.all
	}}
}

const tablesWithin = 2 * time.Second

// compareApplied looks for a replica that has not applied what another one had
// two seconds before. What was agreed by those who have all died since may be
// lost, so that another log has begun.
func (f *findings) compareApplied(h *History, round []*Sample) {
	at := round[0].At
	i := slices.IndexFunc(h.Samples, func(x Sample) bool {
		return x.Live && slices.ContainsFunc(round, func(now *Sample) bool { return now.Name == x.Name })
	})
	since := h.Samples[i].At // round's own samples are among them
	var most uint64
	for i := range h.Samples {
		if x := &h.Samples[i]; x.Live && x.At >= since && x.At <= at-tablesWithin {
			most = max(most, x.Applied)
		}
	}
	if i := slices.IndexFunc(round, func(x *Sample) bool { return x.Applied < most }); i >= 0 {
		f.add(at, "replica %d is at index %d of the leases, another one was at %d two seconds before", round[i].Replica, round[i].Applied, most)
	}
}
