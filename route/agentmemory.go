package route

import (
	"math"
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/cost"
	"github.com/rhizome-router/rhizome/kv"
)

const (
	// maxWorkflows bounds each of the two generations of workflows remembered,
	// maxTools those of tools.
	maxWorkflows = 50_000
	maxTools     = 2048
	// maxPaused bounds how many workflows are waited for.
	maxPaused = 2 * maxWorkflows
	// gaveUp is the pause after which a workflow counts as over: few caches last
	// as long.
	gaveUp = time.Hour
	// stepMemory is over how many steps the mean duration of one is taken.
	stepMemory = 200.0
)

// agents remembers the workflows of agents: the last step of each, and how long
// after a step with which tools the next one comes. It only ever says how likely
// and how soon a workflow returns, never what a worker holds. The router's lock
// guards it.
type agents struct {
	recent, older map[workflowKey]*workflow
	tools, lesser map[toolKey]*pauses // two generations too
	all           pauses
	paused        []*paused // in order of the steps' ends
	steps         float64
	stepSeconds   float64 // mean from a step's decision to its end
}

type workflowKey struct{ model, tenant, name string }

// toolKey names a tool, or the kind of step where no tools are named, of one
// tenant: others' tools of that name may be quite different ones.
type toolKey struct {
	tenant, name string
	step         bool
}

// workflow is what is known of one workflow.
type workflow struct {
	begun         int       // steps placed
	inFlight      int       // of them
	step          string    // the last one's name
	target        kv.Target // where it went
	contextTokens float64   // prompt and output of the step that ended last
	pause         *paused   // since then; nil while a step runs
}

// paused is a workflow between two steps.
type paused struct {
	of    *workflow // nil once it is back
	since clock.Instant
	tools []toolKey
}

func newAgents() *agents {
	return &agents{recent: make(map[workflowKey]*workflow), tools: make(map[toolKey]*pauses)}
}

func keyOfWorkflow(q *Query) workflowKey {
	return workflowKey{q.Prompt.Model, q.Tenant, q.Agent.Workflow}
}

// find returns what is known of q's workflow; nil when nothing is.
func (a *agents) find(q *Query) *workflow {
	key := keyOfWorkflow(q)
	if w := a.recent[key]; w != nil {
		return w
	}
	return a.older[key]
}

// toolsOf returns what the pause after q's step depends on.
func toolsOf(q *Query) []toolKey {
	var keys []toolKey
	for _, name := range q.Agent.ExpectedTools {
		keys = append(keys, toolKey{q.Tenant, name, false})
	}
	if keys == nil && q.Agent.Step != "" {
		keys = []toolKey{{q.Tenant, q.Agent.Step, true}}
	}
	return keys
}

// begin records that a step of q's workflow, which came at arrived, was placed;
// nil where q has no agent context.
func (a *agents) begin(now, arrived clock.Instant, q *Query, to kv.Target) *workflow {
	a.giveUp(now)
	if q.Agent.Workflow == "" {
		return nil
	}
	w := a.find(q)
	if w == nil {
		w = new(workflow)
	}
	if len(a.recent) >= maxWorkflows {
		a.older, a.recent = a.recent, make(map[workflowKey]*workflow)
	}
	a.recent[keyOfWorkflow(q)] = w
	if p := w.pause; p != nil {
		a.observe(p, func(c *pauses) { c.add(arrived.Sub(p.since)) })
	}
	w.begun++
	w.inFlight++
	w.step, w.target = q.Agent.Step, to
	return w
}

// end records that a step of w ended; with context where it did so well, and the
// workflow may come back with that. tools are those of the step.
func (a *agents) end(now clock.Instant, w *workflow, took time.Duration, contextTokens float64, tools []toolKey) {
	w.inFlight--
	if contextTokens <= 0 {
		return
	}
	w.contextTokens = contextTokens
	a.steps = min(a.steps+1, stepMemory)
	a.stepSeconds += (took.Seconds() - a.stepSeconds) / a.steps
	if w.inFlight > 0 || len(a.paused) >= maxPaused {
		return
	}
	w.pause = &paused{w, now, tools}
	a.paused = append(a.paused, w.pause)
}

// observe adds what became of a pause to the curves that it is a sample of, and
// ends it.
func (a *agents) observe(p *paused, add func(*pauses)) {
	p.of.pause, p.of = nil, nil
	add(&a.all)
	for _, key := range p.tools {
		c := a.curve(key)
		if c == nil {
			c = new(pauses)
		}
		if len(a.tools) >= maxTools {
			a.lesser, a.tools = a.tools, make(map[toolKey]*pauses)
		}
		a.tools[key] = c
		add(c)
	}
}

func (a *agents) curve(key toolKey) *pauses {
	if c := a.tools[key]; c != nil {
		return c
	}
	return a.lesser[key]
}

// giveUp counts workflows as over that have not come back for long.
func (a *agents) giveUp(now clock.Instant) {
	n := 0
	for _, p := range a.paused {
		if p.of != nil && now.Sub(p.since) < gaveUp {
			break
		}
		if p.of != nil {
			a.observe(p, (*pauses).addGone)
		}
		n++
	}
	a.paused = a.paused[n:]
}

// expect says whether and when q's workflow comes back to a context of so many
// tokens. Without agent context it says nothing. With s steps to go before the
// agent runs again, it must come back s+1 times, with s steps of others between.
func (a *agents) expect(q *Query, contextTokens float64) cost.Return {
	if q.Agent.Workflow == "" {
		return cost.Return{}
	}
	pooled := a.all.outlook(outlook{coldReturn, coldPauseSeconds}, coldPauses)
	o, keys := pooled, toolsOf(q)
	if len(keys) > 0 {
		o = outlook{}
		for _, key := range keys {
			one := pooled
			if c := a.curve(key); c != nil {
				one = c.outlook(pooled, pauseShrinkage)
			}
			o.returns += one.returns / float64(len(keys))
			o.pauseSeconds += one.pauseSeconds / float64(len(keys))
		}
	}
	between := float64(max(0, q.Agent.StepsToExecution))
	return cost.Return{
		Probability:   math.Pow(o.returns, between+1),
		AfterMicros:   1e6 * ((between+1)*o.pauseSeconds + between*a.stepSeconds),
		ContextTokens: contextTokens,
	}
}

// AgentState is what was known of a request's workflow when it was placed.
type AgentState struct {
	Workflow string `json:"workflow"`
	Step     string `json:"step,omitempty"`
	// Steps is how many steps of it were placed before, the last of them, if any,
	// on LastWorker.
	Steps      int    `json:"steps"`
	LastWorker string `json:"last_worker,omitempty"`
	// LastContextTokens is what the step before left behind, prompt and output.
	LastContextTokens int `json:"last_context_tokens,omitempty"`
	// ReturnProbability is that of another step, expected ReturnAfterMillis after
	// this one's end.
	ReturnProbability float64 `json:"return_probability"`
	ReturnAfterMillis float64 `json:"return_after_ms"`
}

// state is what an explanation tells of q's workflow; nil where it has none.
func (a *agents) state(q *Query, back cost.Return) *AgentState {
	if q.Agent.Workflow == "" {
		return nil
	}
	s := &AgentState{Workflow: q.Agent.Workflow, Step: q.Agent.Step, ReturnProbability: back.Probability, ReturnAfterMillis: back.AfterMicros / 1e3}
	if w := a.find(q); w != nil {
		s.Steps, s.LastWorker, s.LastContextTokens = w.begun, w.target.String(), int(w.contextTokens)
	}
	return s
}

// endStep records that d's step of a workflow ended.
func (r *Router) endStep(now clock.Instant, d *Decision, o *Outcome) {
	if d.workflow == nil {
		return
	}
	context := 0.0
	if o.Result == Completed {
		b := &d.booking
		context = b.PromptTokens + b.OutputTokens
		if u := &o.Usage; u.Known && u.PromptTokens > 0 {
			context = float64(u.PromptTokens + u.CompletionTokens/max(1, d.query.N*d.query.Prompts))
		}
	}
	r.agents.end(now, d.workflow, now.Sub(d.bookedAt), context, d.tools)
}
