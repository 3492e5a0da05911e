package route

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rhizome-router/rhizome/cost"
	"github.com/rhizome-router/rhizome/engine"
	"github.com/rhizome-router/rhizome/engine/model"
	"github.com/rhizome-router/rhizome/kv"
)

// told is the class of a router that knows the true constants of the class.
func told(l model.Linear) cost.Class {
	c := cost.Generic()
	c.Name = "told"
	c.StepMicros, c.SeqMicros, c.KVTokenMicros, c.TokenMicros, c.PairMicros = l.A, l.B, l.C, l.E, l.Q
	return c
}

func near(got, want, share float64) bool { return got > want*(1-share) && got < want*(1+share) }

// From constants of another model on fewer accelerators, what is predicted of
// first tokens after 500 requests over 8 workers must be right within 15 % in
// the median, and the constants that the load shows within 20 %.
func TestFitFindsHiddenConstants(t *testing.T) {
	for preset, seeds := range map[string]uint64{"llama3-70b-h100-tp4": 2, "llama3-8b-a100": 1} {
		for seed := range seeds {
			g := newGround(t, groundConfig{seed: seed + 1, workers: 8, preset: preset, requests: 700, rate: 1})
			g.play()
			e := g.errors(500, 700, 0.5, 0.9)
			t.Logf("%s, seed %d: TTFT off by %.3f in the median, %.3f at p90", preset, seed+1, e[0], e[1])
			if e[0] > 0.15 {
				t.Errorf("%s, seed %d: predicted TTFT is off by %.3f in the median", preset, seed+1, e[0])
			}
			for i, f := range g.router.Fits() {
				k, truth := f.Constants, g.truth[i]
				if !f.Calibrated || !near(k.TokenMicros, truth.E, 0.2) || !near(k.StepMicros, truth.A, 0.2) {
					t.Errorf("%s, seed %d, worker %d: e is %.2f of the truth, a %.2f: %+v", preset, seed+1, i, k.TokenMicros/truth.E, k.StepMicros/truth.A, f)
				}
			}
		}
	}
}

// Learning must cost next to nothing: over the first 500 requests, those that
// came while nothing was known included, nearly as many get their first token
// in time as from a router that knows the class's constants.
func TestLearningChoosesNearlyAsWellAsKnowing(t *testing.T) {
	const objectiveMicros = 1e6
	inTime := func(g *ground) float64 {
		n := 0
		for _, r := range g.done {
			if r.actual <= objectiveMicros {
				n++
			}
		}
		return float64(n) / float64(len(g.done))
	}
	var learned, knowing float64
	for seed := range uint64(2) {
		cfg := groundConfig{seed: seed + 1, workers: 8, preset: "llama3-70b-h100-tp4", requests: 500, rate: 1.6}
		g := newGround(t, cfg)
		g.play()
		cfg.class, cfg.config.Fixed = told, true
		k := newGround(t, cfg)
		k.play()
		t.Logf("seed %d: in time %.3f of those who know, %.3f of %.3f; mean TTFT %.0f and %.0f ms", seed+1, inTime(g)/inTime(k), inTime(g),
			inTime(k), g.meanTTFT(0)/1e3, k.meanTTFT(0)/1e3)
		learned, knowing = learned+inTime(g), knowing+inTime(k)
	}
	if learned < 0.95*knowing {
		t.Errorf("%.3f of what a router in the know gets in time", learned/knowing)
	}
}

// A worker that becomes three times slower is known as such after tens of its
// samples, and its neighbours don't suffer.
func TestSlowedWorkerIsFoundOut(t *testing.T) {
	g := newGround(t, groundConfig{seed: 5, workers: 4, preset: "llama3-70b-h100-tp4", requests: 500, rate: 0.7, slower: map[int]float64{250: 3}})
	g.play()
	for i, f := range g.router.Fits() {
		truth, alarms := g.truth[i], 0
		if i == 0 {
			truth.E, truth.A, alarms = 3*truth.E, 3*truth.A, 1
		}
		if !near(f.Constants.TokenMicros, truth.E, 0.25) || !near(f.Constants.StepMicros, truth.A, 0.25) || f.Alarms < alarms || f.Alarms > 3*alarms {
			t.Errorf("worker %d: %+v, truth %+v", i, f, truth)
		}
	}
}

// Explanations say what the constants rest on.
func TestExplanationsShowTheFit(t *testing.T) {
	h := newHouse(t, Rhizome, 2)
	e, _ := h.Explain(h.decide(t, tokens(t, 0, 500, 1)).ID)
	if f := e.Candidates[0].Fit; f.Calibrated || f.Constants.TokenMicros != cost.Generic().TokenMicros {
		t.Errorf("at first: %+v", f)
	}
	for i := range 20 {
		d := h.decide(t, tokens(t, 0, 500, 2+i))
		h.clock.Advance(20e6)
		h.FirstByte(d)
		h.clock.Advance(100e6)
		h.Done(d, Outcome{Usage: Usage{Known: true, PromptTokens: 500, CachedTokens: 0, CompletionTokens: 20}})
	}
	e, _ = h.Explain(h.decide(t, tokens(t, 0, 500, 99)).ID)
	if f := e.Candidates[0].Fit; !f.Calibrated || f.OfClass < 20 || f.Constants.StepMicros >= cost.Generic().StepMicros || f.MeanError <= 0 {
		t.Errorf("after 20 requests: %+v", f)
	}
}

func TestFixedConstantsStay(t *testing.T) {
	g := newGround(t, groundConfig{seed: 1, workers: 2, preset: "llama3-8b-h100", requests: 60, rate: 1, class: told, config: Config{Fixed: true}})
	g.play()
	class, _ := groundTruth(g.cfg)
	for _, f := range g.router.Fits() {
		if !f.Fixed || f.Samples != 0 || f.Constants.TokenMicros != class.E {
			t.Errorf("%+v", f)
		}
	}
}

// What one process learned serves the next one from its first request.
func TestFitSurvivesTheProcess(t *testing.T) {
	cfg := groundConfig{seed: 3, workers: 4, preset: "llama3-70b-h100-tp4", requests: 400, rate: 1}
	before := newGround(t, cfg)
	before.play()
	cfg.requests, cfg.config.Fits = 60, before.router.FitStates()
	after := newGround(t, cfg)
	after.play()
	if e := after.errors(0, 60, 0.5); e[0] > 0.2 {
		t.Errorf("the first 60 predictions are off by %.3f in the median", e[0])
	}
	if f := after.router.Fits()[0]; !f.Calibrated || f.OfClass < before.router.Fits()[0].OfClass {
		t.Errorf("%+v", f)
	}
}

func TestFitMetrics(t *testing.T) {
	g := newGround(t, groundConfig{seed: 1, workers: 2, preset: "llama3-8b-h100", requests: 80, rate: 1})
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(g.router.Collector())
	g.play()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]float64)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			got[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	truth, _ := groundTruth(g.cfg)
	if e := got["rhizome_route_fit_constant_micros token vllm m generic"]; !near(e, truth.E, 0.2) {
		t.Errorf("e is shown as %v, truth %v, among %v", e, truth.E, got)
	}
	if n := got["rhizome_route_fit_samples_total vllm m generic"]; n < 80 {
		t.Errorf("%v samples are shown", n)
	}
	if p50, p99 := got["rhizome_route_ttft_error_ratio vllm m generic 0.5"], got["rhizome_route_ttft_error_ratio vllm m generic 0.99"]; p50 <= 0 || p99 < p50 {
		t.Errorf("errors are shown as %v and %v", p50, p99)
	}
}

// Pricing a candidate costs no memory: a decision's allocations don't grow with
// the fleet but for the scratch of the match.
func TestPricingAllocatesNothing(t *testing.T) {
	h := newHouse(t, Rhizome, 4)
	p := tokens(t, 2000, 100, 1)
	for i := range 30 {
		h.finish(h.decide(t, tokens(t, 0, 500, i)), 1e7)
	}
	hits := h.matched(h.members, p)
	z := h.size(&Query{Prompt: p}, deepest(hits))
	request := cost.Request{PromptTokens: 2100, OutputTokens: 100, Choices: 1}
	h.cands = make([]candidate, 0, len(h.members))
	if n := testing.AllocsPerRun(100, func() {
		h.cands = h.cands[:0]
		for i, m := range h.members {
			h.cands = append(h.cands, candidate{member: m})
			h.price(h.clock.Now(), &h.cands[i], &hits[i], &z, p, request)
		}
	}); n != 0 {
		t.Errorf("%v allocations for %d candidates", n, len(h.members))
	}
}

// Where the engine tells no bandwidth, the time to load a token from the CPU
// tier shows in first tokens.
func TestLinkIsLearnedFromFirstTokens(t *testing.T) {
	g := newGround(t, groundConfig{seed: 2, workers: 3, preset: "llama3-70b-h100-tp4", requests: 600, rate: 0.5, smallHBM: true})
	g.play()
	want := 327680 / 12e3 // µs a token
	for i, f := range g.router.Fits() {
		if got := f.Constants.LoadTokenMicros[kv.CPU]; !near(got, want, 0.4) {
			t.Errorf("worker %d: %.1f µs a token from the CPU tier, truth %.1f", i, got, want)
		}
	}
}

// Responses that show nothing before their end teach as well, if more slowly,
// and so do the engines' own counters.
func TestFitWithoutStreams(t *testing.T) {
	for _, scraped := range []bool{false, true} {
		g := newGround(t, groundConfig{seed: 4, workers: 6, preset: "llama3-70b-h100-tp4", requests: 700, rate: 0.7, silent: true, scraped: scraped})
		g.play()
		e := g.errors(500, 700, 0.5, 0.9)
		t.Logf("scraped %v: TTFT off by %.3f in the median, %.3f at p90", scraped, e[0], e[1])
		if e[0] > 0.2 {
			t.Errorf("scraped %v: predicted TTFT is off by %.3f in the median", scraped, e[0])
		}
		for i, f := range g.router.Fits() {
			k, truth := f.Constants, g.truth[i]
			if !f.Calibrated || !near(k.TokenMicros, truth.E, 0.25) || !near(k.StepMicros, truth.A, 0.25) {
				t.Errorf("scraped %v, worker %d: e is %.2f of the truth, a %.2f: %+v", scraped, i, k.TokenMicros/truth.E, k.StepMicros/truth.A, f)
			}
		}
	}
}

// SGLang lets decodes wait for prompts; knowing that, the fit is as good.
func TestFitOfPrefillFirst(t *testing.T) {
	g := newGround(t, groundConfig{seed: 6, workers: 6, preset: "llama3-70b-h100-tp4", requests: 700, rate: 1, schedule: model.PrefillFirst})
	g.play()
	e := g.errors(500, 700, 0.5, 0.9)
	t.Logf("TTFT off by %.3f in the median, %.3f at p90", e[0], e[1])
	if e[0] > 0.15 {
		t.Errorf("predicted TTFT is off by %.3f in the median", e[0])
	}
	for i, f := range g.router.Fits() {
		k, truth := f.Constants, g.truth[i]
		if f.Class.Engine != engine.SGLang || !near(k.TokenMicros, truth.E, 0.2) || !near(k.StepMicros, truth.A, 0.2) {
			t.Errorf("worker %d: e is %.2f of the truth, a %.2f: %+v", i, k.TokenMicros/truth.E, k.StepMicros/truth.A, f)
		}
	}
}

// Where half of what workers do is others', their share of the batch and of the
// prefills must not be taken for slowness.
func TestFitBesideOthers(t *testing.T) {
	g := newGround(t, groundConfig{seed: 7, workers: 6, preset: "llama3-70b-h100-tp4", requests: 1400, rate: 1, foreign: true, scraped: true})
	g.play()
	e := g.errors(400, 700, 0.5)
	t.Logf("TTFT off by %.3f in the median", e[0])
	if e[0] > 0.25 {
		t.Errorf("predicted TTFT is off by %.3f in the median", e[0])
	}
	for i, f := range g.router.Fits() {
		k, truth := f.Constants, g.truth[i]
		t.Logf("worker %d, %d samples: e is %.2f of the truth, a %.2f", i, f.Samples, k.TokenMicros/truth.E, k.StepMicros/truth.A)
		if f.Samples >= 50 && (!near(k.TokenMicros, truth.E, 0.3) || !near(k.StepMicros, truth.A, 0.3)) {
			t.Errorf("worker %d: e is %.2f of the truth, a %.2f: %+v", i, k.TokenMicros/truth.E, k.StepMicros/truth.A, f)
		}
	}
}
