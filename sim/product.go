package sim

import (
	"fmt"
	"log/slog"
	"strconv"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/cost"
	"github.com/rhizome-router/rhizome/engine"
	"github.com/rhizome-router/rhizome/fleet"
	"github.com/rhizome-router/rhizome/index"
	"github.com/rhizome-router/rhizome/kv"
	"github.com/rhizome-router/rhizome/mesh"
	"github.com/rhizome-router/rhizome/prompt"
	"github.com/rhizome-router/rhizome/route"
	"github.com/rhizome-router/rhizome/sim/policy"
)

// product is one replica of the real thing: the packages fleet, index, crdt,
// prompt, cost and route as they ship, with an observation layer in place of a
// network.
type product struct {
	router  *route.Router
	fleet   *fleet.Fleet
	index   *index.Index
	members []*fleet.Member
	inlets  []*fleet.Inlet
	numbers map[kv.Target]int // worker by target
	live    map[uint64]*route.Decision
	tokens  []uint32 // as many as any prompt has; their values are never read
	ids     engine.Identity
	terms   *termSums // nil when nobody wants them

	clock *clock.Virtual
}

// productConfig says how the product runs, on what knowledge.
type productConfig struct {
	route.Config
	Class func(worker int) cost.Class // what is assumed of a worker
	Clock *clock.Virtual
	Mesh  *mesh.Node // of a replica among several; else nil
}

// newProduct returns a replica that has heard of its workers and seen nothing.
func newProduct(sc *Scenario, cfg productConfig) (*product, error) {
	p := &product{
		numbers: make(map[kv.Target]int), live: make(map[uint64]*route.Decision), clock: cfg.Clock,
		ids: engine.Identity{Engine: engine.VLLM, Events: "simulated", BlockTokens: sc.BlockTokens},
	}
	if sc.Fleet.Profile == SGLangLoads {
		p.ids.Engine = engine.SGLang
	}
	var specs []engine.Spec
	classes := make(map[string]cost.Class)
	for i := range sc.Fleet.Workers {
		spec, err := engine.Spec{URL: fmt.Sprintf("http://worker-%d:8000", i)}.Canonical()
		if err != nil {
			return nil, fmt.Errorf("simulated worker: %w", err)
		}
		specs = append(specs, spec)
		classes[spec.URL] = cfg.Class(i)
	}
	prefixes := index.New(index.Config{Seed: cfg.Seed})
	sent := index.NewApprox(index.ApproxConfig{Seed: cfg.Seed})
	var err error
	p.index = prefixes
	p.fleet, err = fleet.New(fleet.Config{}, fleet.Deps{Index: prefixes, Approx: sent, Clock: cfg.Clock, Log: slog.New(slog.DiscardHandler), Mesh: cfg.Mesh,
		Heard: func(m *fleet.Member) { p.router.Examine(m) }}, specs,
		func(s engine.Spec) (cost.Class, error) { return classes[s.URL], nil })
	if err != nil {
		return nil, fmt.Errorf("simulated fleet: %w", err)
	}
	for i := range specs {
		in := p.fleet.Admit(i, p.ids, []engine.Model{{ID: modelName}})[0]
		if cfg.Mesh == nil { // else who reads it is to be settled
			in.Feed(engine.FeedEvent{Kind: engine.FeedConnected})
		}
		p.inlets, p.members = append(p.inlets, in), append(p.members, in.Member)
		p.numbers[in.Member.Target] = i
	}
	cfg.Explained = 64
	p.router = route.New(cfg.Config, route.Deps{Fleet: p.fleet, Index: prefixes, Approx: sent, Clock: cfg.Clock, Mesh: cfg.Mesh})
	p.router.SetPeers(sc.Replicas-1, sc.Network.GossipDelay)
	return p, nil
}

// query is r as the router gets it.
func (p *product) query(r *policy.Request) route.Query {
	if n := r.PromptTokens - len(p.tokens); n > 0 {
		p.tokens = append(p.tokens, make([]uint32, n)...)
	}
	q := &prompt.Request{
		Kind: prompt.Completion, Model: modelName, Stream: true, IncludeUsage: true, MaxTokens: r.MaxTokens, N: 1, Prompts: 1,
		Tokens: p.tokens[:r.PromptTokens],
	}
	q.SetTokenKeys(prompt.Form{BlockTokens: r.BlockTokens}, r.Keys)
	q.SetTokenKeys(prompt.Form{BlockTokens: sentBlockTokens}, r.Keys)
	out := route.Query{ID: strconv.FormatUint(r.ID, 10), Prompt: q, Session: r.Session}
	if r.Workflow != "" {
		out.Agent = route.Agent{Workflow: r.Workflow, Step: "call", StepsToExecution: -1}
	}
	return out
}

// Choose implements [policy.Router].
func (p *product) Choose(_ clock.Instant, r *policy.Request) policy.Choice {
	d, err := p.router.Decide(p.query(r))
	if err != nil {
		// The laboratory asks only while a worker is up, and the router knows
		// all of them.
		panic(fmt.Sprintf("sim: the router found no worker: %v", err))
	}
	p.live[r.ID] = d
	p.Placed(r.ID)
	return policy.Choice{Worker: p.numbers[d.Target], CachedTokens: d.PredictedCachedTokens}
}

// sentBlockTokens is the form under which the router remembers what it sent to
// workers without KV events.
const sentBlockTokens = 64

func (p *product) explain(id string) {
	e, ok := p.router.Explain(id)
	if !ok {
		return
	}
	for i := range e.Candidates {
		if e.Candidates[i].Chosen {
			p.terms.add(e.Candidates[i].Terms.Named())
			return
		}
	}
}

// FirstToken implements [policy.Router].
func (p *product) FirstToken(_ clock.Instant, id uint64) {
	if d := p.live[id]; d != nil {
		p.router.FirstByte(d)
	}
}

// Done implements [policy.Router].
func (p *product) Done(_ clock.Instant, id uint64, u policy.Usage) {
	d := p.live[id]
	if d == nil {
		return
	}
	delete(p.live, id)
	o := route.Outcome{Result: route.Completed, Usage: route.Usage{
		Known: true, PromptTokens: u.PromptTokens, CachedTokens: u.CachedTokens, CompletionTokens: u.CompletionTokens}}
	switch {
	case u.Refused:
		o = route.Outcome{Result: route.Busy}
	case u.Failed:
		o = route.Outcome{Result: route.Failed}
	}
	p.router.Done(d, o)
}

// Events implements [policy.Router].
func (p *product) Events(_ clock.Instant, worker int, b *policy.Batch) {
	in := p.inlets[worker]
	if b.Seq == 0 && in.Member.Cache().Batches > 0 {
		in.Feed(engine.FeedEvent{Kind: engine.FeedReset}) // a new life of the worker
	}
	in.Feed(engine.FeedEvent{Kind: engine.FeedBatch, Seq: b.Seq, Ops: b.Ops, Rank: -1})
}

// Scraped implements [policy.Router].
func (p *product) Scraped(now clock.Instant, worker int, t *engine.RankTelemetry) {
	p.inlets[worker].Scraped(now, *t)
}

// Up implements [policy.Router]. A worker that dies loses its cache; what it
// stores after its restart may be told before the news that it is back.
func (p *product) Up(_ clock.Instant, worker int, up bool) {
	in := p.inlets[worker]
	if !in.Member.SetHealthy(up) {
		return
	}
	if up {
		in.Feed(engine.FeedEvent{Kind: engine.FeedConnected})
	} else {
		in.Feed(engine.FeedEvent{Kind: engine.FeedReset})
	}
}
