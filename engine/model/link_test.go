package model

import (
	"testing"

	"github.com/rhizome-router/rhizome/kv"
)

// loaded returns a worker whose CPU tier has two prompts of 40 blocks, 640
// tokens of 64,000 B each, and whose HBM has neither; loading one takes 50 µs
// and 640 µs.
func loaded(t *testing.T, change func(*Config)) *Worker {
	c := small(1600)
	if change != nil {
		change(&c)
	}
	w := newWorker(t, c)
	for id := range uint64(2) {
		submit(t, w, 0, Request{ID: id, PromptTokens: 641, OutputTokens: 1, Keys: keys(id, 40)})
	}
	submit(t, w, 1e6, Request{ID: 2, PromptTokens: 1500, OutputTokens: 1, Keys: keys(2, 93)})
	drain(w, func(Event) {})
	w.Advance(2e6, func(Event) {})
	return w
}

// loadTwo submits both and returns when their first tokens came.
func loadTwo(t *testing.T, w *Worker, meanwhile func()) (first, second float64) {
	var l log
	for id := range uint64(2) {
		submit(t, w, 2e6, Request{ID: id, PromptTokens: 641, OutputTokens: 1, Keys: keys(id, 40)})
	}
	if meanwhile != nil {
		w.Advance(2e6+370, l.sink)
		meanwhile()
	}
	drain(w, l.sink)
	return l.one(t, FirstToken, 0).At - 2e6, l.one(t, FirstToken, 1).At - 2e6
}

func TestSharedLink(t *testing.T) {
	w := loaded(t, func(c *Config) { c.Tiers[0].Sharing = true })
	step := lin.A + 2*lin.E + 2*lin.Q*640.5 // both are ready at once
	first, second := loadTwo(t, w, nil)
	if !near(first, 2*690+step) || !near(second, first) {
		t.Errorf("first tokens after %v and %v, want %v: both at half the speed", first, second, 2*690+step)
	}
	if st := w.Stats().Lower[0]; st.Loads != 2 || !near(st.LoadedMicros, 4*690) || st.LoadedBytes != 2*640*64000 {
		t.Errorf("%+v, want two loads that took 1380 µs each", st)
	}
}

// The link slows down to a tenth when the first load has 320 µs to go.
func TestLinkIsSlowedByOthers(t *testing.T) {
	w := loaded(t, nil)
	step := lin.A + lin.E + lin.Q*640.5
	first, second := loadTwo(t, w, func() {
		if err := w.SetLink(kv.CPU, 6.4e9); err != nil {
			t.Fatal(err)
		}
	})
	if want := 370 + 3200 + step; !near(first, want) {
		t.Errorf("first token after %v, want %v", first, want)
	}
	if want := 370 + 3200 + 2*step; !near(second, want) { // 6900 µs pass meanwhile
		t.Errorf("second token after %v, want %v", second, want)
	}
	for _, bad := range []float64{0, -1} {
		if w.SetLink(kv.CPU, bad) == nil {
			t.Errorf("%v B/s was accepted", bad)
		}
	}
	if w.SetLink(kv.Disk, 1e9) == nil {
		t.Error("a tier that isn't there was accepted")
	}
}

func TestSetupNoise(t *testing.T) {
	noise := []float64{3, 0}
	w := loaded(t, func(c *Config) {
		c.SetupNoise = func() float64 {
			next := noise[0]
			noise = noise[1:]
			return next
		}
	})
	step := lin.A + lin.E + lin.Q*640.5
	if first, _ := loadTwo(t, w, nil); !near(first, 150+640+step) {
		t.Errorf("first token after %v, want %v", first, 150+640+step)
	}
	if got := w.Stats().Lower[0].LoadedMicros; !near(got, 150+640+640) {
		t.Errorf("loads took %v, want %v", got, 150+640+640)
	}
}

// By write-through blocks are in the CPU tier when they are stored, not when
// they are evicted, and an eviction moves nothing.
func TestWriteThrough(t *testing.T) {
	c := small(1600)
	c.WriteThrough = true
	w := newWorker(t, c)
	var l log
	submit(t, w, 0, Request{ID: 1, PromptTokens: 640, OutputTokens: 17, Keys: keys(1, 41)})
	drain(w, l.sink)
	copied := 0
	for _, e := range l.of(Stored, 1) {
		if e.Tier == kv.CPU {
			copied += len(e.Blocks)
		}
	}
	if copied != 41 || w.Stats().Evictions != 0 {
		t.Fatalf("%d blocks were copied, want the prompt's 40 and the answer's one", copied)
	}
	l = log{}
	submit(t, w, 1e6, Request{ID: 2, PromptTokens: 1500, OutputTokens: 1, Keys: keys(2, 93)})
	drain(w, l.sink)
	for _, e := range l.events {
		if e.Kind == Stored && e.ID != 2 {
			t.Errorf("an eviction stored %+v", e)
		}
	}
	if st := w.Stats(); st.Evictions != 35 || st.Lower[0].UsedBlocks != 41+93 || st.Lower[0].StoredBytes != (41+93)*16*64000 {
		t.Errorf("%+v", st)
	}
	l = log{}
	submit(t, w, 2e6, Request{ID: 3, PromptTokens: 641, OutputTokens: 1, Keys: keys(1, 40)})
	drain(w, l.sink)
	if e := l.one(t, FirstToken, 3); e.HBMTokens+e.TierTokens != 640 || e.TierTokens == 0 {
		t.Errorf("found %+v, want 640 in both tiers", e)
	}
}

// On a shared link a small transfer overtakes a large one.
func TestSmallLoadOvertakes(t *testing.T) {
	l := newLink(TierConfig{BytesPerSecond: 1e6, Sharing: true}) // a byte a microsecond
	l.begin(0, &upload{serial: 1, bytes: 100}, 1)
	l.begin(20, &upload{serial: 2, bytes: 30}, 1)
	// 80 bytes are left of 1, both at half the speed: 2 is done at 80, then 1 has
	// 50 left.
	if got := l.due(); got != 80 {
		t.Fatalf("the first is due at %v, want 80", got)
	}
	if done := l.take(200); len(done) != 2 || done[0].serial != 2 || done[1].serial != 1 || l.at != 130 {
		t.Errorf("%d are done, the last at %v, want both, 2 first, and 1 at 130", len(done), l.at)
	}
}

// What arrived before the link changed its speed has arrived, even if the
// engine only looks later.
func TestLinkChangesAfterALoad(t *testing.T) {
	l := newLink(TierConfig{BytesPerSecond: 1e6})
	l.begin(0, &upload{serial: 1, bytes: 100}, 1)
	l.begin(0, &upload{serial: 2, bytes: 100}, 1)
	l.setBandwidth(150, 0.5)
	if got := l.due(); got != 100 {
		t.Errorf("due at %v, want 100", got)
	}
	if done := l.take(249); len(done) != 1 || l.due() != 250 {
		t.Errorf("%d are done, the next at %v, want one, and the next at 250", len(done), l.due())
	}
}

// A request that is cancelled while it loads goes when the load is done: its
// blocks are being written.
func TestCancelWhileLoading(t *testing.T) {
	w := loaded(t, nil)
	var l log
	submit(t, w, 2e6, Request{ID: 0, PromptTokens: 641, OutputTokens: 9, Keys: keys(0, 40)})
	submit(t, w, 2e6, Request{ID: 9, PromptTokens: 1, OutputTokens: 9})
	w.Advance(2e6+10, l.sink)
	if err := w.SetLink(kv.CPU, 1e9); err != nil {
		t.Fatal(err)
	}
	if w.Cancel(0) {
		t.Fatal("gone at once")
	}
	drain(w, l.sink)
	if e := l.one(t, Cancelled, 0); e.At < 2e6+640*64 || len(l.of(FirstToken, 0)) > 0 {
		t.Errorf("%+v, want it after the load of 41 ms and without a token", e)
	}
	stored := l.of(Stored, 0) // the last ones are the loaded
	if e := stored[len(stored)-1]; e.Tier != kv.HBM || len(e.Blocks) != 40 || e.At > l.one(t, Cancelled, 0).At {
		t.Errorf("%+v, want 40 blocks told before the end", e)
	}
}
