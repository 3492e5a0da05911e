package model

import (
	"testing"

	"github.com/rhizome-router/rhizome/kv"
)

// log collects events.
type log struct{ events []Event }

func (l *log) sink(e Event) {
	if e.Blocks != nil {
		e.Blocks = append([]kv.EngineHash(nil), e.Blocks...)
	}
	l.events = append(l.events, e)
}

func (l *log) of(k Kind, id uint64) []Event {
	var out []Event
	for _, e := range l.events {
		if e.Kind == k && e.ID == id {
			out = append(out, e)
		}
	}
	return out
}

func (l *log) one(t *testing.T, k Kind, id uint64) Event {
	t.Helper()
	es := l.of(k, id)
	if len(es) != 1 {
		t.Fatalf("%d events of kind %d for request %d, want 1", len(es), k, id)
	}
	return es[0]
}

func newWorker(t testing.TB, c Config) *Worker {
	t.Helper()
	w, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func submit(t testing.TB, w *Worker, at float64, r Request) {
	t.Helper()
	if err := w.Submit(at, r); err != nil {
		t.Fatal(err)
	}
}

// drain runs the worker until nothing is left to do.
func drain(w *Worker, sink Sink) {
	for {
		at, ok := w.Next()
		if !ok {
			return
		}
		w.Advance(at, sink)
	}
}

// keys names n blocks of a chain that is shared with other chains of the same
// family up to where their ids differ.
func keys(family uint64, n int) []kv.EngineHash {
	out := make([]kv.EngineHash, n)
	for i := range out {
		out[i] = kv.EngineHash(family<<32 | uint64(i+1))
	}
	return out
}

var lin = Linear{A: 10000, B: 100, C: 1, E: 10, Q: 0.01}

func small(tokens int) Config {
	return Config{
		Preset: Preset{Name: "test", Linear: lin, KVBytesPerToken: 64000, PoolTokens: tokens},
		Tiers:  []TierConfig{{Tier: kv.CPU, CapacityTokens: 4 * tokens, BytesPerSecond: 64e9, SetupMicros: 50}},
	}
}
