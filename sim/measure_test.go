package sim

import (
	"math"
	"testing"
)

// The end of a run, where the last answers trickle out, must not count as
// imbalance: in open loop it can last longer than the load.
func TestImbalanceLeavesOutWhatRunsDry(t *testing.T) {
	r := record{busy: [][]float64{{4e6, 6e6}, {4e6, 6e6}}}
	for i := range 20 {
		r.samples = append(r.samples, sample{arrived: float64(i) * 1.3e6}) // nine in ten before 22.3 s
	}
	for range 10 {
		r.busy = append(r.busy, []float64{0, 1e6})
	}
	cov, maxMean := r.imbalance()
	if math.Abs(cov-0.2) > 1e-9 || math.Abs(maxMean-1.2) > 1e-9 {
		t.Errorf("imbalance is %v and %v, want 0.2 and 1.2 of the two windows under load", cov, maxMean)
	}
	r.busy = nil
	if cov, maxMean = r.imbalance(); cov != 0 || maxMean != 1 {
		t.Errorf("imbalance of no window is %v and %v, want 0 and 1", cov, maxMean)
	}
}

// The chunk budget that our router assumes must not be the only one there is.
func TestChunkBudgetReachesEnginesAndBound(t *testing.T) {
	small, err := Find("small-chunks")
	if err != nil {
		t.Fatal(err)
	}
	sc := small[0]
	times := make(map[int]float64)
	for _, budget := range []int{sc.Fleet.BudgetTokens, 8192} {
		sc.Fleet.BudgetTokens = budget
		n, err := newNature(&sc, 1)
		if err != nil {
			t.Fatal(err)
		}
		w := &world{sc: &sc, seed: 1, nature: n}
		if got := w.engineConfig(&worker{}).BudgetTokens; got != budget {
			t.Errorf("an engine's budget is %d tokens, want %d", got, budget)
		}
		times[budget] = n.aloneMicros(8192, 0)
	}
	if times[512] <= times[8192] {
		t.Errorf("8192 tokens alone take %v µs in chunks of 512 and %v in one, want more", times[512], times[8192])
	}
}
