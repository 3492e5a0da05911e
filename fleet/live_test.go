package fleet_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/cost"
	"github.com/rhizome-router/rhizome/engine"
	"github.com/rhizome-router/rhizome/engine/emulator"
	"github.com/rhizome-router/rhizome/engine/model"
	"github.com/rhizome-router/rhizome/fleet"
	"github.com/rhizome-router/rhizome/index"
	"github.com/rhizome-router/rhizome/kv"
	"github.com/rhizome-router/rhizome/mesh"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ground is a fleet that watches emulated workers over real sockets.
type ground struct {
	t       *testing.T
	fleet   *fleet.Fleet
	index   *index.Index
	workers []*emulator.Worker
	client  http.Client
}

// newGround starts workers of a small pool, so that they evict, and a fleet.
func newGround(t *testing.T, n int, change func(*emulator.Config)) *ground {
	return newGroundWith(t, n, fleet.Config{}, change)
}

func newGroundWith(t *testing.T, n int, fc fleet.Config, change func(*emulator.Config)) *ground {
	t.Helper()
	g, specs := newWorkers(t, n, change)
	g.watch(fc, specs, nil)
	return g
}

// newWorkers starts workers that nobody watches yet.
func newWorkers(t *testing.T, n int, change func(*emulator.Config)) (*ground, []engine.Spec) {
	t.Helper()
	preset, err := model.PresetByName("llama3-8b-h100")
	if err != nil {
		t.Fatal(err)
	}
	g := &ground{t: t, client: http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
	var specs []engine.Spec
	for i := range n {
		cfg := emulator.Config{Model: "m", Preset: preset, Speedup: 1000, PoolTokens: 8192, Seed: uint64(i),
			Tiers: []model.TierConfig{{Tier: kv.CPU, CapacityTokens: 16384, BytesPerSecond: 64e9}}}
		if change != nil {
			change(&cfg)
		}
		w, err := emulator.Start(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { w.Close() })
		spec, err := engine.ParseSpec(w.Spec())
		if err != nil {
			t.Fatal(err)
		}
		g.workers, specs = append(g.workers, w), append(specs, spec)
	}
	return g, specs
}

// watch has a fleet, in a mesh if node isn't nil, watch the workers until the
// test or stop ends it.
func (g *ground) watch(fc fleet.Config, specs []engine.Spec, node *mesh.Node) (stop func()) {
	g.t.Helper()
	fc.RetryInterval, fc.ScrapeInterval, fc.ProbeInterval = 20*time.Millisecond, 100*time.Millisecond, 50*time.Millisecond
	g.index = index.New(index.Config{})
	log := slog.New(slog.DiscardHandler)
	var err error
	g.fleet, err = fleet.New(fc,
		fleet.Deps{Index: g.index, Approx: index.NewApprox(index.ApproxConfig{MaxEntries: 1024}), Clock: clock.Real(), Log: log, Mesh: node},
		specs, func(engine.Spec) (cost.Class, error) { return cost.Generic(), nil })
	if err != nil {
		g.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(g.t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { g.fleet.Run(ctx) })
	if node != nil {
		wg.Go(func() {
			if err := node.Run(ctx); err != nil {
				g.t.Error(err)
			}
		})
	}
	stop = func() { cancel(); wg.Wait() }
	g.t.Cleanup(stop)
	g.await("ready", func() bool { return g.fleet.Ready() == nil })
	return stop
}

// await polls for a state that real sockets bring about in their own time.
func (g *ground) await(what string, ok func() bool) {
	g.t.Helper()
	g.awaitState(ok, func() string { return what })
}

// awaitState is await for a state that can say what it lacks.
func (g *ground) awaitState(ok func() bool, what func() string) {
	g.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(60 * time.Second); !ok(); {
		select {
		case <-tick.C:
		case <-deadline:
			g.t.Fatalf("never: %s", what())
		}
	}
}

// prompt sends a prompt of token ids straight to a worker.
func (g *ground) prompt(w *emulator.Worker, first, n int) {
	g.t.Helper()
	var body bytes.Buffer
	fmt.Fprintf(&body, `{"model":"m","max_tokens":1,"prompt":[%d`, first)
	for i := 1; i < n; i++ {
		fmt.Fprintf(&body, ",%d", first+i)
	}
	body.WriteString("]}")
	g.post(w, body.Bytes())
}

func (g *ground) post(w *emulator.Worker, body []byte) {
	g.t.Helper()
	r, err := g.client.Post(w.URL()+"/v1/completions", "application/json", bytes.NewReader(body))
	if err != nil {
		g.t.Fatal(err)
	}
	defer r.Body.Close()
	if text, err := io.ReadAll(r.Body); err != nil || r.StatusCode != http.StatusOK {
		g.t.Fatalf("%s, %v: %s", r.Status, err, text)
	}
}

func (g *ground) member(i int) *fleet.Member { return g.fleet.View().Members[i] }

// cached is what a worker's cache holds on a tier, each block once.
func cached(w *emulator.Worker, t kv.Tier) map[kv.EngineHash]bool {
	held := make(map[kv.EngineHash]bool)
	for _, h := range w.Cached(t) {
		held[h] = true
	}
	return held
}

// settled reports whether the index holds exactly what worker i's cache holds,
// by number.
func (g *ground) settled(i int) bool {
	c := g.member(i).Cache()
	for _, tier := range []kv.Tier{kv.HBM, kv.CPU} {
		if c.HeldTokens[tier] != c.BlockTokens*len(cached(g.workers[i], tier)) {
			return false
		}
	}
	return c.BlockTokens > 0
}

func TestIndexFollowsTheWorkers(t *testing.T) {
	g := newGround(t, 2, nil)
	for i := range 40 {
		g.prompt(g.workers[i%2], 1000*(i%13), 500+40*i)
	}
	for i, w := range g.workers {
		g.await(fmt.Sprint("the index to hold what worker ", i, " holds"), func() bool { return g.settled(i) })
		if c := g.member(i).Cache(); c.HeldTokens[kv.CPU] == 0 || !c.Evicting[kv.HBM] || c.Log.Unkeyed != 0 || c.BadEvents != 0 {
			t.Errorf("worker %d: %+v", i, c)
		}
		// Block by block: what the worker really has of this prompt is what the
		// index says, and it computes just the rest.
		tokens := make([]uint32, 1200)
		for j := range tokens {
			tokens[j] = uint32(1000*(i+4) + j)
		}
		keys := kv.AppendKeys(nil, kv.Root("m", "", ""), tokens, 16)
		before := w.Stats()
		var hit index.Hit
		for _, h := range g.index.Match(keys, nil) {
			if h.Slot == g.member(i).Cache().Slot {
				hit = h
			}
		}
		g.prompt(w, 1000*(i+4), len(tokens))
		after := w.Stats()
		hbm, lower := after.HBMHitTokens-before.HBMHitTokens, after.TierHitTokens()-before.TierHitTokens()
		usable := (len(tokens) - 1) / 16
		if want := min(hit.HBM, usable); int64(16*want) != hbm || int64(16*(min(hit.Len(), usable)-want)) != lower {
			t.Errorf("worker %d found %d+%d tokens, the index said %d+%d blocks", i, hbm, lower, hit.HBM, hit.Lower)
		}
	}
}

func TestWorkerThatDiesIsNoticed(t *testing.T) {
	g := newGround(t, 2, nil)
	g.workers[0].Close()
	g.await("the dead worker to be unhealthy", func() bool { return !g.member(0).Healthy() })
	if members, known := g.fleet.View().Serving("m"); !known || len(members) != 2 || !g.member(1).Healthy() {
		t.Errorf("its model must stay known, and the other worker healthy: %v", members)
	}
	if err := g.fleet.Ready(); err != nil {
		t.Errorf("one healthy worker is enough: %v", err)
	}
}

func TestWorkerWithoutEventsIsKnownByWhatWasSent(t *testing.T) {
	g := newGround(t, 1, nil)
	spec := g.workers[0].URL()
	f, err := fleet.New(fleet.Config{}, fleet.Deps{Index: g.index, Approx: index.NewApprox(index.ApproxConfig{MaxEntries: 16}), Clock: clock.Real(),
		Log: slog.New(slog.DiscardHandler)}, []engine.Spec{{URL: spec}, {URL: spec + "/"}}, func(engine.Spec) (cost.Class, error) { return cost.Generic(), nil })
	if err != nil {
		t.Fatal(err)
	}
	if n := len(f.View().Members); n != 1 {
		t.Errorf("one worker named twice makes %d members", n)
	}
	m := f.View().Members[0]
	m.Sent(500)
	c := m.Cache()
	if h := m.Horizon(&c); h.Now != 500 {
		t.Errorf("its clock stands at %d after 500 tokens were sent", h.Now)
	}
}
