package emulator

import (
	"context"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rhizome-router/rhizome/engine"
	"github.com/rhizome-router/rhizome/engine/kvwire"
)

// following is a router's feed of a worker, and the cache that it tells of.
type following struct {
	feed   *engine.Feed
	events chan engine.FeedEvent
	held   *held
	resets int
}

// follow starts a feed and waits until it is connected.
func follow(t *testing.T, w *Worker) *following {
	t.Helper()
	f := &following{events: make(chan engine.FeedEvent), held: newHeld(), feed: engine.NewFeed(engine.FeedConfig{
		Engine: string(w.cfg.Engine), Events: w.EventsEndpoint(), Replay: w.ReplayEndpoint(), Model: "m",
		TailCheck: 20 * time.Millisecond, MaxTailCheck: 20 * time.Millisecond,
		MinBackoff: time.Millisecond, MaxBackoff: 20 * time.Millisecond, Log: w.cfg.Log,
	})}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		_ = f.feed.Run(ctx, func(e engine.FeedEvent) {
			select {
			case f.events <- e:
			case <-ctx.Done():
			}
		})
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
	for f.next(t).Kind != engine.FeedConnected {
	}
	return f
}

// next takes the next event in.
func (f *following) next(t *testing.T) engine.FeedEvent {
	t.Helper()
	e := <-f.events
	switch e.Kind {
	case engine.FeedBatch:
		f.held.apply(t, kvwire.Batch{Ops: e.Ops})
	case engine.FeedReset:
		f.held = newHeld()
		f.resets++
	}
	return e
}

// untilSame waits until the feed has told exactly what the worker holds.
func (f *following) untilSame(t *testing.T, w *Worker) {
	t.Helper()
	for !cmp.Equal(cacheOf(w).copies, f.held.copies) {
		f.next(t)
	}
}

// batches returns how many batches a worker has made, those that are late
// included.
func batches(w *Worker) int {
	n, _ := ask(w, func(o *owner) int {
		o.catchUp()
		seq, kept := o.feed.ring.from(0)
		return int(seq) + len(kept) + len(o.feed.faults.late)
	})
	return n
}

func TestLostEvents(t *testing.T) {
	for _, loss := range []float64{0.5, 1} {
		w := start(t, func(c *Config) {
			c.EventLoss, c.PoolTokens, c.MaxModelLen, c.Speedup = loss, 1600, 1400, 2000
		})
		f := follow(t, w)
		for i := range 12 {
			complete(t, w.URL()+"/v1/completions", obj{"prompt": words(i%5, 2000), "max_tokens": 40})
		}
		f.untilSame(t, w)
		st := f.feed.Stats()
		if made := batches(w); int(st.Messages) > made-3 || loss == 1 && st.Messages > 0 || loss < 1 && st.Messages == 0 {
			t.Errorf("loss of %v: %d of %d batches came live", loss, st.Messages, made)
		}
		if f.resets != 0 {
			t.Errorf("loss of %v: %d resets, though replay has everything", loss, f.resets)
		}
	}
}

func TestLateEvents(t *testing.T) {
	w := start(t, func(c *Config) { c.EventDelay = time.Hour })
	complete(t, w.URL()+"/v1/completions", obj{"prompt": words(1, 1000), "max_tokens": 20})
	if n := len(replayFrom(t, w, 0)); n != 0 || batches(w) == 0 {
		t.Errorf("%d of %d batches left an hour early", n, batches(w))
	}

	const delay = 150 * time.Millisecond
	w = start(t, func(c *Config) { c.EventDelay, c.PoolTokens, c.MaxModelLen = delay, 1600, 1400 })
	l := subscribe(t, w)
	began := time.Now()
	for i := range 6 {
		complete(t, w.URL()+"/v1/completions", obj{"prompt": words(i, 2000), "max_tokens": 20})
	}
	l.waitFor(uint64(batches(w)) - 1)
	l.mu.Lock()
	defer l.mu.Unlock()
	if early := l.firstAt.Sub(began); early < delay {
		t.Errorf("the first batch came after %v, want %v at least", early, delay)
	}
	if !slices.IsSorted(l.order) {
		t.Errorf("they came in the order %v", l.order)
	}
	replay(t, maps.Clone(l.payloads)).check(t, w)
}
