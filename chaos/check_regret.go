package chaos

import "time"

// regretBounded: what faults cost in time to the first token, against one
// router that knows everything and meets only the workers' own faults.
func regretBounded() Checker {
	const name = "regret"
	return Checker{name, "the mean time to the first token stays within the scenario's bound of an all-knowing router's", func(s *Scenario, h *History) []Violation {
		f := findings{name: name}
		if s.Bounds.Regret == 0 || h.IdealTTFT == 0 {
			return nil
		}
		if mean := MeanTTFT(h.Requests); float64(mean) > s.Bounds.Regret*float64(h.IdealTTFT) {
			f.add(h.End, "mean TTFT %v, an all-knowing router's %v: more than %g times as long", mean.Round(time.Millisecond), h.IdealTTFT.Round(time.Millisecond), s.Bounds.Regret)
		}
		return f.all
	}}
}

// Regret is the mean time to the first token over an all-knowing router's; 0
// where that is not known.
func Regret(h *History) float64 {
	if h.IdealTTFT == 0 {
		return 0
	}
	return float64(MeanTTFT(h.Requests)) / float64(h.IdealTTFT)
}
