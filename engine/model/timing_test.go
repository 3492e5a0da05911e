package model

import (
	"testing"

	"pgregory.net/rapid"
)

// timings are one of each form.
func timings() []Timing {
	return []Timing{lin, Padded{lin}, Mocker{PoolTokens: 160000}, Windowed{Linear: lin, WindowC: 2, WindowQ: 0.03, Window: 1000}}
}

// Decodes is the sum of the iterations that it stands for, so that jumping
// over them changes nothing.
func TestDecodesIsASum(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		timing := rapid.SampledFrom(timings()).Draw(t, "timing")
		n := rapid.IntRange(1, 300).Draw(t, "batch")
		l := Load{Decoding: n, KVTokens: int64(n * rapid.IntRange(1, 2000).Draw(t, "context"))}
		k := rapid.IntRange(1, 1500).Draw(t, "steps")
		got, sum, last := timing.Decodes(l, k), 0.0, 0.0
		for range k {
			last = timing.Iteration(l)
			sum += last
			l.KVTokens += int64(n)
		}
		if !near(got, sum) {
			t.Fatalf("%T: %d steps take %v, their sum is %v", timing, k, got, sum)
		}
		l.KVTokens -= int64(n)
		if one := timing.Decodes(l, 1); one != last && !near(one, last) || one <= 0 {
			t.Fatalf("%T: one step takes %v by itself and %v as an iteration", timing, one, last)
		}
	})
}

// A lone request's TTFT is its prompt's iteration, and its TPOT that of a batch
// of one, by formulas written out here.
func TestLoneRequestOfEveryTiming(t *testing.T) {
	const prompt, out = 700, 601
	contexts := func(f func(context float64) float64) (sum float64) {
		for i := range out - 1 {
			sum += f(float64(prompt + i))
		}
		return sum
	}
	linear := func(c float64) float64 { return lin.A + lin.B + lin.C*c }
	const pairs = prompt * prompt / 2
	for i, want := range []struct{ ttft, decode float64 }{
		{lin.A + lin.E*prompt + lin.Q*pairs, contexts(linear)},
		{lin.A + lin.E*768 + lin.Q*pairs, contexts(linear)},
		{4.21e-7*1e3*prompt*prompt + 0.01518*1e3*prompt + 16.5e3, contexts(func(c float64) float64 {
			u := c / 160000
			return 1e3 * max(1, -25.74*u*u+54.01*u+5.74)
		})},
		{lin.A + lin.E*prompt + (lin.Q+0.03)*pairs, contexts(func(c float64) float64 { return linear(c) + 2*min(c, 1000) })},
	} {
		timing := timings()[i]
		c := small(160000)
		c.Timing = timing
		w := newWorker(t, c)
		var l log
		submit(t, w, 0, Request{ID: 1, PromptTokens: prompt, OutputTokens: out})
		drain(w, l.sink)
		first, last := l.one(t, FirstToken, 1).At, l.one(t, Finished, 1).At
		if !near(first, want.ttft) {
			t.Errorf("%T: TTFT %v, want %v", timing, first, want.ttft)
		}
		if got := (last - first) / (out - 1); !near(got, want.decode/(out-1)) {
			t.Errorf("%T: TPOT %v, want %v", timing, got, want.decode/(out-1))
		}
	}
}

func TestGraphSizes(t *testing.T) {
	for batch, want := range map[int]int{0: 0, 1: 1, 2: 2, 3: 4, 4: 4, 5: 8, 9: 16, 17: 24, 250: 256, 256: 256, 257: 257} { // order-free: each case stands alone
		if got := graphSize(batch); got != want {
			t.Errorf("a batch of %d runs as %d, want %d", batch, got, want)
		}
	}
}

// What a preset's Linear says is near its Timing where it is used most.
func TestLinearOfEveryPreset(t *testing.T) {
	for _, p := range Presets() {
		for _, l := range []Load{{PrefillTokens: 2000, PrefillPairs: 2e6}, {Decoding: 32, KVTokens: int64(p.PoolTokens / 4), KVUsage: 0.25}} {
			got, want := p.Linear.Iteration(l), p.timing().Iteration(l)
			if got < 0.7*want || got > 1.4*want {
				t.Errorf("%s: %+v takes %v, its Linear says %v", p.Name, l, want, got)
			}
		}
	}
}
