package cost

import (
	"math"
	"testing"

	"github.com/rhizome-router/rhizome/kv"
	"pgregory.net/rapid"
)

// want fails unless got is want to within a tenth of a µs.
func want(t *testing.T, name string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 0.05 {
		t.Errorf("%s: %.2f, want %.2f", name, got, want)
	}
}

// Every term that the worked examples leave out, by hand. A request of 8000
// tokens, 4000 of them in HBM, and 100 of output, on a worker of e 22, q
// 0.00106, a 6200, b 10 and c 0.049.
func TestGoldenTerms(t *testing.T) {
	c := exampleClass()
	r := Request{PromptTokens: 8000, OutputTokens: 100, Choices: 1}
	h := Hit{HBMTokens: 4000}
	l := Load{Decoding: 4, ContextTokens: 32_000, RemainingTokens: 200, QueuedSeqs: 7,
		Cache: Pressure{UnusedTokens: 1100, ReuseProbability: 0.25, ContextTokens: 10_000}}
	w := Weights{OwnDecode: 1, PrefillExternality: 1, KVExternality: 1, Eviction: 1, HeadOfLineMicros: 100, HeadOfLineSlack: 4}
	compute := 22*4000 + 1.06e-3*4000*6000 // 113440
	got := Score(&c, &l, r, h, w)
	want(t, "own decode", got.OwnDecodeMicros, 100*(6200+10*5+0.049*(32_000+8000+50)))
	want(t, "prefill externality", got.PrefillExternalityMicros, 4*compute)
	want(t, "KV externality", got.KVExternalityMicros, 4*0.5*(10*100+0.049*(8000*100+5000)))
	want(t, "eviction", got.EvictionMicros, 3000*0.25*(22+10.6)) // 4000 + 100 − 1100 displaced
	want(t, "head of line", got.HeadOfLineMicros, 900)

	// What goes to a tier comes back at 131072 B / 50 GB/s, 2.62 µs a token.
	l.Cache.Spill = kv.CPU
	want(t, "eviction to a tier", Score(&c, &l, r, h, w).EvictionMicros, 3000*0.25*131072.0/50_000)

	// Two tokens a step: half the steps.
	fast := c
	fast.TokensPerStep = 2
	twice := Score(&fast, &l, r, h, w)
	want(t, "own decode at two tokens a step", twice.OwnDecodeMicros, got.OwnDecodeMicros/2)
	want(t, "KV externality at two tokens a step", twice.KVExternalityMicros, got.KVExternalityMicros/2)
}

func TestGoldenWorkflow(t *testing.T) {
	c := exampleClass()
	r := Request{PromptTokens: 8000, OutputTokens: 100, Choices: 1, Return: Return{Probability: 0.8, AfterMicros: 2e6, ContextTokens: 9000}}
	again := 22*9000 + 1.06e-3*9000*4500 // 240930
	for _, x := range []struct {
		name string
		p    Pressure
		want float64
	}{
		{"nothing is evicted", Pressure{}, 0},
		{"it stays as long as the return takes", Pressure{LifeMicros: 2e6}, 0.8 * math.Exp(-1) * again},
		{"it goes at once", Pressure{LifeMicros: 1}, 0.8 * again * math.Exp(-0.5e-6)},
		{"a tier would have given it back", Pressure{LifeMicros: 2e6, Spill: kv.CPU}, 0.8 * math.Exp(-1) * (again - 9000.0*131072/50_000)},
	} {
		l := Load{Cache: x.p}
		want(t, x.name, Score(&c, &l, r, Hit{}, Weights{}).WorkflowMicros, x.want)
	}
	r.Return = Return{}
	if got := Score(&c, &Load{Cache: Pressure{LifeMicros: 1}}, r, Hit{}, Weights{}).WorkflowMicros; got != 0 {
		t.Errorf("%v µs without agent context", got)
	}
}

func TestGoldenDistance(t *testing.T) {
	c := exampleClass()
	d := Distance{RTTMicros: 30_000, ShadowMicrosPerByte: 1e-5}
	want(t, "nothing crosses", d.Micros(&c, Hit{LowerTokens: 1000, Tier: kv.CPU}), 30_000)
	want(t, "1000 tokens cross", d.Micros(&c, Hit{LowerTokens: 1000, Tier: kv.Remote}), 30_000+1310.72)
}

// A link's backlog and its utilisation say the same thing twice: one counts.
func TestBacklogReplacesRho(t *testing.T) {
	c := exampleClass()
	h := Hit{LowerTokens: 7500, Tier: kv.CPU}
	l := Load{}
	l.Rho[kv.CPU] = 0.95
	want(t, "by utilisation", c.load(&l, h), 7500*131072/(50_000*0.05))
	l.BacklogKnown[kv.CPU], l.BacklogBytes[kv.CPU] = true, 1e9
	want(t, "by backlog", c.load(&l, h), (1e9+7500*131072)/50_000.0)
}

// Break-even bandwidths of a 70B model on four H100 (327,680 B, e 65, q 0.001).
func TestBreakEvenOfALargeModel(t *testing.T) {
	c := Class{KVBytes: 327_680, TokenMicros: 65, PairMicros: 1e-3}
	for _, x := range []struct{ context, want float64 }{{0, 5041}, {12_000, 4255.6}, {120_000, 1771.2}} {
		got := c.BreakEvenBytesPerMicro(Hit{HBMTokens: x.context, LowerTokens: 1e-9})
		if math.Abs(got-x.want) > 0.5 {
			t.Errorf("at a context of %v: %.1f B/µs, want %.1f", x.context, got, x.want)
		}
	}
}

func TestLoadPolicies(t *testing.T) {
	c := exampleClass()
	h := Hit{HBMTokens: 1000, LowerTokens: 500, Tier: kv.CPU}
	slow := Load{}
	slow.Rho[kv.CPU] = 0.999
	for _, x := range []struct {
		name  string
		p     LoadPolicy
		least float64
		l     Load
		want  float64
	}{
		{"always", LoadAlways, 1e9, slow, 500}, {"threshold met", LoadThreshold, 500, slow, 500}, {"threshold missed", LoadThreshold, 501, Load{}, 0},
		{"min, fast link", LoadMin, 0, Load{}, 500}, {"min, slow link", LoadMin, 0, slow, 0},
	} {
		c.LoadPolicy, c.LoadLeastTokens = x.p, x.least
		c.Links[kv.CPU].BytesPerMicro = 50_000
		if x.name == "min, slow link" {
			c.Links[kv.CPU].BytesPerMicro = 1000
		}
		got := c.Engaged(&x.l, h)
		if got.LowerTokens != x.want || got.HBMTokens != 1000 || c.Engaged(&x.l, got) != got {
			t.Errorf("%s: %+v", x.name, got)
		}
		if terms := Score(&c, &x.l, Request{PromptTokens: 8000}, h, Weights{}); (terms.LoadMicros > 0) != (x.want > 0) {
			t.Errorf("%s: %+v", x.name, terms)
		}
	}
}

// A pool of 100,000 tokens in which 88,000 are in use: who waits differs by
// what the engine wants free.
func TestAdmissions(t *testing.T) {
	c := exampleClass()
	c.CapacityTokens = 100_000
	l := Load{Decoding: 1, ContextTokens: 88_000, RemainingTokens: 10, UniqueTokens: 88_000, Residents: []Resident{{10, 88_000}}}
	for _, x := range []struct {
		name   string
		admit  Admission
		prompt float64
		output float64
		waits  bool
	}{
		{"whole prompt, fits", WholePrompt, 7000, 5000, false},
		{"whole prompt, too long", WholePrompt, 7001, 0, true},
		{"per chunk, whatever its length", PerChunk, 50_000, 5000, false},
		{"ratio, prompt and output fit", SGLangRatio, 7000, 5000, false},
		{"ratio, the output does not", SGLangRatio, 7000, 5001, true},
	} {
		c.Admit = x.admit
		r := Request{PromptTokens: x.prompt, OutputTokens: x.output, Choices: 1}
		got := Score(&c, &l, r, Hit{}, Weights{}).AdmissionMicros
		if (got > 0) != x.waits {
			t.Errorf("%s: waits %v µs", x.name, got)
		}
		if got > 0 {
			want(t, x.name, got, 10*(6200+10+0.049*88_000))
			if !c.Crowded(&l, r, Hit{}) {
				t.Errorf("%s: waits on a worker that is not crowded", x.name)
			}
		}
	}
}

// Nobody waits where no residents are asked for.
func TestOnlyTheCrowdedWait(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, l, r := drawClass(t), drawLoad(t), drawRequest(t)
		h := drawHit(t, r.PromptTokens)
		if Score(&c, &l, r, h, Weights{}).AdmissionMicros > 0 && !c.Crowded(&l, r, h) {
			t.Fatal("a wait for room on a worker that has some")
		}
	})
}

// A hit that is only promised counts as far as it is likely, and its producer
// is waited for.
func TestPromisedHits(t *testing.T) {
	c := exampleClass()
	r := Request{PromptTokens: 8000, OutputTokens: 1, Choices: 1}
	sure := Score(&c, &Load{}, r, Hit{HBMTokens: 4000}, Weights{})
	unsure := Score(&c, &Load{}, r, Hit{HBMTokens: 4000, UnsureTokens: 400}, Weights{})
	less := Score(&c, &Load{}, r, Hit{HBMTokens: 3600}, Weights{})
	if unsure != less || unsure.PrefillMicros <= sure.PrefillMicros {
		t.Errorf("%+v, want %+v", unsure, less)
	}
	busy := Load{QueuedTokens: 1000}
	queue := Score(&c, &busy, r, Hit{}, Weights{}).QueueMicros
	for _, x := range []struct{ producer, want float64 }{{queue / 2, queue}, {2 * queue, 2 * queue}} {
		want(t, "queue", Score(&c, &busy, r, Hit{ProducerMicros: x.producer}, Weights{}).QueueMicros, x.want)
	}
}

// Without a term, a cost is that of a request for which it is 0.
func TestOmit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, l, r := drawClass(t), drawLoad(t), drawRequest(t)
		h, w := drawHit(t, r.PromptTokens), allRates()
		all := Score(&c, &l, r, h, w)
		if Omit(0).Score(&c, &l, r, h, w) != all {
			t.Fatal("omitting nothing changes a cost")
		}
		o := Omit(rapid.IntRange(1, 63).Draw(t, "omit"))
		got := o.Score(&c, &l, r, h, w)
		for _, x := range []struct {
			bit    Omit
			micros float64
		}{{OmitQueue, got.QueueMicros}, {OmitAdmission, got.AdmissionMicros}, {OmitLoad, got.LoadMicros}, {OmitWorkflow, got.WorkflowMicros}} {
			if o&x.bit != 0 && x.micros != 0 {
				t.Fatalf("omitting %b leaves %+v", o, got)
			}
		}
		// What a load is compared with has pairs in it, under LoadMin.
		if c.LoadPolicy != LoadMin && got.TotalMicros() > all.TotalMicros()*(1+1e-12) {
			t.Fatalf("omitting %b makes %v of %v µs", o, got.TotalMicros(), all.TotalMicros())
		}
	})
}

func TestReuse(t *testing.T) {
	var u Reuse
	if p := u.Probability(0); p != 0 {
		t.Errorf("probability %v before anything was seen", p)
	}
	// Of 90 contexts 30 are used again soon and 30 late.
	for i := range 90 {
		u.Left()
		switch i % 3 {
		case 0:
			u.Again(2 * reuseUnit)
		case 1:
			u.Again(200 * reuseUnit)
		}
	}
	for _, x := range []struct{ tokens, want float64 }{
		{0, 60.0 / 100}, {20 * reuseUnit, 30.0 / 70}, {1000 * reuseUnit, 0},
	} {
		if p := u.Probability(x.tokens); math.Abs(p-x.want) > 1e-9 {
			t.Errorf("at age %v: %v, want %v", x.tokens, p, x.want)
		}
	}
	for range 100_000 { // nobody comes back any more
		u.Left()
	}
	if p := u.Probability(0); p > 0.01 {
		t.Errorf("%v after 100,000 contexts that nobody came back to", p)
	}
}

func TestConfirm(t *testing.T) {
	var c Confirm
	if c.Probability() != 1 {
		t.Errorf("P(confirm) is %v at first", c.Probability())
	}
	for range 2000 {
		c.Observe(0.5)
	}
	if p := c.Probability(); math.Abs(p-0.52) > 0.01 { // 20 of 520 are the prior
		t.Errorf("P(confirm) is %v, want 0.5 and a little", p)
	}
}

// The short way to the time of a lone prefill gives what scoring it does, to the
// bit.
func TestPrefillOfAnIdleWorker(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, tokens := drawClass(t), rapid.Float64Range(0, 2e5).Draw(t, "isl")
		if got, want := c.PrefillMicros(tokens), Score(&c, &Load{}, Request{PromptTokens: tokens}, Hit{}, allRates()).PrefillMicros; got != want {
			t.Fatalf("%v µs, by scoring %v", got, want)
		}
	})
}
