package cost

import (
	"math"
	"testing"

	"github.com/rhizome-router/rhizome/kv"
	"pgregory.net/rapid"
)

// The golden example "tiers": which worker wins depends on the link's
// congestion and on the KV pool, not on a constant discount per tier.
func tiersClass() Class {
	c := Class{StepMicros: 6200, SeqMicros: 10, KVTokenMicros: 0.049, TokenMicros: 22, PairMicros: 1.06e-3,
		BudgetTokens: 2048, MaxSeqs: 256, KVBytes: 131072}
	c.Links[kv.CPU] = Link{BytesPerMicro: 50_000}
	return c
}

func TestGoldenTiers(t *testing.T) {
	class := tiersClass()
	full := class
	full.CapacityTokens = 64_000 / watermark
	r := Request{PromptTokens: 8000, OutputTokens: 1, Choices: 1}
	residents := func(n int, remaining float64) []Resident {
		all := make([]Resident, n)
		for i := range all {
			all[i] = Resident{remaining, 8000}
		}
		return all
	}
	w1 := Load{QueuedTokens: 12000, QueuedPairs: Pairs(12000, 0), QueuedSeqs: 1, Decoding: 4, ContextTokens: 32000}
	w2 := Load{Decoding: 1, ContextTokens: 8000}
	w3full := Load{Decoding: 8, ContextTokens: 64000, UniqueTokens: 64000, Residents: residents(8, 100)}
	for _, c := range []struct {
		name  string
		class *Class
		load  Load
		hit   Hit
		rho   float64
		want  float64
	}{
		{"W1", &class, w1, Hit{HBMTokens: 7500}, 0.3, 410083.5},
		{"W2", &class, w2, Hit{LowerTokens: 7500, Tier: kv.CPU}, 0.3, 49796.4},
		{"W3", &class, Load{}, Hit{}, 0.3, 234720.0},
		{"W3'", &full, w3full, Hit{}, 0.3, 1189184.0},
		{"W1", &class, w1, Hit{HBMTokens: 7500}, 0.95, 410083.5},
		{"W2", &class, w2, Hit{LowerTokens: 7500, Tier: kv.CPU}, 0.95, 414925.5},
		{"W3", &class, Load{}, Hit{}, 0.95, 234720.0},
	} {
		c.load.Rho[kv.CPU] = c.rho
		terms := Score(c.class, &c.load, r, c.hit, Weights{})
		if got := terms.TotalMicros(); math.Abs(got-c.want) > 0.05 {
			t.Errorf("%s at ρ %v: %.1f µs, want %.1f (%+v)", c.name, c.rho, got, c.want, terms)
		}
	}
	terms := Score(&class, &w1, r, Hit{HBMTokens: 7500}, Weights{})
	if math.Abs(terms.QueueMicros-387168.0) > 0.05 || math.Abs(terms.PrefillMicros-22915.5) > 0.05 {
		t.Errorf("W1's terms: %+v", terms)
	}
	if terms := Score(&full, &w3full, r, Hit{}, Weights{}); math.Abs(terms.AdmissionMicros-941600) > 0.05 {
		t.Errorf("W3' admission: %+v", terms)
	}
}

// The article's own worked example, in both readings.
func TestGoldenArticle(t *testing.T) {
	r := Request{PromptTokens: 8000}
	w1 := ArticleLoad{RemainingTokens: 800, RemainingSquares: 200_000, Queue: 2, LastWorker: true, SinceSeconds: 30}
	w2 := ArticleLoad{RemainingTokens: 200, RemainingSquares: 50_000}
	for _, c := range []struct {
		literal    bool
		rho        float64
		w1, w2, w3 float64
	}{
		{true, 0.3, 36706.0, 18225.0, 8000.0},
		{false, 0.3, 36706.0, 10610.7, 8000.0},
		{false, 0.95, 36706.0, 11725.0, 8000.0},
	} {
		a := DefaultArticle()
		a.Literal = c.literal
		w2.Rho[kv.CPU] = c.rho
		for _, w := range []struct {
			name string
			load ArticleLoad
			hit  Hit
			want float64
		}{
			{"W1", w1, Hit{HBMTokens: 7500}, c.w1},
			{"W2", w2, Hit{LowerTokens: 7500, Tier: kv.CPU}, c.w2},
			{"W3", ArticleLoad{}, Hit{}, c.w3},
		} {
			terms := a.Score(&w.load, r, w.hit)
			if got := terms.TotalMicros(); math.Abs(got-w.want) > 0.05 {
				t.Errorf("literal %v, ρ %v: %s = %.1f, want %.1f (%+v)", c.literal, c.rho, w.name, got, w.want, terms)
			}
		}
	}
}

func drawLoad(t *rapid.T) Load {
	f := func(name string, most float64) float64 { return rapid.Float64Range(0, most).Draw(t, name) }
	l := Load{QueuedTokens: f("ΣP", 1e6), QueuedSeqs: rapid.IntRange(0, 300).Draw(t, "queued"),
		Decoding: f("B", 256), ContextTokens: f("K", 1e6), RemainingTokens: f("Σd_rem", 1e5), UniqueTokens: f("U", 1e6)}
	l.QueuedPairs = Pairs(l.QueuedTokens, 0)
	for range rapid.IntRange(0, 5).Draw(t, "residents") {
		l.Residents = append(l.Residents, Resident{1 + f("d_rem", 1000), f("exclusive", 1e5)})
	}
	for i := range l.Rho {
		l.Rho[i] = f("rho", 1)
	}
	return l
}

func drawHit(t *rapid.T, isl float64) Hit {
	hbm := rapid.Float64Range(0, isl).Draw(t, "hbm")
	return Hit{HBMTokens: hbm, InUseTokens: rapid.Float64Range(0, hbm).Draw(t, "in use"),
		LowerTokens: rapid.Float64Range(0, isl-hbm).Draw(t, "lower"), Tier: kv.Tier(rapid.IntRange(1, 4).Draw(t, "tier"))}
}

func TestEveryTermIsAtLeastZero(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := Generic()
		c.CapacityTokens = rapid.Float64Range(0, 1e6).Draw(t, "capacity")
		l := drawLoad(t)
		r := Request{rapid.Float64Range(1, 2e5).Draw(t, "isl"), rapid.Float64Range(0, 5000).Draw(t, "d"), 1}
		terms := Score(&c, &l, r, drawHit(t, r.PromptTokens), DefaultWeights())
		for _, v := range []float64{terms.QueueMicros, terms.AdmissionMicros, terms.LoadMicros, terms.PrefillMicros,
			terms.OwnDecodeMicros, terms.PrefillExternalityMicros, terms.KVExternalityMicros} {
			if v < 0 || math.IsNaN(v) || math.IsInf(v, 0) {
				t.Fatalf("bad term: %+v", terms)
			}
		}
		if terms.PrefillMicros <= 0 {
			t.Fatal("at least one token is always computed")
		}
	})
}

// A worker's scale must not change the order of workers of one class.
func TestScaleKeepsTheOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := Generic()
		s := rapid.Float64Range(0.01, 100).Draw(t, "scale")
		scaled := c.Scaled(s)
		l := drawLoad(t)
		r := Request{rapid.Float64Range(1, 2e5).Draw(t, "isl"), 100, 1}
		h := drawHit(t, r.PromptTokens)
		a, b := Score(&c, &l, r, h, DefaultWeights()).TotalMicros(), Score(&scaled, &l, r, h, DefaultWeights()).TotalMicros()
		if math.Abs(b/a/s-1) > 1e-9 {
			t.Fatalf("cost %v at scale 1 but %v at %v", a, b, s)
		}
	})
}

func TestLaterWait(t *testing.T) {
	// A request every 2 s for each worker, which are busy half the time and all
	// have 1 s to do: 1 s/2 s/(1 − 0.5) requests for each come before one is
	// free, and work of 1 s puts that off by as much.
	traffic := Traffic{ArrivalsPerMicro: 0.5e-6, Busy: 0.5, WaitMicros: 1e6}
	if got := traffic.LaterWaitMicros(1e6); math.Abs(got-1e6) > 1 {
		t.Errorf("%v µs, want 1 s", got)
	}
	if got := (Traffic{ArrivalsPerMicro: 0.5e-6, Busy: 0.5}).LaterWaitMicros(1e6); got != 0 {
		t.Errorf("%v µs while a worker is free", got)
	}
	traffic.Busy = 3 // overload must not turn the sign
	if got := traffic.LaterWaitMicros(1e6); got <= 0 || math.IsInf(got, 0) {
		t.Errorf("%v µs under overload", got)
	}
	if got := (Traffic{}).LaterWaitMicros(1e6); got != 0 {
		t.Errorf("%v µs without traffic", got)
	}
}

func TestScoreAllocatesNothing(t *testing.T) {
	c, l := Generic(), Load{Decoding: 3, ContextTokens: 9000, Residents: make([]Resident, 3)}
	r := Request{8000, 200, 1}
	if n := testing.AllocsPerRun(100, func() { Score(&c, &l, r, Hit{}, DefaultWeights()) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkScore(b *testing.B) {
	c, l := Generic(), Load{QueuedTokens: 5000, Decoding: 3, ContextTokens: 9000}
	r, w := Request{8000, 200, 1}, DefaultWeights()
	for b.Loop() {
		Score(&c, &l, r, Hit{HBMTokens: 4000}, w)
	}
}

// Where prompts go first, decodes don't share their iterations: these are
// shorter, and the residents wait for all of them.
func TestPrefillFirst(t *testing.T) {
	mixed, first := tiersClass(), tiersClass()
	first.Schedule = PrefillFirst
	l := Load{Decoding: 10, ContextTokens: 100_000}
	r := Request{PromptTokens: 4000, OutputTokens: 100, Choices: 1}
	w := Weights{PrefillExternality: 0.1}
	m, f := Score(&mixed, &l, r, Hit{}, w), Score(&first, &l, r, Hit{}, w)
	compute := 22*4000 + 1.06e-3*Pairs(4000, 0)
	for _, c := range []struct {
		name      string
		got, want float64
	}{
		{"mixed prefill", m.PrefillMicros, compute + 2*(6200+10*10+0.049*100_000)},
		{"mixed externality", m.PrefillExternalityMicros, 0.1 * 10 * compute},
		{"first prefill", f.PrefillMicros, compute + 2*6200},
		{"first externality", f.PrefillExternalityMicros, 0.1 * 10 * (compute + 2*6200)},
	} {
		if math.Abs(c.got-c.want) > 1e-6 {
			t.Errorf("%s: %v, want %v", c.name, c.got, c.want)
		}
	}
}
