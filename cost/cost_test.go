package cost

import (
	"math"
	"testing"

	"github.com/rhizome-router/rhizome/kv"
	"pgregory.net/rapid"
)

// golden compares an example's rows with what the design computed by hand.
func golden(t *testing.T, e Example, want [][]float64, picks []string) {
	t.Helper()
	if len(e.Rows) != len(want) {
		t.Fatalf("%d rows, want %d", len(e.Rows), len(want))
	}
	for i, row := range e.Rows {
		if len(row.Workers) != len(want[i]) {
			t.Fatalf("%s: %d workers, want %d", row.Name, len(row.Workers), len(want[i]))
		}
		for j, w := range row.Workers {
			if math.Abs(w.CostMicros-want[i][j]) > 0.05 {
				t.Errorf("%s at %s: %.1f µs, want %.1f (%+v)", w.Name, row.Name, w.CostMicros, want[i][j], w.Terms)
			}
		}
		if got := row.Workers[row.Pick()].Name; got != picks[i] {
			t.Errorf("%s: pick %s, want %s", row.Name, got, picks[i])
		}
	}
}

// term is one term of a worker in an example.
func term(w *ExampleWorker, name string) float64 {
	for _, t := range w.Terms {
		if t.Name == name {
			return t.Micros
		}
	}
	return math.NaN()
}

// Which worker wins depends on the link's congestion and on the KV pool, not
// on a constant discount per tier.
func TestGoldenTiers(t *testing.T) {
	e := TiersExample()
	golden(t, e, [][]float64{
		{410083.5, 49796.4, 234720.0, 1189184.0},
		{410083.5, 414925.5, 234720.0, 1189184.0},
		{410083.5, 414925.5, 1189184.0},
	}, []string{"W2", "W3", "W1"})
	workers := e.Rows[0].Workers
	for _, c := range []struct {
		w    int
		term string
		want float64
	}{{0, "queue", 387168.0}, {0, "prefill", 22915.5}, {1, "load", 28086.9}, {1, "prefill", 21709.5}, {3, "admission", 941600}, {3, "prefill", 247584}} {
		if got := term(&workers[c.w], c.term); math.Abs(got-c.want) > 0.05 {
			t.Errorf("%s %s: %.1f, want %.1f", workers[c.w].Name, c.term, got, c.want)
		}
	}
}

// Loading at the break-even bandwidth takes as long as computing.
func TestBreakEven(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := exampleClass()
		h := Hit{HBMTokens: rapid.Float64Range(0, 1e5).Draw(t, "hbm"), LowerTokens: rapid.Float64Range(1, 1e5).Draw(t, "lower"), Tier: kv.CPU}
		c.Links[kv.CPU].BytesPerMicro = c.BreakEvenBytesPerMicro(h)
		load, compute := c.load(&Load{}, h), c.TokenMicros*h.LowerTokens+c.PairMicros*Pairs(h.LowerTokens, h.HBMTokens)
		if math.Abs(load/compute-1) > 1e-9 {
			t.Fatalf("load %v µs, compute %v µs", load, compute)
		}
	})
}

// The article's own worked example, in both readings.
func TestGoldenArticle(t *testing.T) {
	e := ArticleExample()
	for _, c := range []struct {
		row, w int
		term   string
		want   float64
	}{
		{0, 0, "prefill", 500}, {0, 0, "decode", 40000}, {0, 0, "decode square", 100}, {0, 0, "affinity", -3894.0},
		{1, 1, "prefill", 500}, {1, 1, "decode", 10000}, {1, 1, "decode square", 25}, {1, 1, "tier", 85.7}, {2, 1, "tier", 1200.0},
	} {
		if got := term(&e.Rows[c.row].Workers[c.w], c.term); math.Abs(got-c.want) > 0.05 {
			t.Errorf("row %d, W%d, %s: %.1f, want %.1f", c.row, c.w+1, c.term, got, c.want)
		}
	}
	golden(t, e, [][]float64{
		{36706.0, 18225.0, 8000.0},
		{36706.0, 10610.7, 8000.0},
		{36706.0, 11725.0, 8000.0},
	}, []string{"W3", "W3", "W3"})
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
		l.BacklogKnown[i], l.BacklogBytes[i] = rapid.Bool().Draw(t, "backlog known"), f("backlog", 1e9)
	}
	l.Cache = Pressure{UnusedTokens: f("unused", 1e6), ReuseProbability: f("reuse", 1), ContextTokens: f("old context", 1e5),
		Spill: kv.Tier(rapid.IntRange(0, 4).Draw(t, "spill")), LifeMicros: f("life", 1e10)}
	return l
}

func drawHit(t *rapid.T, isl float64) Hit {
	hbm := rapid.Float64Range(0, isl).Draw(t, "hbm")
	return Hit{HBMTokens: hbm, InUseTokens: rapid.Float64Range(0, hbm).Draw(t, "in use"),
		LowerTokens: rapid.Float64Range(0, isl-hbm).Draw(t, "lower"), Tier: kv.Tier(rapid.IntRange(1, 4).Draw(t, "tier")),
		UnsureTokens: rapid.Float64Range(0, hbm).Draw(t, "unsure")}
}

// drawClass draws what an engine is like, and drawRequest what is to be placed.
func drawClass(t *rapid.T) Class {
	c := Generic()
	c.CapacityTokens = rapid.Float64Range(0, 1e6).Draw(t, "capacity")
	c.Schedule, c.Admit = Schedule(rapid.IntRange(0, 1).Draw(t, "schedule")), Admission(rapid.IntRange(0, 2).Draw(t, "admit"))
	c.LoadPolicy, c.LoadLeastTokens = LoadPolicy(rapid.IntRange(0, 2).Draw(t, "load")), rapid.Float64Range(0, 1e5).Draw(t, "n")
	c.TokensPerStep = rapid.Float64Range(0, 5).Draw(t, "s")
	return c
}

func drawRequest(t *rapid.T) Request {
	return Request{PromptTokens: rapid.Float64Range(1, 2e5).Draw(t, "isl"), OutputTokens: rapid.Float64Range(0, 5000).Draw(t, "d"), Choices: 1,
		Return: Return{Probability: rapid.Float64Range(0, 1).Draw(t, "P(return)"), AfterMicros: rapid.Float64Range(0, 1e9).Draw(t, "after"),
			ContextTokens: rapid.Float64Range(0, 2e5).Draw(t, "ctx_next")}}
}

// allRates are rates at which every term counts.
func allRates() Weights {
	return Weights{OwnDecode: 0.3, PrefillExternality: 0.1, KVExternality: 0.1, QueueExternality: 1, Eviction: 0.5, HeadOfLineMicros: 100, HeadOfLineSlack: 4}
}

func TestEveryTermIsAtLeastZero(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, l, r := drawClass(t), drawLoad(t), drawRequest(t)
		l.Distance = Distance{rapid.Float64Range(0, 1e6).Draw(t, "rtt"), rapid.Float64Range(0, 1).Draw(t, "shadow")}
		h := drawHit(t, r.PromptTokens)
		h.ProducerMicros = rapid.Float64Range(0, 1e7).Draw(t, "producer")
		terms := Score(&c, &l, r, h, allRates())
		terms.QueueExternalityMicros = Traffic{rapid.Float64Range(0, 1).Draw(t, "arrivals"), rapid.Float64Range(0, 2).Draw(t, "busy"),
			rapid.Float64Range(0, 1e7).Draw(t, "wait")}.LaterWaitMicros(terms.PrefillMicros)
		for _, v := range terms.Named() {
			if v.Micros < 0 || math.IsNaN(v.Micros) || math.IsInf(v.Micros, 0) {
				t.Fatalf("bad %s: %+v", v.Name, terms)
			}
		}
		if most := terms.QueueMicros + terms.AdmissionMicros + terms.LoadMicros + terms.PrefillMicros; terms.TTFTMicros() > most {
			t.Fatalf("a wait of %v µs from parts of %v", terms.TTFTMicros(), most)
		}
		if terms.PrefillMicros <= 0 {
			t.Fatal("at least one token is always computed")
		}
	})
}

// A worker's scale must not change the order of workers of one class.
func TestScaleKeepsTheOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, l, r := drawClass(t), drawLoad(t), drawRequest(t)
		l.BacklogKnown = [kv.NumTiers]bool{} // of the link, and no matter of the worker's speed
		s := rapid.Float64Range(0.01, 100).Draw(t, "scale")
		scaled := c.Scaled(s)
		h, w := drawHit(t, r.PromptTokens), allRates()
		w.HeadOfLineMicros = 0 // in µs as they are
		a, b := Score(&c, &l, r, h, w).TotalMicros(), Score(&scaled, &l, r, h, w).TotalMicros()
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
	c, l := Generic(), Load{Decoding: 3, ContextTokens: 9000, UniqueTokens: 1e6, Residents: make([]Resident, 3),
		Cache: Pressure{ReuseProbability: 0.5, LifeMicros: 1e6}}
	c.CapacityTokens = 1e5
	r := Request{PromptTokens: 8000, OutputTokens: 200, Choices: 1, Return: Return{1, 1e6, 9000}}
	h := Hit{HBMTokens: 1000, LowerTokens: 2000, Tier: kv.CPU}
	w := allRates()
	if n := testing.AllocsPerRun(100, func() { Score(&c, &l, r, h, w) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if n := testing.AllocsPerRun(100, func() { (OmitPairs | OmitQueue).Score(&c, &l, r, h, w) }); n != 0 {
		t.Errorf("%v allocations without some terms", n)
	}
}

func BenchmarkScore(b *testing.B) {
	c, l := Generic(), Load{QueuedTokens: 5000, Decoding: 3, ContextTokens: 9000}
	r, w := Request{PromptTokens: 8000, OutputTokens: 200, Choices: 1}, DefaultWeights()
	for b.Loop() {
		Score(&c, &l, r, Hit{HBMTokens: 4000}, w)
	}
}

// Where prompts go first, decodes don't share their iterations: these are
// shorter, and the residents wait for all of them.
func TestPrefillFirst(t *testing.T) {
	mixed, first := exampleClass(), exampleClass()
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
