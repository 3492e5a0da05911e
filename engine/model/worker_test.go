package model

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/rhizome-router/rhizome/kv"
)

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-6*max(1, math.Abs(b)) }

func TestLoneRequest(t *testing.T) {
	w := newWorker(t, small(160000))
	var l log
	submit(t, w, 1000, Request{ID: 1, PromptTokens: 1500, OutputTokens: 101})
	drain(w, l.sink)
	p := 1500.0
	ttft := lin.A + lin.E*p + lin.Q*p*p/2
	first := l.one(t, FirstToken, 1)
	if !near(first.At, 1000+ttft) {
		t.Errorf("first token at %v, want %v", first.At, 1000+ttft)
	}
	decode := 100*(lin.A+lin.B+lin.C*p) + lin.C*100*99/2
	if done := l.one(t, Finished, 1); !near(done.At, first.At+decode) || done.Tokens != 101 {
		t.Errorf("finished %+v, want at %v", done, first.At+decode)
	}
}

func TestTokensAtTheirTime(t *testing.T) {
	w := newWorker(t, small(160000))
	var l log
	submit(t, w, 0, Request{ID: 1, PromptTokens: 100, OutputTokens: 20})
	for {
		at, ok := w.NextIteration()
		if !ok {
			break
		}
		w.Advance(at, l.sink)
		w.ReportTokens(l.sink)
	}
	at := l.one(t, FirstToken, 1).At
	tokens := l.of(Tokens, 1)
	if len(tokens) != 19 {
		t.Fatalf("%d token events, want 19", len(tokens))
	}
	for i, e := range tokens {
		at += lin.A + lin.B + lin.C*float64(100+i)
		if e.Tokens != 1 || !near(e.At, at) {
			t.Fatalf("token %d: %+v, want at %v", i, e, at)
		}
	}
}

func TestChunkedPrefillAndMixedIteration(t *testing.T) {
	c := small(160000)
	c.BudgetTokens = 1000
	w := newWorker(t, c)
	var l log
	submit(t, w, 0, Request{ID: 1, PromptTokens: 100, OutputTokens: 50})
	submit(t, w, 1, Request{ID: 2, PromptTokens: 1500, OutputTokens: 1})
	drain(w, l.sink)
	// 1 alone: 100 tokens. Then 1 decodes while 2 gets 999, then 501 tokens.
	t1 := lin.A + lin.E*100 + lin.Q*100*50
	t2 := t1 + lin.A + lin.B + lin.C*100 + lin.E*999 + lin.Q*999*999/2
	t3 := t2 + lin.A + lin.B + lin.C*101 + lin.E*501 + lin.Q*501*(999+501.0/2)
	if e := l.one(t, FirstToken, 1); !near(e.At, t1) {
		t.Errorf("first token of 1 at %v, want %v", e.At, t1)
	}
	if e := l.one(t, FirstToken, 2); !near(e.At, t3) {
		t.Errorf("first token of 2 at %v, want %v", e.At, t3)
	}
}

func TestPrefillFirstStallsDecodes(t *testing.T) {
	c := small(160000)
	c.Schedule = PrefillFirst
	w := newWorker(t, c)
	var l log
	submit(t, w, 0, Request{ID: 1, PromptTokens: 100, OutputTokens: 2})
	submit(t, w, 1, Request{ID: 2, PromptTokens: 1500, OutputTokens: 1})
	drain(w, l.sink)
	t1 := lin.A + lin.E*100 + lin.Q*100*50
	t2 := t1 + lin.A + lin.E*1500 + lin.Q*1500*750
	t3 := t2 + lin.A + lin.B + lin.C*100
	if got := l.one(t, Finished, 2).At; !near(got, t2) {
		t.Errorf("prefill ends at %v, want %v", got, t2)
	}
	if got := l.one(t, Finished, 1).At; !near(got, t3) {
		t.Errorf("decode ends at %v, want %v", got, t3)
	}
}

func TestHBMHit(t *testing.T) {
	w := newWorker(t, small(160000))
	var l log
	k := keys(1, 20)
	submit(t, w, 0, Request{ID: 1, PromptTokens: 160, OutputTokens: 17, Keys: k})
	drain(w, l.sink)
	// KV of 160 + 16 tokens is there: 11 blocks, the last filled by decoding.
	l = log{}
	submit(t, w, 1e6, Request{ID: 2, PromptTokens: 200, OutputTokens: 1, Keys: k[:12]})
	drain(w, l.sink)
	first := l.one(t, FirstToken, 2)
	if first.HBMTokens != 176 || first.TierTokens != 0 {
		t.Fatalf("hit %+v, want 176 tokens in HBM", first)
	}
	if want := 1e6 + lin.A + lin.E*24 + lin.Q*24*(176+12); !near(first.At, want) {
		t.Errorf("first token at %v, want %v", first.At, want)
	}
	// A prompt of whole blocks still computes its last one: at least a token.
	submit(t, w, 2e6, Request{ID: 3, PromptTokens: 176, OutputTokens: 1, Keys: k[:11]})
	drain(w, l.sink)
	if e := l.one(t, FirstToken, 3); e.HBMTokens != 160 {
		t.Errorf("hit %d tokens, want 160", e.HBMTokens)
	}
}

func TestSamePrefixAtOnceIsComputedOnce(t *testing.T) {
	w := newWorker(t, small(1600000))
	var l log
	k := keys(1, 500)
	for id := range uint64(28) {
		submit(t, w, 0, Request{ID: id, PromptTokens: 8001, OutputTokens: 1, Keys: k})
	}
	drain(w, l.sink)
	if got := w.Stats().ComputedTokens; got != 8001+27 {
		t.Errorf("%d tokens computed, want 8028", got)
	}
}

func TestCPUHitLoads(t *testing.T) {
	w := newWorker(t, small(1600)) // 100 blocks, 95 to admit
	var l log
	submit(t, w, 0, Request{ID: 1, PromptTokens: 640, OutputTokens: 1, Keys: keys(1, 40)})
	drain(w, l.sink)
	submit(t, w, 1e6, Request{ID: 2, PromptTokens: 1500, OutputTokens: 1, Keys: keys(2, 93)})
	l = log{}
	drain(w, l.sink)
	// 94 blocks were needed and 60 blank, so 34 left, the deepest first.
	var removed, spilled []kv.EngineHash
	for _, e := range l.events {
		switch {
		case e.Kind == Removed && e.Tier == kv.HBM:
			removed = append(removed, e.Blocks...)
		case e.Kind == Stored && e.Tier == kv.CPU:
			spilled = append(spilled, e.Blocks...)
			if !e.HasParent || e.Parent != keys(1, 40)[5] {
				t.Errorf("spilled run %+v, want parent block 5", e)
			}
		}
	}
	want := slices.Clone(keys(1, 40)[6:])
	if !slices.Equal(spilled, want) {
		t.Errorf("spilled %d blocks, want the last 34 in order", len(spilled))
	}
	slices.Reverse(want)
	if !slices.Equal(removed, want) {
		t.Errorf("removed %d blocks, want the last 34, deepest first", len(removed))
	}

	l = log{}
	submit(t, w, 2e6, Request{ID: 3, PromptTokens: 645, OutputTokens: 1, Keys: keys(1, 40)})
	drain(w, l.sink)
	first := l.one(t, FirstToken, 3)
	if first.HBMTokens != 6*16 || first.TierTokens != 34*16 {
		t.Fatalf("hits %+v, want 96 and 544", first)
	}
	load := 50 + 34*16*64000/64000.0
	if want := 2e6 + load + lin.A + lin.E*5 + lin.Q*5*642.5; !near(first.At, want) {
		t.Errorf("first token at %v, want %v", first.At, want)
	}
	if st := w.Stats(); st.Lower[0].HitTokens != 544 || st.Lower[0].LoadedBytes != 544*64000 {
		t.Errorf("stats %+v", st.Lower[0])
	}
}

func TestLoadsQueueOnTheLink(t *testing.T) {
	w := newWorker(t, small(1600))
	var l log
	for id := range uint64(2) {
		submit(t, w, 0, Request{ID: id, PromptTokens: 641, OutputTokens: 1, Keys: keys(id, 40)})
	}
	submit(t, w, 1e6, Request{ID: 2, PromptTokens: 1500, OutputTokens: 1, Keys: keys(2, 93)})
	drain(w, l.sink)
	l = log{}
	for id := range uint64(2) {
		submit(t, w, 2e6, Request{ID: id, PromptTokens: 641, OutputTokens: 1, Keys: keys(id, 40)})
	}
	drain(w, l.sink)
	step := lin.A + lin.E + lin.Q*640.5
	if e := l.one(t, FirstToken, 0); !near(e.At, 2e6+690+step) {
		t.Errorf("first load: %v", e.At-2e6)
	}
	if e := l.one(t, FirstToken, 1); !near(e.At, 2e6+690+2*step) { // loaded meanwhile
		t.Errorf("second load: %v", e.At-2e6)
	}
}

func TestPreemption(t *testing.T) {
	w := newWorker(t, small(320)) // 20 blocks, 19 to admit
	var l log
	submit(t, w, 0, Request{ID: 1, PromptTokens: 128, OutputTokens: 120})
	submit(t, w, 0, Request{ID: 2, PromptTokens: 128, OutputTokens: 120})
	drain(w, l.sink)
	if len(l.of(Preempted, 1)) != 0 || len(l.of(Preempted, 2)) == 0 {
		t.Fatalf("the newest must be preempted: %d, %d", len(l.of(Preempted, 1)), len(l.of(Preempted, 2)))
	}
	for id := uint64(1); id <= 2; id++ {
		n := len(l.of(FirstToken, id))
		for _, e := range l.of(Tokens, id) {
			n += e.Tokens
		}
		if n != 120 || l.one(t, Finished, id).Tokens != 120 {
			t.Errorf("request %d put out %d tokens, want 120", id, n)
		}
	}
}

func TestCancel(t *testing.T) {
	w := newWorker(t, small(320))
	var l log
	submit(t, w, 0, Request{ID: 1, PromptTokens: 250, OutputTokens: 50})
	submit(t, w, 0, Request{ID: 2, PromptTokens: 250, OutputTokens: 1})
	submit(t, w, 0, Request{ID: 3, PromptTokens: 250, OutputTokens: 1})
	w.Advance(20000, l.sink)
	if st := w.Stats(); st.Running != 1 || st.Waiting != 2 {
		t.Fatalf("running %d, waiting %d", st.Running, st.Waiting)
	}
	if w.Cancel(1) || w.Cancel(1) || !w.Cancel(3) || w.Cancel(9) {
		t.Error("Cancel must tell whether the request has gone at once")
	}
	drain(w, l.sink)
	l.one(t, Cancelled, 1)
	l.one(t, Finished, 2)
	if len(l.of(FirstToken, 3)) != 0 {
		t.Error("a cancelled request ran")
	}
	if st := w.Stats(); st.Running+st.Waiting+st.HBM.UsedBlocks+len(w.seqs) != 0 {
		t.Errorf("left over: %+v, %d sequences", st, len(w.seqs))
	}
}

func TestRefused(t *testing.T) {
	w := newWorker(t, small(320))
	if err := w.Submit(0, Request{ID: 1, PromptTokens: 290, OutputTokens: 16}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("got %v", err)
	}
	for _, r := range []Request{{ID: 1, OutputTokens: 1}, {ID: 1, PromptTokens: 1}, {ID: 1, PromptTokens: 1 << 62, OutputTokens: 1 << 62}} {
		if err := w.Submit(0, r); !errors.Is(err, ErrInvalid) {
			t.Errorf("%+v: got %v", r, err)
		}
	}
	submit(t, w, 0, Request{ID: 1, PromptTokens: 288, OutputTokens: 16})
	if err := w.Submit(0, Request{ID: 1, PromptTokens: 1, OutputTokens: 1}); !errors.Is(err, ErrInvalid) {
		t.Errorf("same ID: got %v", err)
	}
	for _, c := range []Config{{BlockTokens: -1}, {PoolTokens: 8}, {Watermark: 2}, {BudgetTokens: 10, MaxSeqs: 11}, {Tiers: []TierConfig{{Tier: kv.HBM}}}} {
		if _, err := New(c); err == nil {
			t.Errorf("%+v was accepted", c)
		}
	}
}

func TestPresets(t *testing.T) {
	for _, p := range Presets() {
		if got, err := PresetByName(p.Name); err != nil || got != p {
			t.Errorf("%s: %+v, %v", p.Name, got, err)
		}
		newWorker(t, Config{Preset: p})
	}
	if p, _ := PresetByName(""); p.Name != DefaultPreset {
		t.Errorf("default preset %q", p.Name)
	}
	if _, err := PresetByName("abacus"); err == nil {
		t.Error("an unknown preset was accepted")
	}
}

// SGLang's way: what decoding filled enters the cache when the request ends,
// and is told before that end.
func TestRadixTreeCachesAtEnd(t *testing.T) {
	c := small(160000)
	c.RadixTree = true
	w := newWorker(t, c)
	var l log
	k := keys(1, 20)
	submit(t, w, 0, Request{ID: 1, PromptTokens: 160, OutputTokens: 49, Keys: k})
	drain(w, l.sink)
	stored := l.of(Stored, 1)
	if len(stored) != 2 || len(stored[0].Blocks) != 10 || len(stored[1].Blocks) != 3 || stored[1].At != l.one(t, Finished, 1).At {
		t.Fatalf("stored %+v, want 10 blocks of the prompt, then 3 of the answer at its end", stored)
	}
	l = log{}
	submit(t, w, 1e6, Request{ID: 2, PromptTokens: 300, OutputTokens: 1, Keys: k[:13]})
	drain(w, l.sink)
	if first := l.one(t, FirstToken, 2); first.HBMTokens != 208 {
		t.Errorf("hit %d tokens, want 208", first.HBMTokens)
	}
}

func TestClearCacheOfAllTiers(t *testing.T) {
	c := small(320)
	w := newWorker(t, c)
	var l log
	for i := range 3 {
		submit(t, w, 0, Request{ID: uint64(i), PromptTokens: 160, OutputTokens: 1, Keys: keys(uint64(i), 10)})
	}
	drain(w, l.sink)
	if n := w.Stats().Lower[0].UsedBlocks; n == 0 {
		t.Fatal("nothing was spilled: the test tests nothing")
	}
	if !w.ClearCache(true, l.sink) {
		t.Fatal("refused on an idle worker")
	}
	for _, tier := range []kv.Tier{kv.HBM, kv.CPU} {
		for h := range w.Cached(tier) {
			t.Fatalf("block %x is left on %v", h, tier)
		}
	}
	l = log{}
	submit(t, w, 1e6, Request{ID: 9, PromptTokens: 160, OutputTokens: 1, Keys: keys(0, 10)})
	drain(w, l.sink)
	if first := l.one(t, FirstToken, 9); first.HBMTokens+first.TierTokens != 0 {
		t.Errorf("found %+v after a clear", first)
	}
}

func TestWaitingTokens(t *testing.T) {
	c := small(1600)
	c.MaxSeqs = 1
	w := newWorker(t, c)
	var l log
	submit(t, w, 0, Request{ID: 1, PromptTokens: 160, OutputTokens: 1, Keys: keys(1, 10)})
	drain(w, l.sink)
	w.Advance(1e6, l.sink)
	submit(t, w, 1e6, Request{ID: 2, PromptTokens: 500, OutputTokens: 100, Keys: keys(1, 30)})
	submit(t, w, 1e6, Request{ID: 3, PromptTokens: 320, OutputTokens: 1, Keys: keys(2, 20)})
	if n := w.WaitingTokens(); n != 500-160+320 {
		t.Errorf("%d tokens wait, want 660", n)
	}
	w.Advance(1e6, l.sink)
	if n := w.WaitingTokens(); n != 320 {
		t.Errorf("%d tokens wait behind the one that runs, want 320", n)
	}
}

// Two sequences compute the same blocks at once: a tree keeps and tells them
// once, a pool twice.
func TestRadixTreeHoldsEachBlockOnce(t *testing.T) {
	for _, tree := range []bool{false, true} {
		c := small(160000)
		c.RadixTree = tree
		w := newWorker(t, c)
		var l log
		k := keys(1, 12)
		submit(t, w, 0, Request{ID: 1, PromptTokens: 160, OutputTokens: 20, Keys: k})
		submit(t, w, 0, Request{ID: 2, PromptTokens: 160, OutputTokens: 20, Keys: k})
		w.Advance(0, l.sink)
		drain(w, l.sink)
		copies := map[kv.EngineHash]int{}
		for _, e := range l.events {
			if e.Kind == Stored {
				for _, h := range e.Blocks {
					copies[h]++
				}
			}
		}
		want := 2
		if tree {
			want = 1
		}
		if last := k[10]; copies[last] != want || len(copies) != 11 {
			t.Errorf("tree %v: block 11 was told %d times of %d blocks, want %d times of 11", tree, copies[last], len(copies), want)
		}
	}
}
