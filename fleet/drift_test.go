package fleet

import (
	"testing"
	"time"

	"github.com/rhizome-router/rhizome/cost"
)

// What is left of sums when all that was queued has gone is no queue: each costs a
// step, however short.
func TestNoQueueIsLeftOfSums(t *testing.T) {
	var l Ledger
	for _, tokens := range [][]float64{{0.3}, {0.1, 0.2}} {
		var all []*Booking
		for _, n := range tokens {
			b := &Booking{PromptTokens: n, UncachedTokens: n, UncachedPairs: n, WorkMicros: n, OutputTokens: 1000, Choices: 1, PredictedTTFT: time.Hour}
			l.Book(0, b)
			all = append(all, b)
		}
		for _, b := range all {
			l.FirstToken(0, b, time.Second)
		}
	}
	class := cost.Generic()
	if load := l.Load(0, &class, time.Second, false); load.QueuedTokens != 0 || load.QueuedPairs != 0 || class.QueueMicros(&load) != 0 {
		t.Errorf("%g tokens and %g pairs are queued, %g µs", load.QueuedTokens, load.QueuedPairs, class.QueueMicros(&load))
	}
}
