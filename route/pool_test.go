package route

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/engine"
	"github.com/rhizome-router/rhizome/fleet"
	"github.com/rhizome-router/rhizome/index"
	"github.com/rhizome-router/rhizome/kv"
	"github.com/rhizome-router/rhizome/prompt"
	"pgregory.net/rapid"
)

// An order walks as a sorted list does, whatever was put and dropped.
func TestOrderWalksInOrder(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		const members = 40
		var o order
		at := slices.Repeat([]int32{-1}, members)
		keys := make(map[int32]float64)
		for range rapid.IntRange(0, 200).Draw(rt, "steps") {
			m := rapid.Int32Range(0, members-1).Draw(rt, "member")
			if rapid.IntRange(0, 3).Draw(rt, "drop") == 0 {
				o.drop(at, m)
				delete(keys, m)
				continue
			}
			keys[m] = float64(rapid.IntRange(0, 20).Draw(rt, "key"))
			o.put(at, m, keys[m])
		}
		var w walk
		w.start(&o)
		var got []node
		for n, ok := w.peek(); ok; n, ok = w.peek() {
			got = append(got, n)
			w.pass()
		}
		if len(got) != len(keys) || !slices.IsSortedFunc(got, func(a, b node) int { return cmp.Compare(a.key, b.key) }) {
			rt.Fatalf("%v of %v", got, keys)
		}
		for _, n := range got {
			if keys[n.member] != n.key {
				rt.Fatalf("%v of %v", got, keys)
			}
		}
	})
}

// check fails where a member stands in an order that is not its own, or in none.
func (p *pool) check(t interface{ Fatalf(string, ...any) }) {
	standing := 0
	for g := range p.grades {
		graded := 0
		for c := range p.grades[g].classes {
			for k := range typicals {
				for _, busy := range []bool{false, true} {
					for at, n := range p.grades[g].classes[c].order(k, busy).nodes {
						e := &p.entries[n.member]
						if int(e.grade) != g || int(e.class) != c || e.busy != busy || e.keys[k] != n.key || p.heaps[k][n.member] != int32(at) {
							t.Fatalf("member %d stands where it does not belong: %+v", n.member, *e)
						}
						if k == 0 {
							graded++
						}
					}
				}
			}
		}
		if graded != p.grades[g].members {
			t.Fatalf("%d members of grade %v are in orders, %d are counted", graded, fleet.Grade(g), p.grades[g].members)
		}
		standing += graded
	}
	for i := range p.entries {
		if p.entries[i].grade == fleet.Draining {
			standing++
		}
	}
	if standing != len(p.members) {
		t.Fatalf("%d of %d members stand somewhere", standing, len(p.members))
	}
}

// Whatever happens to the fleet, its caches and its load: who is chosen from
// the orders may serve the request, holds what a look at every member says, costs
// what it says there, and costs little more than the best of all.
func TestOrdersChooseAsALookAtAllDoes(t *testing.T) {
	var sum, n float64
	rapid.Check(t, func(rt *rapid.T) {
		h := newHouse(t, Rhizome, preselectFrom+1+rapid.IntRange(0, 40).Draw(rt, "workers"))
		mixed(h, clock.Rand(rapid.Uint64().Draw(rt, "seed"), "orders"))
		var open []*Decision
		member := func() *fleet.Member {
			return h.view.Members[rapid.IntRange(0, len(h.view.Members)-1).Draw(rt, "member")]
		}
		prompts := make([]*prompt.Request, 4)
		for i := range prompts {
			prompts[i] = tokens(t, 1600, 16*rapid.IntRange(1, 100).Draw(rt, "own"), i)
		}
		for step := range rapid.IntRange(1, 40).Draw(rt, "steps") {
			h.clock.Advance(time.Duration(rapid.IntRange(int(reseatEvery/time.Millisecond), 300).Draw(rt, "ms")) * time.Millisecond)
			switch p := prompts[rapid.IntRange(0, len(prompts)-1).Draw(rt, "prompt")]; rapid.IntRange(0, 9).Draw(rt, "event") {
			case 0:
				member().SetHealthy(rapid.Bool().Draw(rt, "healthy"))
			case 1:
				m, blocks := member(), len(p.TokenKeys(prompt.Form{BlockTokens: blockTokens}))
				h.hold(m, p, 0, rapid.IntRange(1, blocks).Draw(rt, "held"), kv.HBM)
			case 2: // its cache starts anew, as after a restart
				m := member()
				c := m.Cache()
				h.index.Drop(c.Slot)
				c.Slot = h.index.Open(index.HBMThenOneTier)
				m.SetCache(c)
			case 3:
				member().Circuit.SetDraining(rapid.IntRange(0, 3).Draw(rt, "drains") == 0)
			case 4: // some workers leave, or come back
				h.view = h.viewOf(h.members[rapid.IntRange(0, 3).Draw(rt, "gone"):])
			case 5, 6:
				if len(open) > 0 {
					h.FirstByte(open[0])
					h.Done(open[0], Outcome{Result: Completed, Usage: Usage{CachedTokens: -1}})
					open = open[1:]
				}
			default:
				q := Query{ID: fmt.Sprint(step), Prompt: p}
				regret, d := h.regret(rt, q)
				sum, n = sum+regret, n+1
				if d != nil {
					open = append(open, d)
				}
			}
			for _, p := range h.pools.all {
				p.check(rt)
			}
		}
	})
	t.Logf("mean regret of %v decisions %.3f %%", n, 100*sum/n)
	if sum/n > 0.01 {
		t.Errorf("%.2f %% dearer than the best of all on average, want at most 1 %%", 100*sum/n)
	}
}

// regret makes a decision and returns by what share it costs more than the best
// of all members.
func (h *house) regret(t rapid.TB, q Query) (float64, *Decision) {
	naive := &search{now: h.clock.Now(), view: h.view, members: h.view.Members}
	h.index.Expire(naive.now)
	failed := naive.eligible(&q)
	if failed == nil {
		h.match(naive, q.Prompt)
	}
	d, err := h.Decide(q)
	if failed != nil || err != nil {
		if failed != err {
			t.Fatalf("decided %v, a look at all says %v", err, failed)
		}
		return 0, nil
	}
	at := slices.Index(naive.members, d.member)
	if at < 0 {
		t.Fatalf("%v may not serve the request", d.Target)
	}
	e, _ := h.Explain(d.ID)
	chosen := e.Candidates[slices.IndexFunc(e.Candidates, func(c Candidate) bool { return c.Chosen })]
	h.Done(d, Outcome{Result: Cancelled}) // for a moment, to see what was there before
	z := h.size(&q, naive.deepest)
	request := h.requestOf(&q, &z)
	best := 0.0
	for i, m := range naive.members {
		c := candidate{member: m}
		h.price(h.clock.Now(), &c, &naive.hits[i], &z, q.Prompt, request)
		if cost := c.judged.TotalMicros(); i == 0 || cost < best {
			best = cost
		}
		if held := int(c.hit.Tokens()); m == d.member && held != chosen.HBMTokens+chosen.LowerTokens {
			t.Fatalf("the chosen holds %d tokens, decided by %d", held, chosen.HBMTokens+chosen.LowerTokens)
		}
	}
	again, err := h.Decide(q)
	if err != nil {
		t.Fatal(err)
	}
	terms := chosen.Terms
	terms.QueueExternalityMicros = 0
	return max(0, terms.TotalMicros()/best-1), again
}

// viewOf is a view of some members, which all serve the model.
func (h *house) viewOf(members []*fleet.Member) *fleet.View {
	return fleet.NewView(members, []fleet.Served{{Model: engine.Model{ID: "m"}, Members: members}})
}

// Many callers, scrapes, and caches that start anew, at once.
func TestPoolsUnderStress(t *testing.T) {
	const callers, decisions = 16, 100
	h := newHouse(t, Rhizome, 2*preselectFrom)
	var all, weather sync.WaitGroup
	stop := make(chan struct{})
	weather.Go(func() {
		rng := clock.Rand(1, "weather")
		for {
			select {
			case <-stop:
				return
			default:
			}
			m := h.members[rng.IntN(len(h.members))]
			switch rng.IntN(4) {
			case 0:
				m.SetHealthy(rng.IntN(4) > 0)
			case 1:
				m.SetSignals(fleet.Signals{ForeignRunning: fleet.Signal{Value: float64(rng.IntN(4)), Source: fleet.Learned}})
			case 2:
				c := m.Cache()
				old := c.Slot
				c.Slot = h.index.Open(index.HBMThenOneTier)
				m.SetCache(c)
				h.index.Drop(old)
				h.index.Sweep(1 << 16)
			default:
				h.clock.Advance(time.Millisecond)
			}
		}
	})
	for who := range callers {
		all.Go(func() {
			for i := range decisions / raceSlowdown {
				d, err := h.Decide(Query{ID: fmt.Sprint(who, i), Prompt: tokens(t, 320, 64, who)})
				if err != nil {
					continue // they may all be out
				}
				h.FirstByte(d)
				h.Done(d, Outcome{Result: Completed, Usage: Usage{CachedTokens: -1}})
			}
		})
	}
	all.Wait()
	close(stop)
	weather.Wait()
	for _, p := range h.pools.all {
		p.check(t)
	}
	if n := inFlight(h); n != 0 {
		t.Errorf("%d requests are still in flight", n)
	}
}

// Where the caller has the memory, a decision needs none, whatever is in flight.
func TestDecidingAllocatesNothing(t *testing.T) {
	for _, workers := range []int{8, 200} {
		h := newHouse(t, Rhizome, workers)
		var d Decision
		p := tokens(t, 1600, 160, 1)
		h.hold(h.members[3], p, 0, 100, kv.HBM)
		round := func() {
			h.clock.Advance(10 * time.Millisecond)
			if err := h.DecideInto(Query{ID: "a", Session: "s", Prompt: p}, &d); err != nil {
				t.Fatal(err)
			}
			h.Done(&d, Outcome{Result: Cancelled})
		}
		for range 2 * h.cfg.Explained {
			round()
		}
		if n := testing.AllocsPerRun(100, round); n != 0 && raceSlowdown == 1 {
			t.Errorf("%v allocations on %d workers", n, workers)
		}
	}
}
