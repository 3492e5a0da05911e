package route

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/rhizome-router/rhizome/engine"
	"github.com/rhizome-router/rhizome/fleet"
	"github.com/rhizome-router/rhizome/kv"
	"github.com/rhizome-router/rhizome/prompt"
)

// TestBR11_ABurstIsSpread: 256 requests at once over eight workers, each decided
// by what is booked at that moment and not by a picture all of them share.
func TestBR11_ABurstIsSpread(t *testing.T) {
	const workers, burst = 8, 256
	for name, c := range map[string]struct {
		prepare func(h *house)
		prompt  func(i int) *prompt.Request
	}{
		"cold": {func(*house) {}, func(i int) *prompt.Request { return tokens(t, 0, 2000, i) }},
		"one prefix that all hold": {func(h *house) {
			for _, m := range h.members {
				h.hold(m, tokens(t, 4000, 0, 0), 0, 250, kv.HBM)
			}
		}, func(i int) *prompt.Request { return tokens(t, 4000, 200, i) }},
		"numbers that are 5 s old": {func(h *house) {
			zero := fleet.Signal{Source: fleet.Scraped, At: h.clock.Now()}
			for _, m := range h.members {
				m.SetSignals(fleet.Signals{Running: zero, Waiting: zero})
			}
			h.clock.Advance(5 * time.Second)
		}, func(i int) *prompt.Request { return tokens(t, 0, 2000, i) }},
	} {
		for _, policy := range []Policy{Rhizome, LeastRequests} {
			h := newHouse(t, policy, workers)
			c.prepare(h)
			prompts := make([]*prompt.Request, burst)
			for i := range prompts {
				prompts[i] = c.prompt(i)
			}
			var mu sync.Mutex
			count := make(map[kv.Target]int)
			var wg sync.WaitGroup
			barrier := make(chan struct{})
			for i, p := range prompts {
				wg.Go(func() {
					<-barrier
					d, err := h.Decide(Query{ID: fmt.Sprint(i), Prompt: p})
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					defer mu.Unlock()
					count[d.Target]++
				})
			}
			close(barrier)
			wg.Wait()
			for target, n := range count {
				if n > burst/workers*3/2 {
					t.Errorf("%s, %s: %v got %d of %d, more than 1.5 times the mean", name, policy, target, n, burst)
				}
			}
		}
	}
}

// TestBR41_MissesGoByLoad: the worker that holds least because it is busy with
// prompts nobody shares gets no more of them for that, and a new one that holds
// nothing does not get all.
func TestBR41_MissesGoByLoad(t *testing.T) {
	h := newHouse(t, Rhizome, 5)
	all := h.members
	serve := func(members []*fleet.Member) {
		h.view = fleet.NewView(members, []fleet.Served{{Model: engine.Model{ID: "m"}, Members: members}})
	}
	serve(all[:4])
	for i, m := range all[1:4] { // warm
		h.hold(m, tokens(t, 0, 16000, 900+i), 0, 1000, kv.HBM)
	}
	busy := all[0] // with long prompts of which none has come out yet
	for i := range 20 {
		p := tokens(t, 0, 8000, 500+i)
		if _, err := h.Decide(Query{ID: fmt.Sprint("busy", i), Prompt: p, Pin: busy.Target.String()}); err != nil {
			t.Fatal(err)
		}
	}
	count := make(map[kv.Target]int)
	for i := range 200 {
		count[h.decide(t, tokens(t, 0, 2000, i)).Target]++
	}
	if n := count[busy.Target]; n >= 50 {
		t.Errorf("the busy worker got %d of 200, its part would be 50", n)
	}
	for _, m := range all[1:4] {
		if n := count[m.Target]; n < 40 || n > 85 {
			t.Errorf("an idle worker got %d of 200", n)
		}
	}

	// Under load that is served as it comes, an empty fifth worker joins.
	h = newHouse(t, Rhizome, 5)
	all = h.members
	serve(all[:4])
	var open []*Decision
	for i := range 40 {
		open = append(open, h.decide(t, tokens(t, 0, 2000, i)))
	}
	serve(all)
	joined := 0
	for i := range 100 {
		h.finish(open[0], 5*time.Millisecond)
		d := h.decide(t, tokens(t, 0, 2000, 1000+i))
		open = append(open[1:], d)
		if d.Target == all[4].Target {
			joined++
		}
	}
	if joined < 5 || joined > 60 {
		t.Errorf("the worker that joined got %d of 100", joined)
	}
}
