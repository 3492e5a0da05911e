package load_test

import (
	"cmp"
	"fmt"
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
	"github.com/rhizome-router/rhizome/route"
	"github.com/rhizome-router/rhizome/workload"
)

// lab plays a trace through the real router against engine models in virtual
// time: what the decision is worth, without a machine's noise.
type lab struct {
	tb      testing.TB
	clock   clock.Virtual
	router  *route.Router
	view    *fleet.View
	members []*fleet.Member
	caches  []fleet.Cache
	engines []*model.Worker
	flights map[uint64]*flight

	ttftMillis             []float64
	promptTokens, cachedOf int
}

type flight struct {
	decision *route.Decision
	arrived  float64 // µs
	cached   int
	prompt   int
}

func (l *lab) View() *fleet.View { return l.view }

const (
	labWorkers = 4
	labBlock   = 64 // tokens; engines default to 16, which takes several times longer
	labOutput  = 32
)

func newLab(tb testing.TB, policy route.Policy, weights cost.Weights) *lab {
	tb.Helper()
	l := &lab{tb: tb, flights: make(map[uint64]*flight)}
	must := func(err error) {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
	}
	preset, err := model.PresetByName("llama3-8b-h100")
	must(err)
	prefixes := index.New(index.Config{})
	for i := range labWorkers {
		spec, err := engine.ParseSpec(fmt.Sprintf("http://127.0.0.1:%d,events=tcp://127.0.0.1:%d", 18000+i, 19000+i))
		must(err)
		w, err := engine.NewWorker("lab", spec)
		must(err)
		e, err := model.New(model.Config{Preset: preset, BlockTokens: labBlock})
		must(err)
		class := cost.Generic()
		class.CapacityTokens = float64(preset.PoolTokens)
		m := fleet.NewMember(kv.Target{Worker: w.ID, Rank: kv.NoRank}, w, class, prefixes.Open(index.HBMThenOneTier))
		m.SetHealthy(true)
		l.caches = append(l.caches, fleet.Cache{Slot: m.Cache().Slot, Known: fleet.ByEvents, Live: true, BlockTokens: labBlock})
		l.members, l.engines = append(l.members, m), append(l.engines, e)
	}
	l.view = fleet.NewView(l.members, []fleet.Served{{Model: engine.Model{ID: "m"}, Members: l.members}})
	l.router = route.New(route.Config{Policy: policy, Weights: weights, NearTie: route.DefaultMargins(), Article: cost.DefaultArticle(), Seed: 1},
		route.Deps{Fleet: l, Index: prefixes, Approx: index.NewApprox(index.ApproxConfig{}), Clock: &l.clock})
	return l
}

// advance lets one engine's time pass and shows the router what it would see.
func (l *lab) advance(i int, to float64) {
	c := &l.caches[i]
	l.engines[i].Advance(to, func(e model.Event) {
		switch e.Kind {
		case model.FirstToken:
			f := l.flights[e.ID]
			f.cached = e.HBMTokens + e.TierTokens
			l.ttftMillis = append(l.ttftMillis, (e.At-f.arrived)/1e3)
			l.promptTokens, l.cachedOf = l.promptTokens+f.prompt, l.cachedOf+f.cached
			l.at(e.At)
			l.router.FirstByte(f.decision)
		case model.Finished:
			f := l.flights[e.ID]
			delete(l.flights, e.ID)
			l.at(e.At)
			l.router.Done(f.decision, route.Outcome{Usage: route.Usage{
				Known: true, PromptTokens: f.prompt, CachedTokens: f.cached, CompletionTokens: e.Tokens}})
		case model.Stored:
			if e.Tier == kv.HBM {
				c.StoredTokens += uint64(labBlock * len(e.Blocks))
			}
		case model.Removed:
			c.Evicting[e.Tier] = true
		}
	})
	s := l.engines[i].Stats()
	c.HeldTokens[kv.HBM], c.HeldTokens[kv.CPU] = labBlock*s.HBM.CachedBlocks, labBlock*s.Lower[0].CachedBlocks
	l.members[i].SetCache(*c)
}

func (l *lab) at(micros float64) { l.clock.Advance(clock.Instant(micros * 1e3).Sub(l.clock.Now())) }

// run lets everything happen that happens up to an instant, in order.
func (l *lab) run(to float64) {
	for {
		next, when := -1, to
		for i, e := range l.engines {
			if at, ok := e.Next(); ok && at <= when {
				next, when = i, at
			}
		}
		if next < 0 {
			return
		}
		l.advance(next, when)
	}
}

// play sends the trace as chat text, speed times as fast as recorded.
func (l *lab) play(trace []workload.Request, speed float64) {
	text := workload.Text{Seed: 1}
	for i := range trace {
		r := &trace[i]
		now := float64(r.At.Microseconds()) / speed
		l.run(now)
		l.at(now)
		body := text.AppendPrompt([]byte(`{"model":"m","stream":true,"max_tokens":32,"messages":[{"role":"user","content":"`), r)
		p, err := prompt.Parse(prompt.Chat, append(body, `"}]}`...))
		if err != nil {
			l.tb.Fatal(err)
		}
		d, err := l.router.Decide(route.Query{ID: fmt.Sprint(i), Prompt: p})
		if err != nil {
			l.tb.Fatal(err)
		}
		var tokens []uint32
		for _, id := range r.HashIDs {
			tokens = text.AppendTokens(tokens, id, workload.BlockTokens)
		}
		var keys []kv.EngineHash
		for _, k := range kv.AppendKeys(nil, kv.Root("m", "", ""), tokens[:r.InputTokens], labBlock) {
			keys = append(keys, kv.EngineHash(k))
		}
		l.flights[uint64(i)] = &flight{decision: d, arrived: now, prompt: r.InputTokens}
		to := slices.IndexFunc(l.members, func(m *fleet.Member) bool { return m.Target == d.Target })
		err = l.engines[to].Submit(now, model.Request{
			ID: uint64(i), PromptTokens: r.InputTokens, OutputTokens: max(1, min(labOutput, r.OutputTokens)), Keys: keys})
		if err != nil {
			l.tb.Fatal(err)
		}
	}
	l.run(1e18)
	if len(l.flights) > 0 {
		l.tb.Fatalf("%d requests never ended", len(l.flights))
	}
}

func (l *lab) meanTTFT() float64 {
	sum := 0.0
	for _, x := range l.ttftMillis {
		sum += x
	}
	return sum / float64(len(l.ttftMillis))
}

func (l *lab) hitShare() float64 { return float64(l.cachedOf) / float64(l.promptTokens) }

func playExcerpt(tb testing.TB, policy route.Policy, weights cost.Weights, seed uint64, speed float64) *lab {
	tb.Helper()
	trace, err := workload.Excerpt(0)
	if err != nil {
		tb.Fatal(err)
	}
	l := newLab(tb, policy, weights)
	l.play(workload.Jitter(trace, seed), speed)
	return l
}

// The decision must be worth its name on a real trace: faster first tokens than
// the rules that know no cache, and most of what any cache could give.
func TestRhizomeBeatsRulesThatKnowNoCache(t *testing.T) {
	trace, err := workload.Excerpt(0)
	if err != nil {
		t.Fatal(err)
	}
	bound := workload.InfiniteCacheShare(trace).Tokens
	ours := playExcerpt(t, route.Rhizome, cost.DefaultWeights(), 1, 1)
	for policy, most := range map[route.Policy]float64{route.LeastRequests: 0.9, route.RoundRobin: 0.6} {
		theirs := playExcerpt(t, policy, cost.Weights{}, 1, 1)
		ratio := ours.meanTTFT() / theirs.meanTTFT()
		t.Logf("mean TTFT %.0f ms, %s %.0f ms: %.2f", ours.meanTTFT(), policy, theirs.meanTTFT(), ratio)
		if ratio > most {
			t.Errorf("mean TTFT is %.2f of that of %s, want at most %.2f", ratio, policy, most)
		}
	}
	t.Logf("hit share %.3f of at most %.3f", ours.hitShare(), bound)
	if ours.hitShare() < 0.8*bound {
		t.Errorf("hit share %.3f, want 0.8 of %.3f", ours.hitShare(), bound)
	}
	if s := ours.router.Stats(); cmp.Compare(float64(s.CachedAbsError), 0.05*float64(s.CachedActual)) > 0 {
		t.Errorf("predicted cached tokens are off by %d of %d", s.CachedAbsError, s.CachedActual)
	}
}

// What the queue externality's weight does: reports mean TTFT in ms and the
// share of prompt tokens found in a cache, over 4 seeds.
func BenchmarkQueueExternality(b *testing.B) {
	for _, speed := range []float64{1, 2} {
		for _, weight := range []float64{0, 0.5, 1, 1.5, 3} {
			b.Run(fmt.Sprintf("speed=%g/weight=%g", speed, weight), func(b *testing.B) {
				weights := cost.DefaultWeights()
				weights.QueueExternality = weight
				var ttft, hit float64
				n := 0
				for b.Loop() {
					l := playExcerpt(b, route.Rhizome, weights, uint64(n%4+1), speed)
					ttft, hit, n = ttft+l.meanTTFT(), hit+l.hitShare(), n+1
				}
				b.ReportMetric(ttft/float64(n), "ttft-ms")
				b.ReportMetric(hit/float64(n), "hit-share")
			})
		}
	}
}
