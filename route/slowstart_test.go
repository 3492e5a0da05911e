package route

import (
	"fmt"
	"testing"
	"time"

	"github.com/rhizome-router/rhizome/fleet"
)

// age lets the workers of the house have been up for a minute.
func (h *house) age(t *testing.T) {
	t.Helper()
	h.cfg.SlowStart = 30 * time.Second
	h.Done(h.decide(t, tokens(t, 0, 16, 30_000)), Outcome{Result: Cancelled})
	h.clock.Advance(time.Minute)
}

// join adds a worker to the house.
func (h *house) join(t *testing.T) *fleet.Member {
	t.Helper()
	more := newHouse(t, Rhizome, len(h.members)+1)
	m := more.members[len(h.members)]
	m.SetCache(fleet.Cache{Slot: h.index.Open(0), Known: fleet.ByEvents, Live: true, BlockTokens: blockTokens})
	h.members = append(h.members, m)
	h.view = fleet.NewView(h.members, []fleet.Served{{Model: h.view.Models()[0], Members: h.members}})
	return m
}

// burst sends n cold requests at once and says how many went to m.
func (h *house) burst(t *testing.T, n int, m *fleet.Member) (there int) {
	t.Helper()
	for range n {
		h.ids++
		if h.decide(t, tokens(t, 0, 1000, h.ids)).Target == m.Target {
			there++
		}
	}
	return there
}

func TestBurstDoesNotFloodANewcomer(t *testing.T) {
	h := newHouse(t, Rhizome, 7)
	h.age(t)
	m := h.join(t)
	got := h.burst(t, 160, m)
	if got < 1 || got > 5 {
		t.Errorf("a newcomer got %d of a burst of 160 to 8 workers", got)
	}
	h = newHouse(t, Rhizome, 7)
	h.age(t)
	m = h.join(t)
	h.cfg.SlowStart = 0
	if got := h.burst(t, 160, m); got < 15 {
		t.Errorf("without slow start it got %d", got)
	}
	h = newHouse(t, Rhizome, 7)
	h.age(t)
	m = h.join(t)
	h.Done(h.decide(t, tokens(t, 0, 16, 30_001)), Outcome{Result: Cancelled})
	h.clock.Advance(30 * time.Second)
	if got := h.burst(t, 160, m); got < 15 {
		t.Errorf("when the time is over it got %d", got)
	}
}

func TestNewcomerHelpsSaturatedWorkersAtOnce(t *testing.T) {
	h := newHouse(t, Rhizome, 4)
	h.age(t)
	h.burst(t, 120, h.members[0])
	m := h.join(t)
	if d := h.decide(t, tokens(t, 0, 1000, 30_002)); d.Target != m.Target {
		t.Error("the first request after a newcomer came to saturated workers did not go there")
	}
	if got := h.burst(t, 8, m); got < 1 || got > 6 {
		t.Errorf("it got %d of the next 8", got)
	}
}

// A worker that comes back is a newcomer again; those that began together are
// none.
func TestWhoReturnsStartsSlowly(t *testing.T) {
	h := newHouse(t, Rhizome, 4)
	h.cfg.SlowStart = 30 * time.Second
	if got := h.burst(t, 80, h.members[0]); got < 15 || got > 25 {
		t.Errorf("one of 4 that began together got %d of 80", got)
	}
	h = newHouse(t, Rhizome, 4)
	h.age(t)
	h.members[0].SetHealthy(false)
	h.age(t)
	h.members[0].SetHealthy(true)
	if got := h.burst(t, 80, h.members[0]); got < 1 || got > 4 {
		t.Errorf("one of 4 that came back got %d of 80", got)
	}
	e, _ := h.Explain(fmt.Sprint(h.ids))
	if len(e.Candidates) != 4 {
		t.Fatalf("%+v", e)
	}
	if slow := e.Candidates[len(e.Candidates)-1]; slow.SlowStartMicros <= 0 || slow.Worker != h.members[0].Worker.Spec.URL {
		t.Errorf("the explanation does not show what being new costs: %+v", slow)
	}
}
