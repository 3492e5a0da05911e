package chaos

import (
	"slices"
	"time"
)

// faultsVisible: whoever looks at the replicas' metrics during a fault that lasts
// sees it.
func faultsVisible() Checker {
	const name = "visible"
	return Checker{name, "every fault that lasts shows in what replicas tell of themselves", func(s *Scenario, h *History) []Violation {
		f := findings{name: name}
		for i := range s.Faults {
			x := &s.Faults[i]
			if (x.For > visibleWithin || x.Kind == EventGap) && !shows(s, h, x) {
				f.add(x.At, "nothing shows of %s", x)
			}
		}
		return f.all
	}}
}

// visibleWithin is how long a fault may take to show: membership's 4 s and a
// sample.
const visibleWithin = 6 * time.Second

// eventsWithin is how long after a gap a worker may take to say the next thing,
// which shows it.
const eventsWithin = 5 * time.Second

// visibleMargin is how long a sample may be under way.
const visibleMargin = 500 * time.Millisecond

// shows reports whether a fault can be seen in a sample from its time. Faults
// that nothing but times show are told by Sample.Told, or taken for seen.
func shows(s *Scenario, h *History, f *Fault) bool {
	if f.Kind == Crash && len(f.A) == s.Replicas { // nobody answers, which shows
		return !slices.ContainsFunc(h.Samples, func(x Sample) bool { return x.Live && x.At > f.At+visibleMargin && x.At < f.End() })
	}
	end := f.End() + time.Second
	if f.Kind == EventGap {
		end = f.End() + eventsWithin
	}
	for i := range h.Samples {
		x := &h.Samples[i]
		if !x.Live || x.At <= f.At || x.At > end {
			continue
		}
		switch f.Kind {
		case Crash, Pause, Cut, OneWay, Expired:
			if len(x.Members) < s.Replicas || x.Joined != nil && len(x.Joined) < s.Replicas-1 {
				return true
			}
		case Worker, Moved:
			if slices.ContainsFunc(f.A, func(n int) bool { return !slices.Contains(x.Healthy, n) }) {
				return true
			}
		case DiskFull, DiskSlow, ClockJump:
			if slices.Contains(f.A, x.Replica) && slices.Contains(x.Told, string(f.Kind)) {
				return true
			}
		case EventGap, EventLoss: // metrics of the real ground alone
			if h.Place != Real || slices.Contains(x.Told, string(f.Kind)) {
				return true
			}
		default:
			return true
		}
	}
	return false
}
