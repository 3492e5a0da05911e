package model

import (
	"fmt"
	"math"

	"github.com/rhizome-router/rhizome/kv"
)

// Reset is a crash and restart of the engine's process at the instant of the
// last Advance: all requests are lost and told as Lost, running ones first, HBM
// and lower tiers are empty and Stats start over. No Cleared is told, for a
// process that dies tells nothing. What belongs to the machine stays: the
// bandwidth of its links and its slowdown.
func (w *Worker) Reset(sink Sink) {
	var lost []uint64
	for _, s := range w.running {
		lost = append(lost, s.ID)
	}
	for _, s := range w.cancels {
		if s.state == waiting {
			lost = append(lost, s.ID) // preempted, and not told yet that it is cancelled
		}
	}
	for _, s := range w.waiting {
		lost = append(lost, s.ID)
	}
	old := *w
	*w = *build(w.cfg)
	w.now, w.lastArrive, w.slowdown, w.everyStep = old.now, old.lastArrive, old.slowdown, old.everyStep
	for i, l := range old.tiers {
		w.tiers[i].link.bytesPerMicros = l.link.bytesPerMicros
	}
	for _, id := range lost {
		sink(Event{Kind: Lost, At: w.now, ID: id})
	}
}

// SetSlowdown makes iterations take so many times as long, from the first one
// that starts after the last Advance. 1 is the normal speed.
func (w *Worker) SetSlowdown(factor float64) error {
	if !(factor > 0) || math.IsInf(factor, 1) {
		return fmt.Errorf("engine model: slow down by %v; give a factor > 0", factor)
	}
	w.slowdown = factor
	w.it.disturbed = true
	return nil
}

// SetLink changes the bandwidth that is left for loads from a lower tier, at
// the instant of the last Advance and also for loads under way: so other
// traffic on the link comes and goes.
func (w *Worker) SetLink(tier kv.Tier, bytesPerSecond float64) error {
	if !(bytesPerSecond > 0) || math.IsInf(bytesPerSecond, 1) {
		return fmt.Errorf("engine model: %g B/s from tier %v; give a bandwidth > 0", bytesPerSecond, tier)
	}
	for _, l := range w.tiers {
		if l.tier == tier {
			l.link.setBandwidth(w.now, bytesPerSecond/1e6)
			return nil
		}
	}
	return fmt.Errorf("engine model: no lower tier %v here; name one of Config.Tiers", tier)
}
