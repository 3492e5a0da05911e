package cost

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/rhizome-router/rhizome/kv"
	"pgregory.net/rapid"
)

// truths are samples of a worker with the given constants, of all sizes.
func truths(c *Class, n int, noise float64, seed uint64) []Sample {
	rng := rand.New(rand.NewPCG(seed, 1))
	out := make([]Sample, n)
	for i := range out {
		s := &out[i]
		p := math.Exp(5 + 5*rng.Float64())
		b, k := float64(rng.IntN(60)), math.Exp(8+5*rng.Float64())
		if i%2 == 0 {
			*s = Sample{Kind: FirstTokens, Requests: 1, PromptTokens: 2 * p, Iterations: math.Ceil(p / 2048), PrefillTokens: p, PrefillPairs: Pairs(p, p)}
		} else {
			*s = Sample{Kind: Decodes, Iterations: 10 + 300*rng.Float64(), PrefillTokens: p / 4, PrefillPairs: p * p / 16}
		}
		s.Sequences, s.KVTokens = b*s.Iterations, k*s.Iterations
		if i%8 == 0 {
			s.Loads[kv.CPU], s.LoadedTokens[kv.CPU] = 1, 10*p
		}
		s.MeasuredMicros = s.PredictMicros(c) * math.Exp(noise*rng.NormFloat64())
	}
	return out
}

func truth() Class {
	c := Generic()
	c.OverheadMicros, c.PromptTokenMicros = 4000, 0.3
	c.StepMicros, c.SeqMicros, c.KVTokenMicros, c.TokenMicros, c.PairMicros = 21400, 150, 0.031, 65, 0.001
	c.Links[kv.CPU].BytesPerMicro = 20_000
	return c
}

func learnAll(base *Class, class, f *Fit, samples []Sample) {
	for i := range samples {
		f.Observe(base, class, &samples[i])
	}
}

func TestFitFindsConstants(t *testing.T) {
	base, want := Generic(), truth()
	class, f := NewClassFit(&base), new(Fit)
	learnAll(&base, class, f, truths(&want, 600, 0.1, 1))
	got := f.Class(base, class)
	for _, c := range []struct {
		name      string
		got, want float64
	}{
		{"o", got.OverheadMicros, want.OverheadMicros}, {"a", got.StepMicros, want.StepMicros}, {"b", got.SeqMicros, want.SeqMicros},
		{"c", got.KVTokenMicros, want.KVTokenMicros}, {"e", got.TokenMicros, want.TokenMicros}, {"q", got.PairMicros, want.PairMicros},
		{"link", got.Links[kv.CPU].BytesPerMicro, want.Links[kv.CPU].BytesPerMicro},
	} {
		if math.Abs(c.got/c.want-1) > 0.25 {
			t.Errorf("%s = %v, want %v", c.name, c.got, c.want)
		}
	}
	if e := class.MeanError(); e < 0.05 || e > 0.12 {
		t.Errorf("errors of 0.08 on average are taken for %v", e)
	}
}

// Two samples find a scale that is off by 50, in either direction.
func TestFitFindsTheScaleFirst(t *testing.T) {
	for _, s := range []float64{0.02, 50} {
		base := Generic()
		want := base.Scaled(s)
		class, f := NewClassFit(&base), new(Fit)
		learnAll(&base, class, f, truths(&want, 4, 0.05, 2))
		got := f.Class(base, class)
		for _, x := range []float64{got.StepMicros / want.StepMicros, got.TokenMicros / want.TokenMicros, got.KVTokenMicros / want.KVTokenMicros} {
			if x < 0.75 || x > 1.33 {
				t.Errorf("scale %v: a constant is %.2f of the truth", s, x)
			}
		}
		if f.Calibrated() {
			t.Error("calibrated by 4 samples")
		}
	}
}

// A worker nobody measured is an average one of its class; one that was is not.
func TestWorkersShareTheirClass(t *testing.T) {
	base, want := Generic(), truth()
	slow := want.Scaled(1.3)
	class := NewClassFit(&base)
	var workers [4]Fit
	for round := range 100 {
		for i := range workers {
			c := &want
			if i == 0 {
				c = &slow
			}
			s := truths(c, 2, 0.1, uint64(4*round+i))
			learnAll(&base, class, &workers[i], s)
		}
	}
	unseen := new(Fit).Class(base, class)
	if x := unseen.TokenMicros / want.TokenMicros; x < 0.95 || x > 1.2 {
		t.Errorf("an unmeasured worker is taken to be %.2f times as slow as most", x)
	}
	if x := workers[0].Class(base, class).TokenMicros / slow.TokenMicros; x < 0.9 || x > 1.1 {
		t.Errorf("the slow worker is taken for %.2f of what it is", x)
	}
	if x := workers[1].Class(base, class).TokenMicros / want.TokenMicros; x < 0.9 || x > 1.1 {
		t.Errorf("its neighbour is taken for %.2f of what it is", x)
	}
}

func TestAlarmLetsAWorkerChange(t *testing.T) {
	base, want := Generic(), truth()
	class, f := NewClassFit(&base), new(Fit)
	learnAll(&base, class, f, truths(&want, 1000, 0.1, 1))
	if f.Alarms()+class.Alarms() != 0 {
		t.Errorf("%d alarms of a steady worker, %d of its class", f.Alarms(), class.Alarms())
	}
	for _, k := range []float64{4, 1} {
		now := want.Scaled(k)
		learnAll(&base, class, f, truths(&now, 30, 0.1, 3))
		if got := f.Class(base, class).TokenMicros / now.TokenMicros; got < 0.8 || got > 1.25 {
			t.Errorf("30 samples after it became %v times as slow, it is taken for %.2f of that", k, got)
		}
	}
	if class.Alarms() == 0 {
		t.Error("no alarm of a class of one")
	}
}

// A worker that was slow, and is not asked any more, is an average one again
// some day.
func TestRestedWorkersGetAnotherChance(t *testing.T) {
	base, want := Generic(), truth()
	class, slow, other := NewClassFit(&base), new(Fit), new(Fit)
	learnAll(&base, class, other, truths(&want, 400, 0.1, 1))
	thrice := want.Scaled(3)
	learnAll(&base, class, slow, truths(&thrice, 60, 0.1, 2))
	slow.Rest(class)
	if x := slow.Class(base, class).TokenMicros / want.TokenMicros; x < 2 {
		t.Fatalf("%.2f times as slow after 60 samples at 3", x)
	}
	for i := range 200 {
		learnAll(&base, class, other, truths(&want, 100, 0.1, uint64(3+i)))
		slow.Rest(class)
		other.Rest(class)
	}
	if x := slow.Class(base, class).TokenMicros / want.TokenMicros; x > 1.2 {
		t.Errorf("still %.2f times as slow after 20 000 samples of its class", x)
	}
}

// One sample in ten is nonsense, and little harm is done.
func TestFitBearsOutliers(t *testing.T) {
	base, want := Generic(), truth()
	class, f := NewClassFit(&base), new(Fit)
	samples := truths(&want, 800, 0.1, 1)
	for i := range samples {
		if i%10 == 0 {
			samples[i].MeasuredMicros *= 30
		}
	}
	learnAll(&base, class, f, samples)
	if x := f.Class(base, class).TokenMicros / want.TokenMicros; x < 0.85 || x > 1.3 {
		t.Errorf("e is %.2f of the truth", x)
	}
}

func anyFloat(t *rapid.T, name string) float64 {
	return rapid.OneOf(rapid.Float64(), rapid.Float64Range(0, 1e6), rapid.SampledFrom([]float64{0, -1, math.NaN(), math.Inf(1), math.MaxFloat64})).Draw(t, name)
}

// Whatever is observed, constants are finite and above 0.
func TestFitStaysFinite(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base := Generic()
		class, f := NewClassFit(&base), new(Fit)
		for range rapid.IntRange(1, 30).Draw(t, "samples") {
			s := Sample{
				Kind: SampleKind(rapid.IntRange(0, 4).Draw(t, "kind")), MeasuredMicros: anyFloat(t, "y"), KnownMicros: anyFloat(t, "known"),
				DoubtMicros: anyFloat(t, "doubt"), Requests: anyFloat(t, "requests"), PromptTokens: anyFloat(t, "prompt"),
				Iterations: anyFloat(t, "iterations"), Sequences: anyFloat(t, "B"), KVTokens: anyFloat(t, "K"),
				PrefillTokens: anyFloat(t, "P"), PrefillPairs: anyFloat(t, "S"),
			}
			s.LoadedTokens[kv.Disk], s.Loads[kv.Disk] = anyFloat(t, "loaded"), anyFloat(t, "loads")
			f.Observe(&base, class, &s)
		}
		c := f.Class(base, class)
		for _, v := range priced(&c) {
			if !(v > 0) || math.IsInf(v, 0) {
				t.Fatalf("%+v", c)
			}
		}
		for _, m := range []*Fit{f, class} {
			for i := range m.doubt {
				if v := m.doubt[i][i]; m.begin != nil && (!(v > 0) || math.IsInf(v, 0)) {
					t.Fatalf("a variance of %v", v)
				}
			}
		}
	})
}

// All times s times as long: all constants s times as large.
func TestFitScalesWithTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.Float64Range(0.1, 10).Draw(t, "s")
		base, want := Generic(), truth()
		samples := truths(&want, 200, 0.1, rapid.Uint64Range(1, 1000).Draw(t, "seed"))
		learned := func(s float64) Class {
			class, f := NewClassFit(&base), new(Fit)
			for _, x := range samples {
				x.MeasuredMicros *= s
				f.Observe(&base, class, &x)
			}
			return f.Class(base, class)
		}
		one, scaled := learned(1), learned(s)
		x, y := priced(&one), priced(&scaled)
		for _, i := range []param{step, kvToken, token, pair} { // those that these samples show
			if r := y[i] / x[i] / s; r < 0.85 || r > 1.18 {
				t.Fatalf("times %v: %s grows %.3f times as much", s, paramNames[i], r)
			}
		}
	})
}

// In which order samples come matters little.
func TestFitForgetsTheOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base, want := Generic(), truth()
		samples := truths(&want, 200, 0.1, 7)
		learned := func() Class {
			class, f := NewClassFit(&base), new(Fit)
			learnAll(&base, class, f, samples)
			return f.Class(base, class)
		}
		first := learned()
		samples = rapid.Permutation(samples).Draw(t, "order")
		second := learned()
		if a, e := second.StepMicros/first.StepMicros, second.TokenMicros/first.TokenMicros; math.Abs(a-1) > 0.1 || math.Abs(e-1) > 0.1 {
			t.Fatalf("another order: a %.3f, e %.3f times", a, e)
		}
	})
}

func TestFitStateComesBack(t *testing.T) {
	base, want := Generic(), truth()
	class, f := NewClassFit(&base), new(Fit)
	learnAll(&base, class, f, truths(&want, 300, 0.1, 1))
	raw, err := json.Marshal(class.State(base))
	if err != nil {
		t.Fatal(err)
	}
	var s FitState
	if err := json.Unmarshal(raw, &s); err != nil {
		t.Fatal(err)
	}
	other := base.Scaled(7) // another start
	back := NewClassFit(&other)
	if err := back.Restore(other, s); err != nil {
		t.Fatal(err)
	}
	got, had := new(Fit).Class(other, back), new(Fit).Class(base, class)
	if math.Abs(got.TokenMicros/had.TokenMicros-1) > 0.01 || math.Abs(got.KVTokenMicros/had.KVTokenMicros-1) > 0.01 || back.Samples() != class.Samples() {
		t.Errorf("restored %+v from %+v", got, had)
	}
	for name, spoil := range map[string]func(*FitState){
		"short":      func(s *FitState) { s.Doubt = s.Doubt[1:] },
		"nan":        func(s *FitState) { s.Doubt[0] = math.NaN() },
		"negative":   func(s *FitState) { s.Doubt[0] = -1 },
		"impossible": func(s *FitState) { s.Doubt[1] = 50 },
		"noise":      func(s *FitState) { s.Noise = nil },
	} {
		bad := class.State(base)
		spoil(&bad)
		before := *back
		if err := back.Restore(other, bad); err == nil || *back != before {
			t.Errorf("%s: restored, or half so: %v", name, err)
		}
	}
}

func TestObserveAllocatesNothing(t *testing.T) {
	base, want := Generic(), truth()
	class, f := NewClassFit(&base), new(Fit)
	s := truths(&want, 1, 0, 1)[0]
	if n := testing.AllocsPerRun(100, func() { f.Observe(&base, class, &s); base.MaxSeqs = f.Class(base, class).MaxSeqs }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkObserve(b *testing.B) {
	base, want := Generic(), truth()
	class, f := NewClassFit(&base), new(Fit)
	s := truths(&want, 1, 0, 1)[0]
	for b.Loop() {
		f.Observe(&base, class, &s)
	}
}

func BenchmarkFitClass(b *testing.B) {
	base, want := Generic(), truth()
	class, f := NewClassFit(&base), new(Fit)
	learnAll(&base, class, f, truths(&want, 30, 0.1, 1))
	var c Class
	for b.Loop() {
		c = f.Class(base, class)
	}
	if c.StepMicros <= 0 {
		b.Fatal(c)
	}
}
