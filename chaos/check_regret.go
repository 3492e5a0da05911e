package chaos

import (
	"slices"
	"time"
)

// regretBounded: what faults cost in time to the first token, against one router
// that knows everything and meets only the workers' own faults; where nobody can
// tell what that had done, against the time before the faults.
func regretBounded() Checker {
	const name = "regret"
	return Checker{name, "the time to the first token stays within the scenario's bound of an all-knowing router's, or of what it was before the faults", func(s *Scenario, h *History) []Violation {
		f := findings{name: name}
		if s.Bounds.Regret == 0 {
			return nil
		}
		if mean := MeanTTFT(h.Requests); h.IdealTTFT > 0 && float64(mean) > s.Bounds.Regret*float64(h.IdealTTFT) {
			f.add(h.End, "mean TTFT %v, an all-knowing router's %v: more than %g times as long", mean.Round(time.Millisecond), h.IdealTTFT.Round(time.Millisecond), s.Bounds.Regret)
		}
		if before, during, known := ttftAround(s, h); known && float64(during) > s.Bounds.Regret*float64(before)+float64(spareTTFT) {
			f.add(s.Last(), "median TTFT %v while faults went on, %v before: more than %g times as long and %v", during.Round(time.Millisecond), before.Round(time.Millisecond), s.Bounds.Regret, spareTTFT)
		}
		return f.all
	}}
}

// On the real ground times are those of a machine that does other things as well:
// medians of leastJudged requests, with something to spare.
const (
	spareTTFT   = 100 * time.Millisecond
	leastJudged = 50
)

// Regret is the mean time to the first token over an all-knowing router's; where
// that is not known, the median while faults went on over that before; 0 where
// neither is.
func Regret(s *Scenario, h *History) float64 {
	if h.IdealTTFT > 0 {
		return float64(MeanTTFT(h.Requests)) / float64(h.IdealTTFT)
	}
	if before, during, known := ttftAround(s, h); known {
		return float64(during) / float64(before)
	}
	return 0
}

// ttftAround returns the median times to the first token before the first fault
// and from there to the end of the last, where the ground is real, the machine had
// time for it, and there are enough of both.
func ttftAround(s *Scenario, h *History) (before, during time.Duration, known bool) {
	if h.Place != Real || len(s.Faults) == 0 || h.Stalled > mayStall {
		return 0, 0, false
	}
	first := s.Faults[0].At
	for i := range s.Faults {
		first = min(first, s.Faults[i].At)
	}
	var was, is []time.Duration
	for i := range h.Requests {
		switch r := &h.Requests[i]; {
		case r.Outcome != Answered || r.At > s.Last():
		case r.At < first:
			was = append(was, r.First-r.At)
		default:
			is = append(is, r.First-r.At)
		}
	}
	if min(len(was), len(is)) < leastJudged {
		return 0, 0, false
	}
	slices.Sort(was)
	slices.Sort(is)
	before, during = was[len(was)/2], is[len(is)/2]
	return before, during, before > 0
}
