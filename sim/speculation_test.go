package sim

import (
	"context"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/rhizome-router/rhizome/index"
)

// Whatever befell events, workers and replicas, once all events have arrived the
// indexes hold what the engines do, no promise is left, and it was worth little
// time to first tokens.
func TestSpeculationSettles(t *testing.T) {
	x := DefaultSpeculation()
	x.Length, x.Workers = 25*time.Second, 4
	x.EventDelay, x.EventLoss, x.Refuse = 2500*time.Millisecond, 0.05, 0.1
	var sum SpeculationResult
	for seed := range uint64(2) {
		x.Seed = seed + 1
		r, err := x.Play(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if r.Fences != 3 || r.Checkpoints < 4 || r.Requests < 100 || r.Known == 0 {
			t.Errorf("seed %d: %+v", x.Seed, *r)
		}
		if r.Precision() < LeastPrecision || r.Recall() < LeastRecall || r.Tickets != 0 || r.Diverged != 0 {
			t.Errorf("seed %d: precision %.4f, recall %.4f of what engines hold, %d promises open, %d streams diverged", x.Seed, r.Precision(), r.Recall(), r.Tickets, r.Diverged)
		}
		sum.Add(r)
	}
	// Runs this short differ by some percent for no reason: MostRegret is for the
	// command, and many seeds.
	if sum.Regret() > 0.1 {
		t.Errorf("first tokens took %.1f %% longer than with a perfect index", 100*sum.Regret())
	}
}

// Without replay a batch that was lost is a cache of which much is not known:
// the measure sees it.
func TestSpeculationSeesLosses(t *testing.T) {
	x := DefaultSpeculation()
	x.Length, x.Workers, x.EventDelay, x.EventLoss, x.NoReplay = 20*time.Second, 4, time.Second, 0.05, true
	r, err := x.play(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if recall := r.result.Recall(); recall > 0.9 || r.result.Held == 0 {
		t.Errorf("recall %.4f though batches are missing for good", recall)
	}
}

// The interval is that of the textbook's quotient: nothing where all seeds have the
// same, and where they differ half as wide with four times as many.
func TestRegretInterval(t *testing.T) {
	ms := time.Millisecond
	regret, half := RegretInterval([]*SpeculationResult{{TTFT: 110 * ms, Ideal: 100 * ms}, {TTFT: 220 * ms, Ideal: 200 * ms}})
	if math.Abs(regret-0.1) > 1e-9 || half > 1e-9 {
		t.Errorf("equal seeds: %.4f ± %.4f, want 0.1 ± 0", regret, half)
	}
	var few, many []*SpeculationResult
	for i := range 400 {
		r := &SpeculationResult{TTFT: []time.Duration{90, 130}[i%2] * ms, Ideal: 100 * ms}
		if many = append(many, r); i < 100 {
			few = append(few, r)
		}
	}
	// Student's t × 0.2 / √n.
	_, wide := RegretInterval(few)
	regret, half = RegretInterval(many)
	if math.Abs(regret-0.1) > 1e-9 || math.Abs(half-0.0197) > 2e-4 || math.Abs(wide/half-2) > 0.05 {
		t.Errorf("%.4f ± %.4f with 400 seeds, ± %.4f with 100", regret, half, wide)
	}
	if _, half := RegretInterval(few[:1]); half != 0 {
		t.Errorf("± %.4f of one seed", half)
	}
}

// A replica that died hears no events that were on their way to it: it told the
// others else that its workers begin anew, for it missed those before, and they
// forgot whole caches.
func TestDeadReplicaIsSilent(t *testing.T) {
	sc := Default()
	sc.Replicas, sc.Fleet.Workers = 3, 4
	sc.Workload = Workload{Kind: Chat, Speed: 1, Seconds: 16}
	const dies = 10 * time.Second
	s, err := NewStage(StageConfig{Scenario: sc, Seed: 1, Column: Learned, Until: 16 * time.Second, End: 16 * time.Second, Limit: time.Minute, EventSpread: 2500 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	slots := func() (all []index.Slot) {
		for _, r := range s.w.replicas[1:] {
			for _, m := range r.mesh.members {
				all = append(all, m.Cache().Slot)
			}
		}
		return all
	}
	var before, after []index.Slot
	read := 0
	s.At(dies, func() {
		read, before = len(s.Replica(0).Reads), slots()
		s.Crash(0)
	})
	s.At(dies+3500*time.Millisecond, func() { after = slots() })
	if err := s.Play(); err != nil {
		t.Fatal(err)
	}
	if read == 0 {
		t.Fatal("the replica that dies reads no worker")
	}
	if !slices.Equal(before, after) {
		t.Errorf("caches were begun anew though nobody read: slots %v, then %v", before, after)
	}
}
