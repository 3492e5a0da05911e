package route

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/cost"
	"github.com/rhizome-router/rhizome/engine"
	"github.com/rhizome-router/rhizome/engine/model"
	"github.com/rhizome-router/rhizome/fleet"
	"github.com/rhizome-router/rhizome/index"
	"github.com/rhizome-router/rhizome/kv"
	"github.com/rhizome-router/rhizome/prompt"
)

// A ground is the real router over modelled engines in virtual time, whose
// constants it has to find out: they differ from any preset, a little from
// worker to worker, iterations are noisy, batches are padded, and what a client
// sends reaches the engine only after HTTP and a tokeniser.
type ground struct {
	tb        testing.TB
	cfg       groundConfig
	clock     clock.Virtual
	router    *Router
	fleet     *fleet.Fleet
	inlets    []*fleet.Inlet
	seq       []uint64
	scrapedAt float64
	index     *index.Index
	engines   []*model.Worker
	truth     []model.Linear
	timing    []*padded
	pending   []arrival // on their way to an engine, soonest first
	flights   map[uint64]*groundFlight

	done []groundResult // in order of first tokens
}

type groundConfig struct {
	seed     uint64
	workers  int
	preset   string
	requests int
	rate     float64 // requests a second and worker
	class    func(truth model.Linear) cost.Class
	slower   map[int]float64 // from request n on worker 0 is so many times slower
	silent   bool            // nothing streams
	foreign  bool            // every other request comes from elsewhere
	scraped  bool            // engines show their counters every second
	smallHBM bool            // HBM is small, so that loads from CPU matter
	schedule model.Schedule
	config   Config
}

const (
	groundBlock  = 64
	httpMicros   = 2500.0 // each way of HTTP and scheduling
	tokenizeEach = 0.6    // µs a prompt token
)

type arrival struct {
	at     float64
	worker int
	r      model.Request
}

type groundFlight struct {
	d      *Decision
	sent   float64
	prompt int
	cached int
	tokens []uint32
}

type groundResult struct {
	worker            int
	predicted, actual float64 // TTFT, µs
	prompt            int
}

// padded is a linear engine whose batches run at the next captured size.
type padded struct {
	model.Linear
	slow float64
}

func pad(l model.Load) model.Load {
	l.Decoding = (l.Decoding + 7) / 8 * 8
	l.PrefillTokens = (l.PrefillTokens + 15) / 16 * 16
	return l
}

func (p *padded) Iteration(l model.Load) float64 { return p.slow * p.Linear.Iteration(pad(l)) }

func (p *padded) Decodes(l model.Load, k int) float64 {
	n := float64(k)
	return p.slow * (n*p.Linear.Iteration(pad(l)) + p.C*float64(l.Decoding)*n*(n-1)/2)
}

func groundTruth(cfg groundConfig) (class model.Linear, workers []model.Linear) {
	preset, err := model.PresetByName(cfg.preset)
	if err != nil {
		panic(err)
	}
	rng := clock.Rand(cfg.seed, "truth")
	vary := func(l model.Linear, spread float64) model.Linear {
		for _, p := range []*float64{&l.A, &l.B, &l.C, &l.E, &l.Q} {
			*p *= math.Exp(spread * rng.NormFloat64())
		}
		return l
	}
	class = vary(preset.Linear, 0.3)
	for range cfg.workers {
		workers = append(workers, vary(class, 0.05))
	}
	return class, workers
}

func newGround(tb testing.TB, cfg groundConfig) *ground {
	tb.Helper()
	g := &ground{tb: tb, cfg: cfg, index: index.New(index.Config{}), flights: make(map[uint64]*groundFlight)}
	must := func(err error) {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
	}
	preset, err := model.PresetByName(cfg.preset)
	must(err)
	truth, each := groundTruth(cfg)
	g.truth = each
	var specs []engine.Spec
	for i := range cfg.workers {
		spec, err := engine.ParseSpec(fmt.Sprintf("http://127.0.0.1:%d,events=tcp://127.0.0.1:%d", 18000+i, 19000+i))
		must(err)
		specs = append(specs, spec)
		noise := clock.Rand(cfg.seed, fmt.Sprint("noise", i))
		timing := &padded{each[i], 1}
		mc := model.Config{Preset: preset, BlockTokens: groundBlock, Timing: timing, Schedule: cfg.schedule,
			Noise: func() float64 { return math.Exp(0.1 * noise.NormFloat64()) }}
		if cfg.smallHBM {
			mc.PoolTokens = 120_000
			mc.Tiers = []model.TierConfig{{Tier: kv.CPU, CapacityTokens: 2_000_000, BytesPerSecond: 12e9}}
		}
		e, err := model.New(mc)
		must(err)
		g.timing, g.engines = append(g.timing, timing), append(g.engines, e)
	}
	approx := index.NewApprox(index.ApproxConfig{MaxEntries: 1 << 10})
	g.fleet, err = fleet.New(fleet.Config{}, fleet.Deps{Index: g.index, Approx: approx, Clock: &g.clock}, specs,
		func(engine.Spec) (cost.Class, error) {
			class := cost.Generic()
			if cfg.class != nil {
				class = cfg.class(truth)
			}
			class.CapacityTokens = float64(preset.PoolTokens)
			if cfg.smallHBM {
				class.CapacityTokens = 120_000
			}
			return class, nil
		})
	must(err)
	kind := engine.VLLM
	if cfg.schedule == model.PrefillFirst {
		kind = engine.SGLang
	}
	for i := range specs {
		in := g.fleet.Admit(i, engine.Identity{Engine: kind, Events: specs[i].Events, BlockTokens: groundBlock}, []engine.Model{{ID: "m"}})[0]
		in.Feed(engine.FeedEvent{Kind: engine.FeedReset})
		in.Feed(engine.FeedEvent{Kind: engine.FeedConnected})
		g.inlets, g.seq = append(g.inlets, in), append(g.seq, 0)
	}
	config := cfg.config
	if config.Policy == "" {
		config.Policy = Rhizome
	}
	config.Weights, config.Seed, config.Explained = cost.DefaultWeights(), cfg.seed, max(16, config.Explained)
	g.router = New(config, Deps{Fleet: g.fleet, Index: g.index, Approx: approx, Clock: &g.clock})
	return g
}

func (g *ground) at(micros float64) {
	g.clock.Advance(max(0, clock.Instant(micros*1e3).Sub(g.clock.Now())))
}

// advance lets one engine's time pass and shows the router what it would see.
func (g *ground) advance(i int, to float64) {
	g.engines[i].Advance(to, func(e model.Event) {
		switch e.Kind {
		case model.FirstToken:
			f := g.flights[e.ID]
			if f == nil {
				return // not ours
			}
			f.cached = e.HBMTokens + e.TierTokens
			g.at(e.At)
			if !g.cfg.silent {
				g.router.FirstByte(f.d)
			}
			g.done = append(g.done, groundResult{i, float64(f.d.PredictedTTFT.Microseconds()), e.At - f.sent, f.prompt})
		case model.Finished:
			f := g.flights[e.ID]
			if f == nil {
				return
			}
			delete(g.flights, e.ID)
			g.at(e.At)
			g.router.Done(f.d, Outcome{Usage: Usage{Known: true, PromptTokens: f.prompt, CachedTokens: f.cached, CompletionTokens: e.Tokens}})
		case model.Stored, model.Removed:
			g.inlets[i].Feed(engine.FeedEvent{Kind: engine.FeedBatch, Seq: g.seq[i], Rank: -1, Ops: []kv.Op{g.op(e)}})
			g.seq[i]++
		}
	})
}

// op says in the feed's words what an engine did to its cache.
func (g *ground) op(e model.Event) kv.Op {
	switch f := g.flights[e.ID]; {
	case e.Kind == model.Removed:
		return kv.Op{Kind: kv.Remove, Tier: e.Tier, Hashes: slices.Clone(e.Blocks)}
	case e.Tier == kv.HBM && f != nil:
		op := kv.Op{Kind: kv.Insert, Tier: kv.HBM, HasParent: e.HasParent, Parent: e.Parent, Root: kv.Root("m", "", ""), BlockTokens: groundBlock}
		for i, h := range e.Blocks {
			at := (e.First + i) * groundBlock
			op.Blocks = append(op.Blocks, kv.Block{Hash: h, Content: kv.ContentOf(f.tokens[at : at+groundBlock])})
		}
		return op
	}
	return kv.Op{Kind: kv.Also, Tier: e.Tier, Hashes: slices.Clone(e.Blocks)}
}

// run lets everything happen that happens up to an instant, in order.
func (g *ground) run(to float64) {
	for {
		next, when := -1, to
		for i, e := range g.engines {
			if at, ok := e.Next(); ok && at <= when {
				next, when = i, at
			}
		}
		if len(g.pending) > 0 && g.pending[0].at <= when {
			a := g.pending[0]
			g.pending = g.pending[1:]
			g.advance(a.worker, a.at)
			if err := g.engines[a.worker].Submit(a.at, a.r); err != nil {
				g.tb.Fatal(err)
			}
			continue
		}
		if next < 0 {
			return
		}
		g.advance(next, when)
	}
}

// talk is a conversation whose turns share what was said before.
type talk struct {
	id     uint64
	tokens int
	// The tokens after the first shared ones, if that is not 0, are those of the
	// conversation with the number tail.
	shared int
	tail   uint64
}

// play sends conversations of growing prompts, some short and some very long.
func (g *ground) play() {
	rng := clock.Rand(g.cfg.seed, "load")
	now := 0.0
	var talks []*talk
	for n := range g.cfg.requests {
		now += rng.ExpFloat64() / (g.cfg.rate * float64(g.cfg.workers)) * 1e6
		for g.cfg.scraped && g.scrapedAt+1e6 < now {
			g.scrapedAt += 1e6
			g.run(g.scrapedAt)
			g.scrape()
		}
		g.run(now)
		g.at(now)
		if by, ok := g.cfg.slower[n]; ok {
			g.timing[0].slow = by
		}
		var t *talk
		if len(talks) > 0 && rng.Float64() < 0.6 {
			t = talks[rng.IntN(len(talks))]
			t.tokens += lognormal(rng, 300, 0.8)
		} else {
			t = &talk{id: uint64(n + 1), tokens: lognormal(rng, 2500, 1.1)}
			talks = append(talks, t)
		}
		if t.tokens > 60_000 {
			talks = slices.DeleteFunc(talks, func(x *talk) bool { return x == t })
		}
		t.tokens = min(t.tokens, 60_000)
		if g.cfg.foreign && n%2 == 1 {
			r := model.Request{ID: uint64(n), PromptTokens: t.tokens, OutputTokens: lognormal(rng, 120, 0.9)}
			g.submit(arrival{now + httpMicros, rng.IntN(len(g.engines)), r})
			continue
		}
		g.send(now, uint64(n), t, max(2, min(2000, lognormal(rng, 120, 0.9))))
	}
	g.run(math.Inf(1))
	if len(g.flights) > 0 {
		g.tb.Fatalf("%d requests never ended", len(g.flights))
	}
}

// scrape shows the engines' counters.
func (g *ground) scrape() {
	g.at(g.scrapedAt)
	known := func(v float64) engine.Value { return engine.Value{Value: v, Known: true} }
	for i, e := range g.engines {
		s := e.Stats()
		g.inlets[i].Scraped(g.clock.Now(), engine.RankTelemetry{
			Running: known(float64(s.Running)), Waiting: known(float64(s.Waiting)), HBMTokens: known(float64(s.HBM.CapacityBlocks * groundBlock)),
			KVUsage: known(float64(s.HBM.UsedBlocks) / float64(s.HBM.CapacityBlocks)), PrefilledTokens: known(float64(s.PrefilledTokens)),
			InterTokens: known(float64(s.InterTokens)), InterTokenSeconds: known(s.InterTokenMicros / 1e6),
		})
	}
}

func lognormal(rng *rand.Rand, median, sigma float64) int {
	return max(1, int(median*math.Exp(sigma*rng.NormFloat64())))
}

func (g *ground) send(now float64, id uint64, t *talk, output int) {
	tokens := make([]uint32, t.tokens)
	for i := range tokens {
		id := t.id
		if t.shared > 0 && i >= t.shared {
			id = t.tail
		}
		tokens[i] = uint32(id*1_000_003 + uint64(i))
	}
	p := &prompt.Request{Kind: prompt.Completion, Model: "m", Stream: !g.cfg.silent, N: 1, Prompts: 1, Tokens: tokens}
	d, err := g.router.Decide(Query{ID: fmt.Sprint(id), Prompt: p, Session: fmt.Sprint(t.id)})
	if err != nil {
		g.tb.Fatal(err)
	}
	to := slices.IndexFunc(g.inlets, func(in *fleet.Inlet) bool { return in.Member.Target == d.Target })
	keys := p.TokenKeys(prompt.Form{BlockTokens: groundBlock})
	names := make([]kv.EngineHash, len(keys))
	for i, k := range keys {
		names[i] = kv.EngineHash(k)
	}
	g.flights[id] = &groundFlight{d: d, sent: now, prompt: t.tokens, tokens: tokens}
	a := arrival{now + httpMicros + tokenizeEach*float64(t.tokens), to,
		model.Request{ID: id, PromptTokens: t.tokens, OutputTokens: output, Keys: names}}
	g.submit(a)
}

// submit sends a request on its way to an engine.
func (g *ground) submit(a arrival) {
	i, _ := slices.BinarySearchFunc(g.pending, a.at, func(x arrival, at float64) int {
		if x.at <= at {
			return -1
		}
		return 1
	})
	g.pending = slices.Insert(g.pending, i, a)
}

// errors returns quantiles of |predicted/actual − 1| over results from one on.
func (g *ground) errors(from, to int, q ...float64) []float64 {
	var all []float64
	for _, r := range g.done[from:min(to, len(g.done))] {
		all = append(all, math.Abs(r.predicted/r.actual-1))
	}
	slices.Sort(all)
	out := make([]float64, len(q))
	for i, x := range q {
		out[i] = all[int(x*float64(len(all)-1))]
	}
	return out
}

func (g *ground) meanTTFT(from int) float64 {
	sum := 0.0
	for _, r := range g.done[from:] {
		sum += r.actual
	}
	return sum / float64(len(g.done)-from)
}
