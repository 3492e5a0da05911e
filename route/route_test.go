package route

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/cost"
	"github.com/rhizome-router/rhizome/engine"
	"github.com/rhizome-router/rhizome/fleet"
	"github.com/rhizome-router/rhizome/index"
	"github.com/rhizome-router/rhizome/kv"
	"github.com/rhizome-router/rhizome/prompt"
	"pgregory.net/rapid"
)

// house is a router over members that nothing but the test drives.
type house struct {
	*Router
	clock   clock.Virtual
	members []*fleet.Member
	view    *fleet.View
	index   *index.Index
	ids     int
}

func (h *house) View() *fleet.View { return h.view }

const blockTokens = 16

func newHouse(t testing.TB, policy Policy, workers int) *house {
	t.Helper()
	h := &house{index: index.New(index.Config{})}
	for i := range workers {
		spec, err := engine.ParseSpec(fmt.Sprintf("http://127.0.0.1:%d,events=tcp://127.0.0.1:%d", 18000+i, 19000+i))
		if err != nil {
			t.Fatal(err)
		}
		w, err := engine.NewWorker("test", spec)
		if err != nil {
			t.Fatal(err)
		}
		m := fleet.NewMember(kv.Target{Worker: w.ID, Rank: kv.NoRank}, w, cost.Generic(), h.index.Open(index.HBMThenOneTier))
		m.SetHealthy(true)
		m.SetCache(fleet.Cache{Slot: m.Cache().Slot, Known: fleet.ByEvents, Live: true, BlockTokens: blockTokens})
		h.members = append(h.members, m)
	}
	h.view = fleet.NewView(h.members, []fleet.Served{{Model: engine.Model{ID: "m"}, Members: h.members}})
	h.Router = New(Config{Policy: policy, Weights: cost.DefaultWeights(), NearTie: DefaultMargins(), Article: cost.DefaultArticle(), Explained: 64, Seed: 1},
		Deps{Fleet: h, Index: h.index, Approx: index.NewApprox(index.ApproxConfig{MaxEntries: 1 << 16}), Clock: &h.clock})
	return h
}

// matched is what each of the members holds of a prompt.
func (h *house) matched(members []*fleet.Member, p *prompt.Request) []matched {
	s := &search{now: h.clock.Now(), view: h.view, members: members}
	h.match(s, p)
	return s.hits
}

// deepest is most of what is known of a text's tokens on any of its members.
func deepest(hits []matched) prompt.Known {
	var s search
	for i := range hits {
		s.note(hits[i].known)
	}
	return s.deepest
}

// tokens is a prompt of token ids: shared ones, then own ones.
func tokens(t testing.TB, shared, own, who int) *prompt.Request {
	t.Helper()
	ids := make([]uint32, 0, shared+own)
	for i := range shared {
		ids = append(ids, uint32(i))
	}
	for i := range own {
		ids = append(ids, uint32(1_000_000+who*100_000+i))
	}
	return &prompt.Request{Kind: prompt.Completion, Model: "m", Stream: true, MaxTokens: 100, N: 1, Prompts: 1, Tokens: ids}
}

func text(t testing.TB, s string) *prompt.Request {
	t.Helper()
	raw, err := json.Marshal(map[string]any{"model": "m", "stream": true, "max_tokens": 100,
		"messages": []map[string]string{{"role": "user", "content": s}}})
	if err != nil {
		t.Fatal(err)
	}
	p, err := prompt.Parse(prompt.Chat, raw)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (h *house) decide(t testing.TB, p *prompt.Request) *Decision {
	t.Helper()
	h.ids++
	d, err := h.Decide(Query{ID: fmt.Sprint(h.ids), Prompt: p})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// finish plays the whole life of a decision.
func (h *house) finish(d *Decision, ttft time.Duration) {
	h.clock.Advance(ttft)
	h.FirstByte(d)
	h.clock.Advance(time.Millisecond)
	h.Done(d, Outcome{Result: Completed, Usage: Usage{CachedTokens: -1}})
}

// hold makes a member hold the first blocks of a prompt on a tier.
func (h *house) hold(m *fleet.Member, p *prompt.Request, from, to int, tier kv.Tier) {
	var changes []index.Change
	for _, k := range p.TokenKeys(prompt.Form{BlockTokens: blockTokens})[from:to] {
		changes = append(changes, index.Change{Key: k, Tier: tier, Present: true})
	}
	h.index.Apply(m.Cache().Slot, changes)
}

// drop takes back what hold did to the first n blocks.
func (h *house) drop(m *fleet.Member, p *prompt.Request, n int, tier kv.Tier) {
	var changes []index.Change
	for _, k := range p.TokenKeys(prompt.Form{BlockTokens: blockTokens})[:n] {
		changes = append(changes, index.Change{Key: k, Tier: tier})
	}
	h.index.Apply(m.Cache().Slot, changes)
}

func TestDecideFollowsTheCache(t *testing.T) {
	h := newHouse(t, Rhizome, 8)
	p := tokens(t, 8000, 100, 1)
	h.hold(h.members[5], p, 0, 500, kv.HBM)
	h.hold(h.members[2], p, 0, 200, kv.HBM)
	d := h.decide(t, p)
	if d.Target != h.members[5].Target || d.PredictedCachedTokens != 8000 {
		t.Errorf("chose %v with %d cached tokens", d.Target, d.PredictedCachedTokens)
	}
}

func TestDecideLeavesABusyCache(t *testing.T) {
	h := newHouse(t, Rhizome, 2)
	p := tokens(t, 4000, 100, 1)
	h.hold(h.members[0], p, 0, 250, kv.HBM)
	left := 0
	for i := range 40 {
		if d := h.decide(t, tokens(t, 4000, 2000, 10+i)); d.Target != h.members[0].Target {
			left++
		}
	}
	if left == 0 || left == 40 {
		t.Errorf("%d of 40 requests went to the worker without the prefix", left)
	}
}

func TestDecidePrefersACPUTierToComputing(t *testing.T) {
	h := newHouse(t, Rhizome, 2)
	p := tokens(t, 8000, 100, 1)
	h.hold(h.members[1], p, 0, 100, kv.HBM)
	h.hold(h.members[1], p, 100, 500, kv.CPU)
	d := h.decide(t, p)
	e, _ := h.Explain(d.ID)
	if d.Target != h.members[1].Target || e.Candidates[0].HBMTokens != 1600 || e.Candidates[0].LowerTokens != 6400 ||
		e.Candidates[0].Tier != "cpu" || e.Candidates[0].Source != fromEvents || e.Candidates[0].Terms.LoadMicros <= 0 {
		t.Errorf("chose %v: %+v", d.Target, e.Candidates[0])
	}
}

// The last block is always computed, even when the worker holds all of them.
func TestHitNeverCoversTheWholePrompt(t *testing.T) {
	h := newHouse(t, Rhizome, 1)
	p := tokens(t, 1600, 0, 1)
	h.hold(h.members[0], p, 0, 100, kv.HBM)
	if d := h.decide(t, p); d.PredictedCachedTokens != 1584 {
		t.Errorf("predicted %d cached tokens of 1600", d.PredictedCachedTokens)
	}
}

// 256 requests at once, nothing cached: nobody may be herded.
func TestColdBurstSpreads(t *testing.T) {
	h := newHouse(t, Rhizome, 8)
	load := make(map[kv.Target]int)
	for i := range 256 {
		load[h.decide(t, tokens(t, 0, 2000, i)).Target]++
	}
	for target, n := range load {
		if n > 48 {
			t.Errorf("%v got %d of 256, mean 32", target, n)
		}
	}
}

// A burst with one new prefix computes it at most once on each chosen worker:
// whoever comes second is promised what the first will have computed.
func TestBurstComputesThePrefixOncePerWorker(t *testing.T) {
	for name, make := range map[string]func(i int) *prompt.Request{
		"tokens": func(i int) *prompt.Request { return tokens(t, 12000, 160, i) },
		"text":   func(i int) *prompt.Request { return text(t, strings.Repeat("shared words ", 4000)+fmt.Sprint(i)) },
	} {
		h := newHouse(t, Rhizome, 8)
		cold := map[kv.Target]int{}
		for i := range 28 {
			p := make(i)
			if d := h.decide(t, p); d.PredictedCachedTokens < 10_000 {
				cold[d.Target]++
			}
		}
		for target, n := range cold {
			if n > 1 {
				t.Errorf("%s: %v was asked to compute the prefix %d times", name, target, n)
			}
		}
	}
}

func TestPromiseEndsWithARejectedRequest(t *testing.T) {
	h := newHouse(t, Rhizome, 1)
	d := h.decide(t, tokens(t, 1600, 16, 1))
	h.Done(d, Outcome{Result: Failed})
	if d := h.decide(t, tokens(t, 1600, 16, 2)); d.PredictedCachedTokens != 0 {
		t.Errorf("a request that never ran promises %d tokens", d.PredictedCachedTokens)
	}
}

func TestTextFollowUpGoesWhereItsConversationIs(t *testing.T) {
	h := newHouse(t, Rhizome, 8)
	talk := strings.Repeat("all work and no play makes a dull boy. ", 500)
	first := h.decide(t, text(t, talk))
	h.finish(first, 50*time.Millisecond)
	for range 20 {
		next := h.decide(t, text(t, talk))
		if next.Target != first.Target || next.PredictedCachedTokens < 4000 {
			e, _ := h.Explain(next.ID)
			t.Fatalf("went to %v with %d cached tokens: %+v", next.Target, next.PredictedCachedTokens, e)
		}
		h.finish(next, 50*time.Millisecond)
	}
}

// What a worker stored since pushes a text prefix down the tiers and out.
func TestTextHitsAgeWithTheCache(t *testing.T) {
	h := newHouse(t, Rhizome, 1)
	p := text(t, strings.Repeat("all work and no play makes a dull boy. ", 500))
	h.finish(h.decide(t, p), time.Millisecond)
	m := h.members[0]
	for _, c := range []struct {
		stored      uint64
		hbm, lower  bool
		description string
	}{
		{50_000, true, false, "young"}, {150_000, false, true, "spilled to CPU"}, {500_000, false, false, "gone"},
	} {
		cache := m.Cache()
		cache.StoredTokens = c.stored
		cache.HeldTokens[kv.HBM], cache.HeldTokens[kv.CPU] = 100_000, 200_000
		cache.Evicting[kv.HBM], cache.Evicting[kv.CPU] = true, true
		m.SetCache(cache)
		hits := h.matched(h.members, p)
		z := h.size(&Query{Prompt: p}, deepest(hits))
		if got := hits[0].tokens(&z); (got.HBMTokens > 0) != c.hbm || (got.LowerTokens > 0) != c.lower {
			t.Errorf("%s: hit %+v", c.description, got)
		}
	}
}

func TestDecideErrors(t *testing.T) {
	h := newHouse(t, Rhizome, 2)
	unknown := tokens(t, 10, 0, 0)
	unknown.Model = "other"
	if _, err := h.Decide(Query{Prompt: unknown}); !errors.Is(err, ErrUnknownModel) {
		t.Errorf("unknown model: %v", err)
	}
	p := tokens(t, 10, 0, 0)
	d, err := h.Decide(Query{Prompt: p, Exclude: []kv.Target{h.members[0].Target}})
	if err != nil || d.Target != h.members[1].Target {
		t.Errorf("excluding one: %v, %v", d, err)
	}
	if _, err := h.Decide(Query{Prompt: p, Exclude: []kv.Target{h.members[0].Target, h.members[1].Target}}); !errors.Is(err, ErrNoWorker) {
		t.Errorf("nobody left: %v", err)
	}
}

func TestUnreachableWorkerIsLeftAlone(t *testing.T) {
	h := newHouse(t, Rhizome, 2)
	p := tokens(t, 1600, 0, 0)
	h.hold(h.members[0], p, 0, 100, kv.HBM)
	h.Done(h.decide(t, p), Outcome{Result: Failed, Unreachable: true})
	for range 5 {
		if d := h.decide(t, p); d.Target != h.members[1].Target {
			t.Fatal("the worker that can't be reached is asked again")
		}
	}
	// When all are out, asking beats refusing.
	h.members[1].SetHealthy(false)
	if d := h.decide(t, p); d.Target != h.members[0].Target {
		t.Errorf("of two that are out, the one with the prefix is the better bet, not %v", d.Target)
	}
}

// What others sent to a worker counts like our own requests.
func TestForeignLoadKeepsRequestsAway(t *testing.T) {
	for name, signals := range map[string]fleet.Signals{
		"waiting": {ForeignWaiting: fleet.Signal{Value: 3, Source: fleet.Learned}},
		"tokens": {ForeignWaiting: fleet.Signal{Value: 1, Source: fleet.Learned}, Waiting: fleet.Signal{Value: 1, Source: fleet.Scraped},
			WaitingTokens: fleet.Signal{Value: 9000, Source: fleet.Scraped}},
		"running": {ForeignRunning: fleet.Signal{Value: 50, Source: fleet.Learned}},
		"full": {CapacityTokens: fleet.Signal{Value: 1000, Source: fleet.Scraped}, MaxSeqs: fleet.Signal{Value: 1, Source: fleet.Scraped},
			ForeignRunning: fleet.Signal{Value: 2, Source: fleet.Learned}},
	} {
		h := newHouse(t, Rhizome, 2)
		h.members[0].SetSignals(signals)
		h.decide(t, tokens(t, 0, 2000, 0)) // so that there is a typical request
		h.Done(h.decide(t, tokens(t, 0, 2000, 0)), Outcome{Result: Cancelled})
		for i := range 5 {
			d := h.decide(t, tokens(t, 0, 2000, 1+i))
			if d.Target == h.members[0].Target {
				t.Errorf("%s: went to the worker that others keep busy", name)
			}
			h.Done(d, Outcome{Result: Cancelled})
		}
	}
}

// Nothing known of a process that is no more may count, exact or aged.
func TestOutdatedMembersMatchNothing(t *testing.T) {
	h := newHouse(t, Rhizome, 1)
	exact, chat := tokens(t, 1600, 16, 0), text(t, strings.Repeat("all work and no play ", 500))
	h.hold(h.members[0], exact, 0, 100, kv.HBM)
	h.finish(h.decide(t, chat), time.Millisecond)
	for _, c := range []struct {
		outdated bool
		cached   bool
	}{{false, true}, {true, false}, {false, true}} {
		h.members[0].SetOutdated(c.outdated)
		for name, m := range map[string][]matched{"tokens": h.matched(h.members, exact), "text": h.matched(h.members, chat)} {
			if got := m[0].run.Len() > 0; got != c.cached {
				t.Errorf("outdated %v, %s: a hit is %v", c.outdated, name, got)
			}
		}
	}
}

// An engine that was seen to compute 8192 tokens in a step needs a quarter of
// the steps that the default budget would.
func TestStepSizeIsLearnedUpward(t *testing.T) {
	prefill := func(stepTokens int) float64 {
		h := newHouse(t, Rhizome, 1)
		c := h.members[0].Cache()
		c.StepTokens = stepTokens
		h.members[0].SetCache(c)
		e, _ := h.Explain(h.decide(t, tokens(t, 0, 8192, 1)).ID)
		return e.Candidates[0].Terms.PrefillMicros
	}
	if saved := prefill(100) - prefill(8192); saved != 3*cost.Generic().StepMicros {
		t.Errorf("steps of 8192 tokens save %v µs", saved)
	}
}

func TestLinkCongestionIsPriced(t *testing.T) {
	load := func(s fleet.Signals) float64 {
		h := newHouse(t, Rhizome, 1)
		p := tokens(t, 8000, 100, 1)
		h.hold(h.members[0], p, 0, 500, kv.CPU)
		h.members[0].SetSignals(s)
		e, _ := h.Explain(h.decide(t, p).ID)
		return e.Candidates[0].Terms.LoadMicros
	}
	var congested, slow fleet.Signals
	congested.Rho[kv.CPU] = fleet.Signal{Value: 0.9, Source: fleet.Learned}
	slow.BytesPerMicro[kv.CPU] = fleet.Signal{Value: 8000, Source: fleet.Learned}
	free := load(fleet.Signals{})
	if got := load(congested) / free; got < 9.9 || got > 10.1 {
		t.Errorf("a link that is busy nine tenths of the time costs %.1f times a free one", got)
	}
	if got := load(slow) / free; got < 7.9 || got > 8.1 {
		t.Errorf("an eighth of the bandwidth costs %.1f times", got)
	}
}

// A feed that fell silent is believed half.
func TestStalledEventsCountHalf(t *testing.T) {
	h := newHouse(t, Rhizome, 1)
	p := tokens(t, 1600, 16, 0)
	h.hold(h.members[0], p, 0, 100, kv.HBM)
	for i := range 3 {
		h.finish(h.decide(t, tokens(t, 0, 160, 50+i)), time.Millisecond)
	}
	h.clock.Advance(3 * time.Second)
	if d := h.decide(t, p); d.PredictedCachedTokens != 800 {
		t.Errorf("predicted %d cached tokens of 1600 on a stalled feed, want half", d.PredictedCachedTokens)
	}
}

func TestEmbeddingsDecodeNothing(t *testing.T) {
	h := newHouse(t, Rhizome, 1)
	p, err := prompt.Parse(prompt.Embedding, []byte(`{"model":"m","input":"hello"}`))
	if err != nil {
		t.Fatal(err)
	}
	e, _ := h.Explain(h.decide(t, p).ID)
	if e.OutputTokens != 0 || e.Candidates[0].Terms.OwnDecodeMicros != 0 || e.Candidates[0].InFlight != 0 {
		t.Errorf("%+v", e)
	}
}

func TestPolicies(t *testing.T) {
	spread := func(policy Policy, n int, finish bool) map[kv.Target]int {
		h := newHouse(t, policy, 4)
		load := make(map[kv.Target]int)
		for i := range n {
			d := h.decide(t, tokens(t, 0, 320, i))
			load[d.Target]++
			if finish {
				h.finish(d, time.Millisecond)
			}
		}
		return load
	}
	for _, policy := range []Policy{RoundRobin, LeastRequests} {
		for target, n := range spread(policy, 40, false) {
			if n != 10 {
				t.Errorf("%s: %v got %d of 40", policy, target, n)
			}
		}
	}
	for _, policy := range []Policy{Rhizome, ArticleCost, Random, Sticky, LeastRequests} {
		if got := len(spread(policy, 100, true)); got != 4 {
			t.Errorf("%s used %d of 4 idle workers for 100 different prompts", policy, got)
		}
	}
}

func TestStickyKeepsSessionsWhenAWorkerLeaves(t *testing.T) {
	h := newHouse(t, Sticky, 8)
	home := func(session string) kv.Target {
		d, err := h.Decide(Query{ID: session, Session: session, Prompt: tokens(t, 32, 0, 0)})
		if err != nil {
			t.Fatal(err)
		}
		return d.Target
	}
	before := make(map[string]kv.Target)
	for i := range 200 {
		s := fmt.Sprint("session-", i)
		before[s] = home(s)
	}
	h.members[3].SetHealthy(false)
	for s, target := range before {
		if after := home(s); after != target && target != h.members[3].Target {
			t.Errorf("%s moved from %v to %v though neither left", s, target, after)
		}
	}
}

func TestNearTieKeepsTheSession(t *testing.T) {
	h := newHouse(t, Rhizome, 8)
	first, err := h.Decide(Query{ID: "1", Session: "s", Prompt: tokens(t, 0, 20, 1)})
	if err != nil {
		t.Fatal(err)
	}
	h.finish(first, time.Millisecond)
	for i := range 30 {
		d, err := h.Decide(Query{ID: "n", Session: "s", Prompt: tokens(t, 0, 20, 2+i)})
		if err != nil || d.Target != first.Target {
			t.Fatalf("moved to %v among equals", d.Target)
		}
		h.finish(d, time.Millisecond)
	}
}

// Whatever happens to requests, nothing stays booked and nothing stays promised.
func TestEverythingReturnsToZero(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		h := newHouse(t, Policies[rapid.IntRange(0, len(Policies)-1).Draw(rt, "policy")], 3)
		var open []*Decision
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			h.clock.Advance(time.Duration(rapid.IntRange(0, 2000).Draw(rt, "ms")) * time.Millisecond)
			if len(open) == 0 || rapid.Bool().Draw(rt, "new") {
				open = append(open, h.decide(t, tokens(t, 160, 16*rapid.IntRange(0, 3).Draw(rt, "own"), 7)))
				continue
			}
			i := rapid.IntRange(0, len(open)-1).Draw(rt, "which")
			if rapid.Bool().Draw(rt, "first byte") {
				h.FirstByte(open[i])
				continue
			}
			out := Outcome{Result: Result(rapid.IntRange(0, int(Cancelled)).Draw(rt, "result")), Usage: Usage{Known: true, PromptTokens: 200, CachedTokens: 16, CompletionTokens: 5}}
			h.Done(open[i], out)
			h.Done(open[i], Outcome{Result: Failed}) // the second call counts for nothing
			open = append(open[:i], open[i+1:]...)
		}
		for _, d := range open {
			h.Done(d, Outcome{Result: Cancelled})
		}
		for _, m := range h.members {
			if m.Ledger.InFlight() != 0 {
				rt.Fatalf("%d still booked", m.Ledger.InFlight())
			}
		}
		s := h.Stats()
		ended := uint64(0)
		for _, n := range s.Ended {
			ended += n
		}
		if ended != s.Requests {
			rt.Fatalf("%d decisions, %d ends", s.Requests, ended)
		}
		h.index.Expire(h.clock.Now().Add(time.Hour))
		if st := h.index.Stats(); st.Promises != 0 {
			rt.Fatalf("%d blocks still promised", st.Promises)
		}
	})
}

func TestExplainRing(t *testing.T) {
	h := newHouse(t, Rhizome, 3)
	first := h.decide(t, tokens(t, 1600, 16, 1))
	e, ok := h.Explain(first.ID)
	if !ok || len(e.Candidates) != 3 || e.Worker != first.Worker.Spec.URL || !e.PromptExact || e.PromptTokens != 1616 || e.Why == "" || e.Result != "" {
		t.Errorf("explanation: %+v", e)
	}
	h.clock.Advance(25 * time.Millisecond)
	h.FirstByte(first)
	h.Done(first, Outcome{Result: Completed, Usage: Usage{Known: true, PromptTokens: 1616, CachedTokens: 96, CompletionTokens: 7}})
	e, _ = h.Explain(first.ID)
	if e.Result != "completed" || e.ActualTTFTMillis != 25 || e.ActualCachedTokens != 96 || e.ActualPromptTokens != 1616 {
		t.Errorf("afterwards: %+v", e)
	}
	for i := range 64 {
		h.Done(h.decide(t, tokens(t, 16, 0, i)), Outcome{Result: Cancelled})
	}
	if _, ok := h.Explain(first.ID); ok {
		t.Error("the ring keeps more than it should")
	}
	if _, ok := h.Explain(fmt.Sprint(h.ids)); !ok || len(h.ring.at) != 64 {
		t.Errorf("the ring lost the newest, or kept %d names", len(h.ring.at))
	}
}

func TestParsePolicy(t *testing.T) {
	for _, p := range Policies {
		if got, err := ParsePolicy(string(p)); err != nil || got != p {
			t.Errorf("%s: %v, %v", p, got, err)
		}
	}
	if _, err := ParsePolicy("fastest"); err == nil || !strings.Contains(err.Error(), "least-requests") {
		t.Errorf("unknown policy: %v", err)
	}
}

func BenchmarkDecide(b *testing.B) {
	for _, workers := range []int{8, 64} {
		b.Run(fmt.Sprint(workers), func(b *testing.B) {
			h := newHouse(b, Rhizome, workers)
			p := tokens(b, 12000, 100, 1)
			p.TokenKeys(prompt.Form{BlockTokens: blockTokens})
			for _, m := range h.members[:workers/2] {
				h.hold(m, p, 0, 750, kv.HBM)
			}
			b.ReportAllocs()
			for b.Loop() {
				d := h.decide(b, p)
				h.FirstByte(d)
				h.Done(d, Outcome{Result: Completed, Usage: Usage{CachedTokens: -1}})
			}
		})
	}
}
