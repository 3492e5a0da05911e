package chaos

import (
	"maps"
	"slices"
	"time"
)

// digestsEqual: replicas that are at the same mark of a log hold the same, at
// any time; and once faults are over, all hold the same soon, and what the
// engines hold if nothing was lost to everybody.
func digestsEqual() Checker {
	const name = "digests"
	return Checker{name, "replicas hold the same at equal marks, all of it soon after the faults, and what engines hold", func(s *Scenario, h *History) []Violation {
		f := findings{name: name}
		judged := false
		from := s.Last() + digestBound(s, h)
		var before [][]*Sample
		for _, round := range rounds(h) {
			f.compareMarks(round)
			if at := round[0].At; at >= from {
				judged = true
				f.compareProgress(round, before)
			}
			before = append(before, round)
		}
		if !judged {
			f.add(h.End, "no sample was taken %v after the last fault", from-s.Last())
		}
		if len(h.Truths) == 0 {
			f.add(h.End, "no engine told what it holds")
		}
		for _, x := range lastSamples(h) {
			if x.Corrupt > 0 {
				f.add(x.At, "replica %d found %d equal logs with unequal contents", x.Replica, x.Corrupt)
			}
			f.compareTruth(h, x, s.Bounds.LostToAll)
		}
		return f.all
	}}
}

const (
	digestsWithin = 3 * time.Second
	syncPerSecond = 20e6 // bytes
	longFault     = 10 * time.Minute
)

// digestBound is how long after the last fault all must hold the same.
func digestBound(s *Scenario, h *History) time.Duration {
	if s.Bounds.Digests > 0 {
		return s.Bounds.Digests
	}
	bound, missing := digestsWithin, 0
	for i := range h.Samples {
		if x := &h.Samples[i]; x.At <= s.Last()+time.Second {
			missing = max(missing, x.MissingBytes)
		}
	}
	for i := range s.Faults {
		if s.Faults[i].For > longFault {
			bound += time.Minute
			break
		}
	}
	return bound + time.Duration(float64(missing)/syncPerSecond*float64(time.Second))
}

// rounds are the samples of live replicas by the time at which they were taken,
// those within 200 ms of the first of a round together.
func rounds(h *History) [][]*Sample {
	var all [][]*Sample
	for i := range h.Samples {
		x := &h.Samples[i]
		if !x.Live {
			continue
		}
		if n := len(all); n > 0 && x.At-all[n-1][0].At < 200*time.Millisecond {
			all[n-1] = append(all[n-1], x)
		} else {
			all = append(all, []*Sample{x})
		}
	}
	return all
}

// compareMarks looks for replicas that differ where they are at the same.
func (f *findings) compareMarks(round []*Sample) {
	type place struct {
		worker      int
		boot        uint64
		next, skips uint64
	}
	seen := make(map[place]uint64)
	who := make(map[place]int)
	for _, x := range round {
		for i := range x.Streams {
			st := &x.Streams[i]
			if st.Truncated {
				continue
			}
			for _, m := range append(slices.Clone(st.Marks), Mark{st.Next, st.Skips, st.Digest}) {
				at := place{st.Worker, st.Boot, m.Next, 0}
				if at.skips = m.Skips; m == (Mark{st.Next, st.Skips, st.Digest}) {
					at.skips = st.Skips ^ 1<<63 // marks may hash skips in their own way
				}
				if d, ok := seen[at]; ok && d != m.Digest {
					f.add(x.At, "replicas %d and %d hold different contents of worker %d at batch %d", who[at], x.Replica, st.Worker, m.Next)
				}
				seen[at], who[at] = m.Digest, x.Replica
			}
		}
	}
}

// compareProgress looks for a replica that does not have what another one had a
// second ago.
func (f *findings) compareProgress(round []*Sample, before [][]*Sample) {
	at := round[0].At
	i := len(before) - 1
	for i >= 0 && at-before[i][0].At < time.Second {
		i--
	}
	if i < 0 {
		return
	}
	type life struct {
		worker int
		boot   uint64
	}
	had := make(map[life]uint64)
	for _, x := range before[i] {
		for _, st := range x.Streams {
			l := life{st.Worker, st.Boot}
			had[l] = max(had[l], st.Next)
		}
	}
	current := make(map[int]uint64) // boot by worker, as most of them have it
	for _, x := range round {
		for _, st := range x.Streams {
			current[st.Worker] = st.Boot
		}
	}
	for _, x := range round {
		for _, worker := range slices.Sorted(maps.Keys(current)) {
			boot := current[worker]
			i := slices.IndexFunc(x.Streams, func(st Stream) bool { return st.Worker == worker })
			var next uint64
			if i >= 0 && x.Streams[i].Boot == boot {
				next = x.Streams[i].Next
			}
			if most := had[life{worker, boot}]; next < most {
				f.add(at, "replica %d is at batch %d of worker %d, another one was at %d a second before", x.Replica, next, worker, most)
			}
		}
	}
}

// compareTruth compares what a replica holds in the end with the engines: how far
// it is, and what it holds, unless some of that was lost to all.
func (f *findings) compareTruth(h *History, x *Sample, lost bool) {
	for _, truth := range h.Truths {
		i := slices.IndexFunc(x.Streams, func(st Stream) bool { return st.Worker == truth.Worker })
		if i < 0 {
			if truth.Next > 0 {
				f.add(x.At, "replica %d knows nothing of worker %d, which said %d batches", x.Replica, truth.Worker, truth.Next)
			}
			continue
		}
		st := &x.Streams[i]
		switch {
		case st.Truncated:
		case st.Next != truth.Next:
			f.add(x.At, "replica %d is at batch %d of worker %d in the end, its engine at %d", x.Replica, st.Next, truth.Worker, truth.Next)
		case !lost && st.Digest != truth.Digest:
			f.add(x.At, "replica %d and worker %d's engine are both at batch %d and hold different blocks", x.Replica, truth.Worker, truth.Next)
		}
	}
}
