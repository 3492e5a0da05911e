package route

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/rhizome-router/rhizome/fleet"
	"github.com/rhizome-router/rhizome/kv"
	"github.com/rhizome-router/rhizome/prompt"
)

// unstreamed is a prompt whose response shows nothing before its end.
func unstreamed(t testing.TB, n, who int) *prompt.Request {
	t.Helper()
	ids := make([]int, n)
	for i := range ids {
		ids[i] = who*100_000 + i
	}
	raw, err := json.Marshal(map[string]any{"model": "m", "max_tokens": 100, "prompt": ids})
	if err != nil {
		t.Fatal(err)
	}
	p, err := prompt.Parse(prompt.Completion, raw)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// queue returns what explanations say of the only member's queue.
func (h *house) queue(t *testing.T) (tokens int, clockMicros float64) {
	t.Helper()
	e, err := h.Preview(Query{ID: "preview", Prompt: tokensOf(t)})
	if err != nil {
		t.Fatal(err)
	}
	return e.Candidates[0].QueuedTokens, e.Candidates[0].ClockMicros
}

func tokensOf(t *testing.T) *prompt.Request { return tokens(t, 0, 100, 777) }

// The events of a silent request's last block show that its prefill is over,
// long before the prediction would have it.
func TestEventsShowSilentPrefills(t *testing.T) {
	h := newHouse(t, Rhizome, 1)
	m := h.members[0]
	batch := func() {
		c := m.Cache()
		c.Batches++
		m.SetCache(c)
	}
	p := unstreamed(t, 8000, 1)
	d := h.decide(t, p)
	if tokens, micros := h.queue(t); tokens != 8000 || micros <= 0 {
		t.Fatalf("%d tokens, %v µs queued", tokens, micros)
	}
	h.hold(m, p, 0, 499, kv.HBM)
	batch()
	if tokens, _ := h.queue(t); tokens != 8000 {
		t.Errorf("%d tokens queued while the last block is missing", tokens)
	}
	h.hold(m, p, 499, 500, kv.HBM)
	batch()
	if tokens, micros := h.queue(t); tokens != 0 || micros != 0 {
		t.Errorf("%d tokens, %v µs queued after the last block was shown", tokens, micros)
	}
	h.Done(d, Outcome{Result: Completed})

	// A prompt that is there already shows nothing: its time decides.
	d = h.decide(t, p)
	batch()
	if tokens, _ := h.queue(t); tokens == 0 {
		t.Error("the block of another request was taken for the new one's")
	}
	h.clock.Advance(d.PredictedTTFT)
	if tokens, _ := h.queue(t); tokens != 0 {
		t.Errorf("%d tokens queued after the predicted time", tokens)
	}
	h.Done(d, Outcome{Result: Completed})

	// Without the events that could show it, it counts twice as long at most.
	d = h.decide(t, unstreamed(t, 8000, 2))
	h.clock.Advance(2*d.PredictedTTFT - 1)
	if tokens, _ := h.queue(t); tokens == 0 {
		t.Error("nobody showed the end of the prefill, and it counts as over")
	}
	h.clock.Advance(1)
	if tokens, micros := h.queue(t); tokens != 0 || micros != 0 {
		t.Errorf("%d tokens, %v µs queued after twice the predicted time", tokens, micros)
	}
}

// A worker that says that nothing waits puts the clock right.
func TestScrapesCorrectTheClock(t *testing.T) {
	h := newHouse(t, Rhizome, 1)
	for i := range 4 {
		h.decide(t, tokens(t, 0, 8000, i))
	}
	_, before := h.queue(t)
	h.clock.Advance(time.Second / 5)
	h.members[0].SetSignals(fleet.Signals{Waiting: fleet.Signal{Source: fleet.Scraped, At: h.clock.Now()}})
	if _, after := h.queue(t); after > before/3 {
		t.Errorf("%v µs by the clock, %v before the worker said that nothing waits", after, before)
	}
}
