package sim

import (
	"math"
	"testing"
	"time"

	"github.com/rhizome-router/rhizome/engine/model"
	"github.com/rhizome-router/rhizome/sim/policy"
	"github.com/rhizome-router/rhizome/workload"
)

// small returns a scenario that plays in a blink.
func small() Scenario {
	sc := Default()
	sc.Name = "small"
	sc.Workload.Limit = 60
	sc.Workload.Speed = 4
	sc.Fleet.Workers = 3
	return sc
}

// build makes a world of a plan for a policy by name.
func build(t testing.TB, sc *Scenario, column Column, seed uint64, plan *workload.Plan, name string) *world {
	t.Helper()
	ps, err := ParsePolicies(name)
	if err != nil {
		t.Fatal(err)
	}
	w, err := newWorld(sc, column, seed, plan, &ps[0], false)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// lone is a plan of requests so far apart that none meets another.
func lone(prompts []int, answer int) *workload.Plan {
	p := &workload.Plan{Name: "lone"}
	for i, n := range prompts {
		p.Jobs = append(p.Jobs, workload.Job{Session: i, At: time.Duration(i) * time.Hour,
			Prompt: []workload.Span{{ID: uint64(i + 1), Tokens: n}}, Answer: workload.Span{ID: uint64(1000 + i), Tokens: answer}})
	}
	return p
}

// A request alone takes what the formula of its worker says, and the ways
// there and back: nothing in between adds or loses time.
func TestLoneRequestTakesWhatTheFormulaSays(t *testing.T) {
	sc := small()
	plan := lone([]int{1, 500, 2048, 5000, 30_000}, 40)
	w := build(t, &sc, Learned, 1, plan, "round-robin")
	for _, k := range w.workers {
		c := w.engineConfig(k)
		c.Noise, c.SetupNoise = nil, nil
		var err error
		if k.engine, err = model.New(c); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.play(); err != nil {
		t.Fatal(err)
	}
	for i := range plan.Jobs {
		s, prompt := &w.record.samples[i], plan.Jobs[i].PromptTokens()
		timing := w.nature.timing(w.flights[i].worker.n)
		engine := 0.0
		for at := 0; at < prompt; at += model.DefaultBudgetTokens {
			chunk := min(model.DefaultBudgetTokens, prompt-at)
			engine += timing.Iteration(model.Load{PrefillTokens: chunk, PrefillPairs: float64(chunk) * (float64(at) + float64(chunk)/2)})
		}
		way := s.ttft - engine
		least := w.nature.overheadMicros + w.nature.tokeniseMicros*float64(prompt) + w.nature.responseMicros
		if way < least-1 || way > least+20*requestJitterMicros {
			t.Errorf("prompt of %d: TTFT %.0f µs is %.0f more than the engine's %.0f, want the way's %.0f and some jitter", prompt, s.ttft, way, engine, least)
		}
		decode := timing.Decodes(model.Load{Decoding: 1, KVTokens: int64(prompt)}, 39)
		if got := s.e2e - s.ttft; math.Abs(got-decode) > 1 {
			t.Errorf("prompt of %d: 39 tokens took %.1f µs, the formula says %.1f", prompt, got, decode)
		}
	}
}

// One worker under Poisson arrivals of equal work is an M/D/1 queue, whatever
// stands between the client and the engine.
func TestQueueOfEqualWorkIsMD1(t *testing.T) {
	const n, rho = 15_000, 0.6
	sc := small()
	sc.Fleet.Workers, sc.Fleet.CPUTimesHBM = 1, 0
	sc.Network.Scrape = time.Hour
	w := build(t, &sc, Learned, 1, &workload.Plan{}, "round-robin")
	service := w.nature.timing(0).Iteration(model.Load{PrefillTokens: model.DefaultBudgetTokens, PrefillPairs: 2048 * 1024})
	plan := &workload.Plan{Name: "md1"}
	at := 0.0
	for i := range n {
		// Arrivals by inverse transform of a number that only the index decides.
		u := (float64(draw(7, "md1", uint64(i))>>11) + 0.5) / (1 << 53)
		at += -math.Log(u) * service / rho
		plan.Jobs = append(plan.Jobs, workload.Job{Session: i, At: time.Duration(at * 1e3),
			Prompt: []workload.Span{{ID: uint64(i + 1), Tokens: model.DefaultBudgetTokens}}, Answer: workload.Span{ID: uint64(n + i), Tokens: 1}})
	}
	w = build(t, &sc, Learned, 1, plan, "round-robin")
	c := w.engineConfig(w.workers[0])
	c.Noise = nil
	var err error
	if w.workers[0].engine, err = model.New(c); err != nil {
		t.Fatal(err)
	}
	if err := w.play(); err != nil {
		t.Fatal(err)
	}
	wait := 0.0
	way := w.nature.overheadMicros + w.nature.tokeniseMicros*model.DefaultBudgetTokens + w.nature.responseMicros + requestJitterMicros
	for i := range w.record.samples {
		wait += (w.record.samples[i].ttft - service - way) / n
	}
	want := rho * service / (2 * (1 - rho))
	t.Logf("mean wait %.0f µs, M/D/1 says %.0f", wait, want)
	if math.Abs(wait/want-1) > 0.03 {
		t.Errorf("mean wait %.0f µs, M/D/1 says %.0f", wait, want)
	}
}

// While a run goes on, no engine loses or invents a block, and at the end
// nothing is in flight anywhere.
func TestNothingIsLostOrInvented(t *testing.T) {
	sc := small()
	sc.Fleet.PoolTokens = 60_000 // so that blocks are evicted and requests preempted
	sc.Faults = []Fault{
		{Kind: Down, Workers: []int{1}, From: 5 * time.Second, Until: 12 * time.Second},
		{Kind: Slow, Workers: []int{0}, From: 3 * time.Second, Factor: 2},
		{Kind: Rho, Factor: 0.8, Period: 4 * time.Second, Until: 30 * time.Second},
	}
	sc.Network.EventLoss, sc.Network.EventDelay = 0.05, 100*time.Millisecond
	plan, err := sc.plan(1, nil)
	if err != nil {
		t.Fatal(err)
	}
	w := build(t, &sc, Learned, 1, plan, Ours)
	checks := 0
	var check func(now float64)
	check = func(now float64) {
		checks++
		for _, k := range w.workers {
			if err := k.engine.Check(); err != nil {
				t.Fatalf("worker %d at %.3f s: %v", k.n, now/1e6, err)
			}
		}
		w.schedule(now+50e3, check)
	}
	w.schedule(0, check)
	if err := w.play(); err != nil {
		t.Fatal(err)
	}
	if checks < 100 {
		t.Errorf("checked only %d times", checks)
	}
	p := w.replicas[0].router.(*product)
	for i, m := range p.members {
		if n := m.Ledger.InFlight(); n != 0 {
			t.Errorf("%d requests are still booked on worker %d", n, i)
		}
		if s := w.workers[i].engine.Stats(); s.Running+s.Waiting != 0 {
			t.Errorf("worker %d still has %d running and %d waiting requests", i, s.Running, s.Waiting)
		}
	}
	if len(p.live) != 0 {
		t.Errorf("%d decisions never ended", len(p.live))
	}
	failed := 0
	for i := range w.record.samples {
		if !w.record.samples[i].ended {
			t.Errorf("request %d never ended", i)
		}
		if w.record.samples[i].failed {
			failed++
		}
	}
	if failed == 0 || failed > len(w.record.samples)/2 {
		t.Errorf("%d of %d requests failed on a worker that died", failed, len(w.record.samples))
	}
}

// What a router is told of the caches must lead it to the truth: when all
// events have arrived, the index knows exactly what the engines hold.
func TestTheIndexKnowsWhatTheEnginesHold(t *testing.T) {
	sc := small()
	sc.Network.EventLoss = 0.2
	plan, err := sc.plan(1, nil)
	if err != nil {
		t.Fatal(err)
	}
	w := build(t, &sc, Learned, 1, plan, Ours)
	if err := w.play(); err != nil {
		t.Fatal(err)
	}
	for now, until := float64(w.clock.Now())/1e3, float64(w.clock.Now())/1e3+2e6; now < until; {
		e, _ := w.agenda.take()
		w.clock.Advance(w.instant(e.at).Sub(w.clock.Now()))
		e.do(e.at)
		now = e.at
	}
	for i, in := range w.replicas[0].router.(*product).inlets {
		c := in.Member.Cache()
		s := w.workers[i].engine.Stats()
		if want := s.HBM.CachedBlocks * sc.BlockTokens; c.HeldTokens[0] != want {
			t.Errorf("worker %d: the router knows of %d tokens in HBM, the engine holds %d", i, c.HeldTokens[0], want)
		}
		if want := s.Lower[0].CachedBlocks * sc.BlockTokens; c.HeldTokens[1] != want {
			t.Errorf("worker %d: the router knows of %d tokens in the CPU tier, the engine holds %d", i, c.HeldTokens[1], want)
		}
	}
}

var _ policy.Router = (*product)(nil)
