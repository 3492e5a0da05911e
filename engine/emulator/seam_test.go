package emulator

import (
	"context"
	"sync"
	"testing"

	"github.com/rhizome-router/rhizome/engine"
	"github.com/rhizome-router/rhizome/engine/kvwire"
	"github.com/rhizome-router/rhizome/engine/model"
	"github.com/rhizome-router/rhizome/kv"
)

// What the router uses to follow a worker understands this one: its spec, its
// events, its metrics.
func TestRouterFollowsTheWorker(t *testing.T) {
	w := start(t, nil)
	spec, err := engine.ParseSpec(w.Spec())
	if err != nil {
		t.Fatal(err)
	}
	before := complete(t, w.URL()+"/v1/completions", obj{"prompt": words(1, 1000), "max_tokens": 20})
	feed := engine.NewFeed(engine.FeedConfig{Events: spec.Events, Replay: spec.Replay, Model: "m"})
	events := make(chan engine.FeedEvent, 1000)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() {
		_ = feed.Run(ctx, func(e engine.FeedEvent) { events <- e })
	})
	h := newHeld()
	follow := func(blocks int) {
		for len(h.copies[kv.HBM]) < blocks {
			switch e := <-events; e.Kind {
			case engine.FeedBatch:
				h.apply(t, kvwire.Batch{Ops: e.Ops})
			case engine.FeedReset, engine.FeedDisconnected:
				t.Fatalf("the feed broke: %+v", e)
			}
		}
	}
	first := (before.Usage.TotalTokens - 1) / 16
	follow(first) // told before anybody listened: by replay
	after := complete(t, w.URL()+"/v1/completions", obj{"prompt": words(2, 1000), "max_tokens": 20})
	follow(first + (after.Usage.TotalTokens-1)/16)
	want := map[kv.EngineHash]bool{}
	for _, hash := range w.Cached(kv.HBM) {
		want[hash] = true
		if h.copies[kv.HBM][hash] != 1 {
			t.Errorf("block %x is cached and was not told once", hash)
		}
	}
	if len(want) != len(h.copies[kv.HBM]) {
		t.Errorf("%d blocks cached, %d told", len(want), len(h.copies[kv.HBM]))
	}

	worker, err := engine.NewWorker("test", spec)
	if err != nil {
		t.Fatal(err)
	}
	defer worker.Close()
	seen, err := worker.Scrape(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r := seen.Rank(0)
	if !seen.ProcessStartSeconds.Known || r.HBMTokens.Value != 16*1024 || r.BlockTokens.Value != 16 || !r.KVUsage.Known || !r.Running.Known || r.PrefixQueriesTokens.Value != 500 {
		t.Errorf("scraped %+v", seen)
	}
}

// From its URL alone the router finds out that a worker is SGLang, where its
// events are and what its metrics say.
func TestRouterDetectsSGLang(t *testing.T) {
	w := startSGLang(t, func(c *Config) {
		c.PoolTokens, c.MaxModelLen = 1600, 1500
		c.Tiers = []model.TierConfig{{Tier: kv.CPU, CapacityTokens: 6400}}
	})
	for _, seed := range []int{1, 2, 1} {
		complete(t, w.URL()+"/v1/completions", obj{"prompt": words(seed, 4000), "max_tokens": 1})
	}
	spec, err := engine.ParseSpec(w.URL())
	if err != nil {
		t.Fatal(err)
	}
	worker, err := engine.NewWorker("test", spec)
	if err != nil {
		t.Fatal(err)
	}
	defer worker.Close()
	id, err := worker.Detect(t.Context())
	if err != nil || id.Engine != engine.SGLang || id.Version != "0.5.18" || id.Events != w.EventsEndpoint() || id.BlockTokens != 16 || id.ApproximateReason != "" {
		t.Errorf("detected %+v, %v", id, err)
	}
	seen, err := worker.Scrape(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r, st := seen.Rank(0), w.Stats()
	if r.HBMTokens.Value != 1600 || r.BlockTokens.Value != 16 || r.PrefixQueriesTokens.Value != 3000 || !r.Running.Known || !r.Waiting.Known ||
		r.ExternalHitsTokens.Value != float64(st.TierHitTokens()) || st.TierHitTokens() == 0 {
		t.Errorf("scraped %+v", r)
	}
	if cpu := r.Tiers[kv.CPU]; cpu.LoadBytes.Value != float64(st.Lower[0].LoadedBytes) || cpu.LoadSeconds.Value <= 0 {
		t.Errorf("scraped of the CPU's link: %+v", cpu)
	}
}
