package route

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/cost"
	"github.com/rhizome-router/rhizome/kv"
	"github.com/rhizome-router/rhizome/prompt"
	"pgregory.net/rapid"
)

func stepOf(workflow string, tools ...string) *Query {
	return &Query{Prompt: &prompt.Request{Model: "m"}, Agent: Agent{Workflow: workflow, ExpectedTools: tools, StepsToExecution: -1}}
}

// run plays steps of a workflow, with a pause after each.
func (a *agents) run(now *clock.Instant, q *Query, steps int, pause time.Duration) {
	for range steps {
		w := a.begin(*now, *now, q, kv.Target{})
		*now = now.Add(time.Second)
		a.end(*now, w, time.Second, 1000, toolsOf(q))
		*now = now.Add(pause)
	}
}

// Without agent context nothing is expected; with it what was seen of the tool
// is, and of a tool never seen what was seen of all.
func TestAgentsReturn(t *testing.T) {
	a, now := newAgents(), clock.Instant(0)
	if back := a.expect(&Query{Prompt: &prompt.Request{Model: "m"}, Agent: Agent{Step: "s", ExpectedTools: []string{"t"}}}, 5000); back != (cost.Return{}) {
		t.Errorf("without a workflow: %+v", back)
	}
	cold := a.expect(stepOf("w", "fast"), 5000)
	if cold.Probability != coldReturn || cold.AfterMicros != coldPauseSeconds*1e6 || cold.ContextTokens != 5000 {
		t.Errorf("cold: %+v", cold)
	}
	for i := range 20 {
		a.run(&now, stepOf(fmt.Sprint("f", i), "fast"), 50, 100*time.Millisecond)
		a.run(&now, stepOf(fmt.Sprint("s", i), "slow"), 5, 5*time.Minute)
	}
	a.run(&now, stepOf("end"), 1, 2*gaveUp)
	a.giveUp(now) // those that ended, 40 of them, count as over
	fast, slow, other := a.expect(stepOf("w", "fast"), 1), a.expect(stepOf("w", "slow"), 1), a.expect(stepOf("w", "new"), 1)
	if fast.Probability < 0.95 || slow.Probability > fast.Probability || slow.Probability < 0.6 {
		t.Errorf("returns: fast %v, slow %v", fast.Probability, slow.Probability)
	}
	if fast.AfterMicros > 6e6 || slow.AfterMicros < 1e8 || slow.AfterMicros > 5e8 {
		t.Errorf("after: fast %v, slow %v µs", fast.AfterMicros, slow.AfterMicros)
	}
	if other.AfterMicros < fast.AfterMicros || other.AfterMicros > slow.AfterMicros {
		t.Errorf("a tool never seen: %+v", other)
	}
	both := a.expect(stepOf("w", "fast", "slow"), 1)
	if want := (fast.AfterMicros + slow.AfterMicros) / 2; math.Abs(both.AfterMicros-want) > 1 {
		t.Errorf("either tool: %v, want %v", both.AfterMicros, want)
	}
	if foreign := a.expect(&Query{Tenant: "t", Prompt: &prompt.Request{Model: "m"}, Agent: Agent{Workflow: "w", ExpectedTools: []string{"slow"}}}, 1); foreign != other {
		t.Errorf("another tenant's tool of that name: %+v", foreign)
	}
}

// The more steps there are to go, the less likely and the later is the return.
func TestAgentsStepsToExecution(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, now := newAgents(), clock.Instant(0)
		for i := range rapid.IntRange(0, 20).Draw(t, "workflows") {
			pause := time.Duration(rapid.IntRange(0, 10_000_000).Draw(t, "ms")) * time.Millisecond
			a.run(&now, stepOf(fmt.Sprint(i), "tool"), rapid.IntRange(1, 5).Draw(t, "steps"), pause)
		}
		q := stepOf("w", "tool")
		before := a.expect(q, 100)
		for ste := range 10 {
			q.Agent.StepsToExecution = ste
			back := a.expect(q, 100)
			if !(back.Probability >= 0 && back.Probability <= before.Probability && back.AfterMicros >= before.AfterMicros) || back.ContextTokens != 100 {
				t.Fatalf("%d steps to go: %+v, before %+v", ste, back, before)
			}
			before = back
		}
	})
}

// However many workflows and tools are named, little is remembered; and pauses
// of workflows that were forgotten still end.
func TestAgentsAreBounded(t *testing.T) {
	a, now := newAgents(), clock.Instant(0)
	for i := range 2*maxPaused + 10 {
		q := stepOf(fmt.Sprint("w", i), fmt.Sprint("t", i))
		w := a.begin(now, now, q, kv.Target{})
		a.end(now, w, time.Second, 1, toolsOf(q))
		if i%7 == 0 {
			a.begin(now, now, q, kv.Target{})
		}
	}
	if n := len(a.recent) + len(a.older); n > 2*maxWorkflows {
		t.Errorf("%d workflows", n)
	}
	if n := len(a.tools) + len(a.lesser); n > 2*maxTools {
		t.Errorf("%d tools", n)
	}
	if len(a.paused) > maxPaused {
		t.Errorf("%d pauses", len(a.paused))
	}
	a.giveUp(now.Add(gaveUp))
	if len(a.paused) != 0 {
		t.Errorf("%d pauses never end", len(a.paused))
	}
	if all := a.all.back + a.all.gone; all <= 0 || all > pauseMemory+1 {
		t.Errorf("a curve of %v steps", all)
	}
}

// What a caller says of its agent changes what is expected of the workflow's
// return, and nothing else that anything costs: above all not what a worker is
// taken to hold.
func TestAgentHintsChangeTheReturnOnly(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		h := newHouse(t, Rhizome, 3)
		h.cfg.Weights.Eviction = 1
		p := tokens(t, 4000, 100, 1)
		for i, m := range h.members {
			h.hold(m, p, 0, rapid.IntRange(0, 250).Draw(rt, fmt.Sprint("held ", i)), kv.HBM)
			if rapid.Bool().Draw(rt, fmt.Sprint("full ", i)) {
				c := m.Cache()
				c.Evicting[kv.HBM], c.HeldTokens[kv.HBM], c.StoredTokens = true, 100_000, 5_000_000
				m.SetCache(c)
			}
		}
		said := Query{ID: "x", Session: "s", Prompt: p, Agent: Agent{
			Workflow: rapid.SampledFrom([]string{"", "w"}).Draw(rt, "workflow"), Step: rapid.SampledFrom([]string{"", "plan"}).Draw(rt, "step"),
			ExpectedTools:    rapid.SampledFrom([][]string{nil, {"bash"}, {"bash", "search"}}).Draw(rt, "tools"),
			StepsToExecution: rapid.IntRange(-1, 5).Draw(rt, "ste")},
			Hints: Hints{Priority: rapid.IntRange(-5, 5).Draw(rt, "priority"), CacheTTL: time.Duration(rapid.IntRange(0, 3600).Draw(rt, "ttl")) * time.Second}}
		with, err := h.Preview(said)
		if err != nil {
			rt.Fatal(err)
		}
		without, _ := h.Preview(Query{ID: "x", Session: "s", Prompt: p})
		plain := make(map[string]Candidate)
		for _, c := range without.Candidates {
			plain[c.Worker] = c
		}
		for _, c := range with.Candidates {
			was := plain[c.Worker]
			if c.HBMTokens != was.HBMTokens || c.LowerTokens != was.LowerTokens || c.Tier != was.Tier || c.Source != was.Source {
				rt.Fatalf("held: %+v, without hints %+v", c, was)
			}
			if said.Agent.Workflow == "" && c.Terms.WorkflowMicros != 0 {
				rt.Fatalf("a workflow term of %v without a workflow", c.Terms.WorkflowMicros)
			}
			c.Terms.WorkflowMicros, was.Terms.WorkflowMicros = 0, 0
			if c.Terms != was.Terms {
				rt.Fatalf("terms %+v, without hints %+v", c.Terms, was.Terms)
			}
		}
	})
}

// A step's explanation tells of the step before, wherever it went.
func TestAgentIsExplained(t *testing.T) {
	h := newHouse(t, Rhizome, 2)
	var last *Decision
	for i := range 3 {
		id := fmt.Sprint("step", i)
		q := Query{ID: id, Prompt: tokens(t, 1000, 16*i, 0), Agent: Agent{Workflow: "w", Step: "plan", StepsToExecution: -1}}
		d, err := h.Decide(q)
		if err != nil {
			t.Fatal(err)
		}
		e, _ := h.Explain(id)
		if e.Agent == nil || e.Agent.Steps != i || e.Agent.ReturnProbability <= 0 || e.Agent.ReturnAfterMillis <= 0 {
			t.Fatalf("%s: %+v", id, e.Agent)
		}
		if i > 0 && (e.Agent.LastWorker != last.Target.String() || e.Agent.LastContextTokens != 1000+16*(i-1)+7 || d.Target != last.Target) {
			t.Errorf("%s: %+v", id, e.Agent)
		}
		h.FirstByte(d)
		h.Done(d, Outcome{Result: Completed, Usage: Usage{Known: true, PromptTokens: 1000 + 16*i, CachedTokens: -1, CompletionTokens: 7}})
		h.clock.Advance(500 * time.Millisecond)
		last = d
	}
	if h.agents.all.back != 2 {
		t.Errorf("%v pauses were learned", h.agents.all.back)
	}
	// One that fails is tried elsewhere: no step of its own, and no pause.
	d, _ := h.Decide(Query{ID: "x", Prompt: tokens(t, 100, 0, 0), Agent: Agent{Workflow: "v"}})
	h.Done(d, Outcome{Result: Failed, Cause: 1})
	if w := h.agents.find(stepOf("v")); w == nil || w.pause != nil || w.inFlight != 0 {
		t.Errorf("after a failure: %+v", w)
	}
}

// An expected output is held to what is usual for the tenant, once that is
// known.
func TestExpectedOutputIsClamped(t *testing.T) {
	h := newHouse(t, Rhizome, 1)
	expects := func(tenant string, said int) int {
		e, err := h.Preview(Query{Tenant: tenant, Prompt: tokens(t, 100, 0, 0), ExpectedOutputTokens: said})
		if err != nil {
			t.Fatal(err)
		}
		return e.OutputTokens
	}
	for i := range 25 {
		if got := expects("a", 90); got != 90 {
			t.Fatalf("after %d answers 90 counts as %d", i, got)
		}
		d, err := h.Decide(Query{Tenant: "a", Prompt: tokens(t, 100, 0, 0)})
		if err != nil {
			t.Fatal(err)
		}
		h.Done(d, Outcome{Result: Completed, Usage: Usage{Known: true, PromptTokens: 100, CachedTokens: -1, CompletionTokens: 20 + i/3}})
	}
	if high, low, inside := expects("a", 90), expects("a", 1), expects("a", 24); high < 24 || high > 32 || low < 18 || low > 23 || inside != 24 {
		t.Errorf("90 counts as %d, 1 as %d, 24 as %d", high, low, inside)
	}
	if got := expects("b", 90); got != 90 {
		t.Errorf("another tenant's 90 counts as %d", got)
	}
}

// The article's cost rewards workers that hold the harness of an expected tool:
// what the prompts that expected it had in common, all of it, in HBM.
func TestArticleExpectsHits(t *testing.T) {
	h := newHouse(t, ArticleCost, 3)
	h.cfg.Article.ExpectedMicros = 1000
	say := func(tenant string, p *prompt.Request, tools ...string) *Decision {
		h.ids++
		d, err := h.Decide(Query{ID: fmt.Sprint(h.ids), Tenant: tenant, Prompt: p, Agent: Agent{Workflow: "w", ExpectedTools: tools}})
		if err != nil {
			t.Fatal(err)
		}
		h.Done(d, Outcome{Result: Cancelled})
		return d
	}
	// Two prompts that expect bash begin with the same 320 tokens.
	say("", tokens(t, 320, 500, 1), "bash")
	say("", tokens(t, 320, 500, 2), "bash")
	p := tokens(t, 320, 0, 0)
	h.hold(h.members[0], p, 0, 20, kv.HBM)
	h.hold(h.members[1], p, 0, 19, kv.HBM)
	h.hold(h.members[2], p, 0, 20, kv.CPU)
	for _, c := range []struct {
		tenant string
		tools  []string
		want   float64 // share at the first worker
	}{{"", []string{"bash"}, 1}, {"", []string{"bash", "other"}, 0.5}, {"", nil, 0}, {"t", []string{"bash"}, 0}} {
		e, err := h.Preview(Query{Tenant: c.tenant, Prompt: tokens(t, 0, 64, 9), Agent: Agent{Workflow: "w", ExpectedTools: c.tools}})
		if err != nil {
			t.Fatal(err)
		}
		for _, got := range e.Candidates {
			want := 0.0
			if got.Worker == h.members[0].Worker.Spec.URL {
				want = -c.want * h.cfg.Article.ExpectedMicros
			}
			if got.Article.ExpectedMicros != want {
				t.Errorf("%q expects %v: %s gets %v, want %v", c.tenant, c.tools, got.Worker, got.Article.ExpectedMicros, want)
			}
		}
	}
}
