package route

import (
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/rhizome-router/rhizome/cost"
	"github.com/rhizome-router/rhizome/engine"
	"github.com/rhizome-router/rhizome/fleet"
	"github.com/rhizome-router/rhizome/kv"
	"github.com/rhizome-router/rhizome/prompt"
)

// chosen returns which members of n decisions in a row were chosen.
func (h *house) chosen(t *testing.T, n int, q Query) map[int]bool {
	t.Helper()
	got := make(map[int]bool)
	for range n {
		q.Prompt = tokens(t, 0, 100, 1)
		d, err := h.Decide(q)
		if err != nil {
			t.Fatal(err)
		}
		got[slices.IndexFunc(h.members, func(m *fleet.Member) bool { return m.Target == d.Target })] = true
		h.Done(d, Outcome{Result: Cancelled})
	}
	return got
}

func TestPins(t *testing.T) {
	h := newHouse(t, Random, 4)
	m := h.members[2]
	for _, pin := range []string{m.Target.String(), m.Worker.ID.String(), m.Worker.Spec.URL} {
		if got := h.chosen(t, 20, Query{Pin: pin}); len(got) != 1 || !got[2] {
			t.Errorf("pin %s chose %v", pin, got)
		}
	}
	m.SetHealthy(false)
	m.Circuit.SetDraining(true)
	if got := h.chosen(t, 1, Query{Pin: m.Target.String()}); !got[2] {
		t.Error("a pin holds whatever the worker's state")
	}
	for _, q := range []Query{{Pin: "nobody"}, {Pin: m.Target.String(), Exclude: []kv.Target{m.Target}}} {
		q.Prompt = tokens(t, 0, 100, 1)
		if _, err := h.Decide(q); !errors.Is(err, ErrNoWorker) {
			t.Errorf("%+v gave %v", q, err)
		}
	}
}

// The best grade there is gets the requests; while all are out, the least bad.
func TestGradesAreAskedInOrder(t *testing.T) {
	h := newHouse(t, Random, 4)
	now := h.clock.Now()
	h.members[0].Circuit.SetDraining(true)
	h.members[1].SetHealthy(false)
	h.members[2].Circuit.Busy(now, false, time.Minute)
	for want := 3; want > 0; want-- {
		if got := h.chosen(t, 20, Query{}); len(got) != 1 || !got[want] {
			t.Errorf("chose %v, want member %d", got, want)
		}
		h.members[want].Circuit.SetDraining(true)
	}
	if _, err := h.Decide(Query{Prompt: tokens(t, 0, 9, 1)}); !errors.Is(err, ErrNoWorker) {
		t.Errorf("all drain, yet: %v", err)
	}
}

func TestTooLongForTheContext(t *testing.T) {
	h := newHouse(t, Random, 3)
	h.view = fleet.NewView(h.members, []fleet.Served{
		{Model: engine.Model{ID: "m", MaxModelLen: 300}, Members: h.members[:1]},
		{Model: engine.Model{ID: "m", MaxModelLen: 1000}, Members: h.members[1:2]},
		{Model: engine.Model{ID: "m"}, Members: h.members[2:]}, // does not say
	})
	decide := func(length int) map[int]bool {
		got := make(map[int]bool)
		for range 30 {
			d, err := h.Decide(Query{Prompt: tokens(t, length-100, 0, 1)}) // and 100 of output
			if errors.Is(err, ErrTooLong) {
				return nil
			}
			if err != nil {
				t.Fatal(err)
			}
			got[slices.IndexFunc(h.members, func(m *fleet.Member) bool { return m.Target == d.Target })] = true
			h.Done(d, Outcome{Result: Cancelled})
		}
		return got
	}
	if got := decide(300); len(got) != 3 {
		t.Errorf("300 tokens: %v", got)
	}
	if got := decide(301); got[0] || len(got) != 2 {
		t.Errorf("301 tokens: %v", got)
	}
	h.view = fleet.NewView(h.members, []fleet.Served{{Model: engine.Model{ID: "m", MaxModelLen: 300}, Members: h.members}})
	if got := decide(301); got != nil {
		t.Errorf("longer than any: %v", got)
	}
	if _, err := h.Decide(Query{Prompt: text(t, "a text's tokens are guessed, and a guess refuses nobody")}); err != nil {
		t.Error(err)
	}
}

// Failures of different requests open a circuit; those of one don't; a trial
// that comes through closes it.
func TestOutcomesReachTheCircuit(t *testing.T) {
	h := newHouse(t, Random, 2)
	fail := func(n int, cause func(i int) uint64) {
		for i := range n {
			d, err := h.Decide(Query{Prompt: tokens(t, 0, 50, i), Pin: h.members[0].Target.String()})
			if err != nil {
				t.Fatal(err)
			}
			h.Done(d, Outcome{Result: Failed, Cause: cause(i)})
		}
	}
	grade := func() fleet.Grade { return h.members[0].Grade(h.clock.Now()) }
	fail(50, func(int) uint64 { return 7 })
	if grade() != fleet.Fit {
		t.Fatal("one client's poison opened the circuit")
	}
	fail(20, func(i int) uint64 { return uint64(i) })
	if grade() != fleet.Suspect {
		t.Fatal("20 failures of 20 requests left it closed")
	}
	if got := h.chosen(t, 20, Query{}); got[0] {
		t.Error("an open circuit was asked")
	}
	h.clock.Advance(time.Minute)
	d, err := h.Decide(Query{Prompt: tokens(t, 0, 50, 1), Pin: h.members[0].Target.String()})
	if err != nil || !d.trial {
		t.Fatalf("after a while: %+v, %v", d, err)
	}
	h.finish(d, time.Millisecond)
	if got := h.chosen(t, 40, Query{}); !got[0] {
		t.Error("a good trial did not bring it back")
	}
	d = h.decide(t, tokens(t, 0, 50, 1))
	h.Done(d, Outcome{Result: Busy, RetryAfter: 5 * time.Second})
	if g := d.member.Grade(h.clock.Now().Add(4 * time.Second)); g != fleet.BusyNow {
		t.Errorf("a busy worker is %v", g)
	}
}

func TestExpectedOutput(t *testing.T) {
	chat, embedding := text(t, "x"), *text(t, "x") // at most 100 tokens
	embedding.Kind = prompt.Embedding
	for _, c := range []struct {
		q    Query
		want float64
	}{
		{Query{Prompt: chat}, 7}, {Query{Prompt: chat, ExpectedOutputTokens: 50}, 50},
		{Query{Prompt: chat, ExpectedOutputTokens: 500}, 100}, {Query{Prompt: &embedding, ExpectedOutputTokens: 50}, 0},
	} {
		if got := expectedOutput(&c.q, 7, cost.Span{High: math.Inf(1)}); got != c.want {
			t.Errorf("%+v: %v, want %v", c.q, got, c.want)
		}
	}
}
