package fleet

import (
	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/cost"
)

// Work counts what a target did for this replica since it began: what happened
// in a span is the difference of two readings, at no cost per request in
// flight.
type Work struct {
	SeqSeconds     float64 // ∫ decoding sequences dt
	ContextSeconds float64 // ∫ their context dt, tokens
	Prefills       float64 // first tokens
	PrefillTokens  float64 // prompt tokens computed, those under way in part
	PrefillPairs   float64
	Booked         float64 // prompt tokens to compute that were ever booked
	// UnderWay is the prompt at the head of the queue at the time of reading:
	// how much of it is computed is a guess.
	UnderWay float64
}

// Since returns what happened between an earlier reading and this one. What was
// UnderWay stands for both ends.
func (w Work) Since(before Work) Work {
	return Work{
		SeqSeconds: w.SeqSeconds - before.SeqSeconds, ContextSeconds: w.ContextSeconds - before.ContextSeconds,
		Prefills: w.Prefills - before.Prefills, PrefillTokens: max(0, w.PrefillTokens-before.PrefillTokens),
		PrefillPairs: max(0, w.PrefillPairs-before.PrefillPairs), Booked: w.Booked - before.Booked,
		UnderWay: w.UnderWay + before.UnderWay,
	}
}

// Work returns the counts at an instant; class tells how far the prefills at
// the head have come.
func (l *Ledger) Work(now clock.Instant, class *cost.Class) Work {
	l.elapse(now)
	w := l.work
	tokens, pairs := l.progress(now, class)
	w.PrefillTokens += tokens
	w.PrefillPairs += pairs
	if tokens > 0 {
		w.UnderWay = l.queue[0].UncachedTokens
	}
	return w
}

// elapse adds the time since the last change to the integrals.
func (l *Ledger) elapse(now clock.Instant) {
	if dt := now.Sub(l.workAt).Seconds(); dt > 0 {
		l.work.SeqSeconds += l.sums.sequences * dt
		l.work.ContextSeconds += l.sums.contextTokens * dt
		l.workAt = now
	}
}
