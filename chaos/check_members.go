package chaos

import (
	"slices"
	"time"
)

// nobodyIgnored: soon after the last fault every live replica knows every other
// one, and every worker that is up.
func nobodyIgnored() Checker {
	const name = "members"
	return Checker{name, "no live replica and no worker that came back is ignored", func(s *Scenario, h *History) []Violation {
		f := findings{name: name}
		bound := s.Bounds.Members
		if bound == 0 {
			bound = membersWithin
		}
		for i := range h.Samples {
			if x := &h.Samples[i]; x.Silent && x.At >= s.Last()+bound {
				f.add(x.At, "replica %d runs and answers nothing", x.Replica)
			}
		}
		for _, round := range rounds(h) {
			at := round[0].At
			if at >= s.Last()+bound {
				f.checkMembers(at, round)
			}
			for _, x := range round {
				f.checkWorkers(h, x, s.Last())
			}
		}
		return f.all
	}}
}

const (
	membersWithin = 2500 * time.Millisecond
	// workerWithin is how long a worker that came back may go unnoticed by a
	// replica's health checks.
	workerWithin = 5 * time.Second
)

func (f *findings) checkMembers(at time.Duration, round []*Sample) {
	var names []string
	for _, x := range round {
		names = append(names, x.Name)
	}
	slices.Sort(names)
	for _, x := range round {
		for _, name := range names {
			if !slices.Contains(x.Members, name) {
				f.add(at, "replica %d does not know %s", x.Replica, name)
			} else if name != x.Name && x.Joined != nil && !slices.Contains(x.Joined, name) {
				f.add(at, "replica %d has no connection to %s", x.Replica, name)
			}
		}
		for _, name := range x.Members {
			if _, there := slices.BinarySearch(names, name); !there && at == round[0].At {
				f.add(at, "replica %d takes %s for alive, which is not", x.Replica, name)
			}
		}
	}
}

// checkWorkers looks for workers that have been up for a while, while nothing
// was wrong, and are not used or not read.
func (f *findings) checkWorkers(h *History, x *Sample, last time.Duration) {
	for i := range h.Workers {
		l := &h.Workers[i]
		up := l.From+workerWithin <= x.At && (l.Until == 0 || x.At < l.Until)
		if !up || x.At < last+workerWithin {
			continue
		}
		if !slices.Contains(x.Healthy, l.Worker) {
			f.add(x.At, "replica %d sends nothing to worker %d, which has been up since %v", x.Replica, l.Worker, l.From)
		}
	}
}
