package model

import (
	"math"
	"testing"
)

// Two long prompts of 60 blocks on a pool of 100: whole prompts run one after
// the other, prompts admitted chunk by chunk start together, and the newer one
// gives way when the pool runs out.
func TestAdmissions(t *testing.T) {
	for _, admit := range []Admission{WholePrompt, PerChunk, SGLangRatio} {
		c := small(1600)
		c.Admit, c.BudgetTokens = admit, 480
		w := newWorker(t, c)
		var l log
		submit(t, w, 0, Request{ID: 1, PromptTokens: 720, OutputTokens: 200})
		submit(t, w, 0, Request{ID: 2, PromptTokens: 960, OutputTokens: 1})
		drain(w, l.sink)
		ended, admitted := l.one(t, Finished, 1).At, l.of(Admitted, 2)
		preempted := len(l.of(Preempted, 2))
		if together := admitted[0].At < ended; together != (admit == PerChunk) {
			t.Errorf("admission %d: 2 starts at %v, 1 ends at %v", admit, admitted[0].At, ended)
		}
		if (preempted > 0) != (admit == PerChunk) || len(admitted) != preempted+1 {
			t.Errorf("admission %d: 2 was admitted %d times and preempted %d times", admit, len(admitted), preempted)
		}
		l.one(t, Finished, 2)
	}
}

// A request that may put out 800 tokens more is promised 0.7 of them while it
// decodes, less and less of them from step to step.
func TestSGLangRatioFallsWithTime(t *testing.T) {
	c := small(1600)
	c.Admit, c.Schedule = SGLangRatio, PrefillFirst
	w := newWorker(t, c)
	var l log
	submit(t, w, 0, Request{ID: 1, PromptTokens: 160, OutputTokens: 700, MaxTokens: 800})
	submit(t, w, 0, Request{ID: 2, PromptTokens: 160, OutputTokens: 100})
	// It needs 800 tokens. First 320 are used and 900 promised of 1600, then
	// 0.7 of 900; when 2 ends, 260 are used and 0.6 of 700 promised.
	submit(t, w, 0, Request{ID: 3, PromptTokens: 600, OutputTokens: 1, MaxTokens: 200})
	drain(w, l.sink)
	if at, want := l.of(Admitted, 3)[0].At, l.one(t, Finished, 2).At; at != want {
		t.Errorf("3 was admitted at %v, want when 2 ended, at %v", at, want)
	}
	if got := w.NewTokenRatio(); got != initialRatio {
		t.Errorf("ratio %v of an idle worker, want %v", got, initialRatio)
	}
	r := tokenRatio{value: initialRatio, since: 100}
	if got, want := r.at(400), (initialRatio+lowestRatio)/2; math.Abs(got-want) > 1e-9 {
		t.Errorf("ratio %v after half of its fall, want %v", got, want)
	}
	if got := r.at(10000); got != lowestRatio {
		t.Errorf("ratio %v in the end, want %v", got, lowestRatio)
	}
}

func TestSGLangRatioRisesOnRetraction(t *testing.T) {
	c := small(1600)
	c.Admit = SGLangRatio
	w := newWorker(t, c)
	var ratios []float64
	sink := func(e Event) {
		if e.Kind == Preempted {
			ratios = append(ratios, w.NewTokenRatio())
		}
	}
	// 1 decodes alone for 600 steps, so its promise has fallen to a tenth when 2
	// comes. Both together are too large.
	submit(t, w, 0, Request{ID: 1, PromptTokens: 16, OutputTokens: 1400})
	submit(t, w, 6.5e6, Request{ID: 2, PromptTokens: 16, OutputTokens: 700})
	drain(w, sink)
	if len(ratios) == 0 {
		t.Fatal("nothing was preempted: the test tests nothing")
	}
	// 1 has put out about 1090 tokens by then.
	if got, want := ratios[0], (1090.0+20)/1401; math.Abs(got-want) > 0.02 {
		t.Errorf("ratio %v after a retraction, want about %v", got, want)
	}
}

func TestSlowdown(t *testing.T) {
	w := newWorker(t, small(160000))
	var l log
	submit(t, w, 0, Request{ID: 1, PromptTokens: 100, OutputTokens: 101})
	drainUntil := lin.A + lin.E*100 + lin.Q*5000 + 10.5*lin.A
	w.Advance(drainUntil, l.sink)
	w.ReportTokens(l.sink)
	out := l.of(Tokens, 1)[0]
	if err := w.SetSlowdown(3); err != nil {
		t.Fatal(err)
	}
	next, _ := w.NextIteration()
	drain(w, l.sink)
	want := next
	for i := out.Tokens + 1; i < 100; i++ {
		want += 3 * (lin.A + lin.B + lin.C*float64(100+i))
	}
	if got := l.one(t, Finished, 1).At; !near(got, want) {
		t.Errorf("ended at %v, want %v: three times as slow from %v on", got, want, next)
	}
	for _, bad := range []float64{0, -1, math.NaN(), math.Inf(1)} {
		if w.SetSlowdown(bad) == nil {
			t.Errorf("a factor of %v was accepted", bad)
		}
	}
}

func TestReset(t *testing.T) {
	w := loaded(t, nil)
	var l log
	for id := range uint64(4) {
		submit(t, w, 2e6, Request{ID: id, PromptTokens: 641, OutputTokens: 50, Keys: keys(id, 43)})
	}
	w.Advance(2e6+30000, l.sink)
	if !w.Cancel(3) {
		t.Fatal("3 does not wait")
	}
	l = log{}
	w.Reset(l.sink)
	if len(l.events) != 3 {
		t.Fatalf("%+v, want three requests lost and nothing else", l.events)
	}
	for id := range uint64(3) {
		if e := l.one(t, Lost, id); e.At != 2e6+30000 {
			t.Errorf("lost at %v", e.At)
		}
	}
	if _, busy := w.Next(); busy {
		t.Error("work is left")
	}
	if err := w.Check(); err != nil {
		t.Error(err)
	}
	l = log{}
	submit(t, w, 0, Request{ID: 0, PromptTokens: 641, OutputTokens: 1, Keys: keys(0, 40)})
	drain(w, l.sink)
	first := l.one(t, FirstToken, 0)
	if want := 2e6 + 30000 + lin.A + lin.E*641 + lin.Q*641*641/2; !near(first.At, want) || first.HBMTokens+first.TierTokens != 0 {
		t.Errorf("%+v, want nothing found and the first token at %v", first, want)
	}
}
