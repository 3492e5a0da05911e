package model

import (
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/rhizome-router/rhizome/kv"
)

func tinyConfig(t *rapid.T) Config {
	tokens := rapid.IntRange(12, 40).Draw(t, "pool blocks") * 4
	c := Config{
		Preset:      Preset{Name: "tiny", Linear: lin, KVBytesPerToken: rapid.SampledFrom([]int64{100, 1e7, 1e9}).Draw(t, "kv bytes"), PoolTokens: tokens},
		BlockTokens: 4, BudgetTokens: 32, MaxSeqs: 6,
		Timing: rapid.SampledFrom([]Timing{
			nil, Padded{lin}, Mocker{PoolTokens: tokens}, Windowed{Linear: lin, WindowC: 3, WindowQ: 0.02, Window: 10},
		}).Draw(t, "timing"),
		Schedule:     rapid.SampledFrom([]Schedule{Mixed, PrefillFirst}).Draw(t, "schedule"),
		Admit:        rapid.SampledFrom([]Admission{WholePrompt, PerChunk, SGLangRatio}).Draw(t, "admission"),
		RadixTree:    rapid.Bool().Draw(t, "radix tree"),
		WriteThrough: rapid.Bool().Draw(t, "write through"),
		Tiers:        []TierConfig{},
	}
	if c.Preset.WindowTokens = rapid.SampledFrom([]int{0, 0, 4, 10}).Draw(t, "window"); c.Preset.WindowTokens > 0 {
		return c
	}
	for i, tier := range []kv.Tier{kv.CPU, kv.Disk}[:rapid.IntRange(0, 2).Draw(t, "tiers")] {
		blocks := rapid.SampledFrom([]int{1, 3, tokens / 4 * (i + 1)}).Draw(t, "tier blocks")
		c.Tiers = append(c.Tiers, TierConfig{Tier: tier, CapacityTokens: 4 * blocks, BytesPerSecond: 1e9, Sharing: rapid.Bool().Draw(t, "sharing")})
	}
	return c
}

func drawRequest(t *rapid.T, id uint64) Request {
	prompt := rapid.IntRange(1, 40).Draw(t, "prompt")
	output := rapid.IntRange(1, 12).Draw(t, "output")
	// Families share a prefix with their forks: same blocks below the fork.
	k := keys(uint64(rapid.IntRange(0, 2).Draw(t, "family")), (prompt+output)/4)
	fork := rapid.IntRange(0, len(k)).Draw(t, "fork")
	for i := fork; i < len(k); i++ {
		k[i] += kv.EngineHash(uint64(rapid.IntRange(0, 1).Draw(t, "branch")) << 60)
	}
	return Request{ID: id, PromptTokens: prompt, OutputTokens: output, MaxTokens: output + rapid.IntRange(0, 60).Draw(t, "spare"), Keys: k}
}

// changeWorld changes the speed of the links or of the worker.
func changeWorld(t *rapid.T, w *Worker) {
	bandwidth := rapid.SampledFrom([]float64{1e8, 1e9, 7e9}).Draw(t, "bandwidth")
	for _, tier := range w.Config().Tiers {
		if err := w.SetLink(tier.Tier, bandwidth); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.SetSlowdown(rapid.Float64Range(0.5, 4).Draw(t, "factor")); err != nil {
		t.Fatal(err)
	}
}

func TestNothingIsLost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, err := New(tinyConfig(t))
		if err != nil {
			t.Fatal(err)
		}
		m := newMirror()
		m.allTiers = rapid.Bool().Draw(t, "clear all tiers")
		ends := map[uint64]int{}
		requests := map[uint64]Request{}
		accepted, gone := 0, 0
		sink := func(e Event) {
			m.apply(e)
			switch e.Kind {
			case Finished, Cancelled, Lost:
				ends[e.ID]++
			case Stored:
				if e.ID == 0 {
					return
				}
				if r, ok := requests[e.ID]; !ok || ends[e.ID] != 0 || !slices.Equal(r.Keys[e.First:e.First+len(e.Blocks)], e.Blocks) {
					t.Fatalf("%+v does not match request %+v", e, r)
				}
			}
		}
		now, id := 0.0, uint64(0)
		t.Repeat(map[string]func(*rapid.T){
			"submit": func(t *rapid.T) {
				id++
				requests[id] = drawRequest(t, id)
				if w.Submit(now, requests[id]) == nil {
					accepted++
				}
			},
			"cancel": func(t *rapid.T) {
				if id > 0 && w.Cancel(uint64(rapid.IntRange(1, int(id)).Draw(t, "id"))) {
					gone++
				}
			},
			"advance": func(t *rapid.T) {
				now += rapid.Float64Range(0, 200000).Draw(t, "micros")
				w.Advance(now, sink)
			},
			"clear":  func(t *rapid.T) { w.ClearCache(m.allTiers, sink) },
			"report": func(t *rapid.T) { w.ReportTokens(sink) },
			"world":  func(t *rapid.T) { changeWorld(t, w) },
			"reset": func(t *rapid.T) {
				if rapid.IntRange(0, 3).Draw(t, "really") > 0 {
					return
				}
				w.Reset(sink)
				m.forget()
				if st := w.Stats(); len(w.seqs)+st.Running+st.Waiting+st.HBM.CachedBlocks != 0 {
					t.Fatalf("something survived: %+v", st)
				}
			},
			"": func(t *rapid.T) { check(t, w, m) },
		})
		drain(w, sink)
		check(t, w, m)
		st := w.Stats()
		if w.journal.pending || len(w.seqs)+st.Running+st.Waiting+st.HBM.UsedBlocks != 0 {
			t.Fatalf("not idle in the end: %+v", st)
		}
		for id, n := range ends {
			if n != 1 {
				t.Fatalf("request %d ended %d times", id, n)
			}
		}
		if len(ends)+gone != accepted {
			t.Fatalf("%d requests, %d ended, %d were withdrawn while they waited", accepted, len(ends), gone)
		}
	})
}

// run plays a schedule and returns the events that do not depend on how often
// Advance is called.
func run(t *rapid.T, cfg Config, rs []Request, at []float64, world func(w *Worker, i int), advance func(w *Worker, until float64, sink Sink), everyStep bool) ([]Event, Stats) {
	w, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	w.everyStep = everyStep
	var l log
	sink := func(e Event) {
		if e.Kind != Tokens {
			l.sink(e)
		}
	}
	for i, r := range rs {
		advance(w, at[i], sink)
		w.Advance(at[i], sink)
		world(w, i)
		_ = w.Submit(at[i], r)
	}
	advance(w, math.Inf(1), sink)
	return l.events, w.Stats()
}

func TestJumpEqualsSteps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := tinyConfig(t)
		var rs []Request
		var at, slow, bandwidth []float64
		now := 0.0
		for i := range rapid.IntRange(1, 25).Draw(t, "requests") {
			slow = append(slow, rapid.SampledFrom([]float64{0, 0, 0, 0.5, 3}).Draw(t, "slow"))
			bandwidth = append(bandwidth, rapid.SampledFrom([]float64{0, 0, 0, 1e8, 7e9}).Draw(t, "bandwidth"))
			now += rapid.Float64Range(0, 100000).Draw(t, "gap")
			rs, at = append(rs, drawRequest(t, uint64(i+1))), append(at, now)
		}
		// The world changes when requests come.
		world := func(w *Worker, i int) {
			if slow[i] > 0 {
				_ = w.SetSlowdown(slow[i])
			}
			if bandwidth[i] > 0 {
				_ = w.SetLink(kv.CPU, bandwidth[i])
			}
		}
		big := func(w *Worker, until float64, sink Sink) {
			if math.IsInf(until, 1) {
				drain(w, sink)
				return
			}
			w.Advance(until, sink)
		}
		byEvent := func(w *Worker, until float64, sink Sink) {
			for {
				next, ok := w.Next()
				if !ok || next > until {
					return
				}
				w.Advance(next, func(e Event) {
					if e.At < next && e.Kind != Stored && e.Kind != Removed && e.Kind != Tokens {
						t.Fatalf("event %+v before Next said: %v", e, next)
					}
					sink(e)
				})
			}
		}
		bySteps := func(w *Worker, until float64, sink Sink) {
			for {
				next, ok := w.NextIteration()
				if !ok || next > until {
					return
				}
				w.Advance(next, sink)
			}
		}
		want, wantStats := run(t, cfg, rs, at, world, big, false)
		got, stats := run(t, cfg, rs, at, world, byEvent, false)
		if d := cmp.Diff(want, got); d != "" {
			t.Fatalf("by Next (-jump +next):\n%s", d)
		}
		if d := cmp.Diff(wantStats, stats); d != "" {
			t.Logf("stats by Next (-jump +next):\n%s", d)
		}
		got, _ = run(t, cfg, rs, at, world, bySteps, false)
		if d := cmp.Diff(want, got); d != "" {
			t.Fatalf("by NextIteration (-jump +steps):\n%s", d)
		}
		// Forming every iteration anew sums up the same durations one by one.
		got, _ = run(t, cfg, rs, at, world, bySteps, true)
		approx := cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) <= 1e-6*max(1, a) })
		if d := cmp.Diff(want, got, approx); d != "" {
			t.Fatalf("every step anew (-jump +steps):\n%s", d)
		}
	})
}
