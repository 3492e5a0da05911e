package model

import (
	"math"
	"math/rand/v2"
	"testing"
)

// Poisson arrivals, constant service, one server: the mean wait of M/D/1 is
// ρ·service/(2(1−ρ)). The arrivals are so many that 3 % is several standard
// errors; the seed is fixed.
func TestMD1Queue(t *testing.T) {
	const n = 200000
	for _, rho := range []float64{0.5, 0.8} {
		c := small(160000)
		c.BudgetTokens = 512
		w := newWorker(t, c)
		service := lin.A + lin.E*512 + lin.Q*512*256
		rnd := rand.New(rand.NewPCG(1, 2))
		at := 0.0
		sink := func(Event) {}
		for i := range n {
			at += rnd.ExpFloat64() * service / rho
			w.Advance(at, sink)
			submit(t, w, at, Request{ID: uint64(i), PromptTokens: 512, OutputTokens: 1})
		}
		drain(w, sink)
		want := rho * service / (2 * (1 - rho))
		st := w.Stats()
		if got := st.FirstTokenMicros/n - service; math.Abs(got-want) > 0.03*want {
			t.Errorf("at %v: mean wait %v, want %v within 3 %%", rho, got, want)
		}
		if st.Admitted != n || !near(st.QueueMicros+st.AdmittedMicros, st.FirstTokenMicros) {
			t.Errorf("at %v: waits and computing don't add up: %+v", rho, st)
		}
	}
}

// Preemption recomputes: what is computed is what was asked for and what was
// out when sequences gave way, less what was found again; what comes out is
// what was asked for.
func TestPreemptionConservesTokens(t *testing.T) {
	for _, admit := range []Admission{WholePrompt, PerChunk} {
		for _, cached := range []bool{false, true} {
			c := small(640)
			c.Admit, c.Tiers, c.BudgetTokens = admit, []TierConfig{}, 256
			w := newWorker(t, c)
			var lost, hit, prompts, outs int64
			sink := func(e Event) {
				if e.Kind == Preempted {
					lost++
				}
			}
			for id := range uint64(12) {
				r := Request{ID: id, PromptTokens: 100 + 10*int(id), OutputTokens: 150, MaxTokens: 160}
				if cached {
					r.Keys = keys(id%2, 30)
				}
				prompts, outs = prompts+int64(r.PromptTokens), outs+150
				submit(t, w, 0, r)
			}
			drainChecked(t, w, sink)
			st := w.Stats()
			hit = st.HBMHitTokens
			if lost == 0 || lost != st.Preemptions || st.Finished != 12 {
				t.Fatalf("admission %d: %d preemptions told, %+v", admit, lost, st)
			}
			if st.GeneratedTokens != outs || st.InterTokens != outs-12 || st.FirstTokens != 12 {
				t.Errorf("admission %d: %d tokens out (%d between two), want %d", admit, st.GeneratedTokens, st.InterTokens, outs)
			}
			if !cached && (hit != 0 || st.PrefilledTokens != prompts || st.ComputedTokens <= prompts) {
				t.Errorf("admission %d: %d tokens found, %d prefilled of %d, %d computed", admit, hit, st.PrefilledTokens, prompts, st.ComputedTokens)
			}
			// Each admission looks up what it has to have; a sequence that gave
			// way before it was done leaves what it had not computed.
			if admit != PerChunk && st.ComputedTokens+hit != st.QueriedTokens {
				t.Errorf("admission %d: computed %d, found %d, asked for %d", admit, st.ComputedTokens, hit, st.QueriedTokens)
			}
		}
	}
}

// drainChecked is drain that looks after every iteration.
func drainChecked(t *testing.T, w *Worker, sink Sink) {
	t.Helper()
	for {
		at, ok := w.NextIteration()
		if !ok {
			return
		}
		w.Advance(at, sink)
		w.ReportTokens(sink)
		if err := w.Check(); err != nil {
			t.Fatal(err)
		}
	}
}

// What engines report of times between tokens is the time from a request's
// first token to its last, whether one looks often or not.
func TestInterTokenTotals(t *testing.T) {
	w := newWorker(t, small(160000))
	var l log
	submit(t, w, 0, Request{ID: 1, PromptTokens: 1000, OutputTokens: 50})
	submit(t, w, 300000, Request{ID: 2, PromptTokens: 3000, OutputTokens: 20})
	last := Stats{}
	for {
		at, ok := w.NextIteration()
		if !ok {
			break
		}
		w.Advance(at, l.sink)
		if st := w.Stats(); st.InterTokens < last.InterTokens || st.InterTokenMicros < last.InterTokenMicros {
			t.Fatalf("totals fell from %+v to %+v", last, st)
		} else {
			last = st
		}
	}
	want := 0.0
	for id := uint64(1); id <= 2; id++ {
		want += l.one(t, Finished, id).At - l.one(t, FirstToken, id).At
	}
	if last.InterTokens != 68 || !near(last.InterTokenMicros, want) {
		t.Errorf("%d tokens in %v µs, want 68 in %v", last.InterTokens, last.InterTokenMicros, want)
	}
}
