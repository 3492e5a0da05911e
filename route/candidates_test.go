package route

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/cost"
	"github.com/rhizome-router/rhizome/engine"
	"github.com/rhizome-router/rhizome/fleet"
	"github.com/rhizome-router/rhizome/kv"
	"github.com/rhizome-router/rhizome/prompt"
)

// mixed puts a house's workers into random states: classes that differ in speed
// and size, queues, residents, pools that are nearly full, congested links.
func mixed(h *house, rng *rand.Rand) {
	classes := make([]cost.Class, 1+rng.IntN(4))
	for i := range classes {
		classes[i] = cost.Generic().Scaled(0.5 + 2*rng.Float64())
		classes[i].Name = fmt.Sprintf("class-%d", i)
	}
	busy := rng.Float64()
	for _, m := range h.members {
		m.Class, m.ClassFit, m.Fit, m.Ledger = classes[rng.IntN(len(classes))], nil, cost.Fit{}, fleet.Ledger{}
		m.SetSignals(fleet.Signals{
			CapacityTokens: fleet.Signal{Value: 50_000 + 400_000*rng.Float64(), Source: fleet.Scraped},
			ForeignRunning: fleet.Signal{Value: float64(rng.IntN(4)), Source: fleet.Learned},
		})
		now := h.clock.Now()
		for range rng.IntN(1 + int(30*busy*rng.Float64())) {
			tokens := 200 + 12_000*rng.Float64()*rng.Float64()
			uncached := tokens * (0.1 + 0.9*rng.Float64())
			b := &fleet.Booking{PromptTokens: tokens, HBMTokens: tokens - uncached, UncachedTokens: uncached,
				UncachedPairs: cost.Pairs(uncached, tokens-uncached), OutputTokens: 50 + 500*rng.Float64(), Choices: 1, PredictedTTFT: time.Hour}
			m.Ledger.Book(now, b)
			if rng.Float64() < 0.7 {
				m.Ledger.FirstToken(now, b, time.Duration(m.Class.StepMicros)*time.Microsecond)
			}
		}
	}
	h.pools = pools{} // all is another
	h.clock.Advance(time.Duration(rng.IntN(300)) * time.Millisecond)
}

// holders gives a prompt's leading blocks to some members, and returns what
// takes them back.
func holders(h *house, p *prompt.Request, rng *rand.Rand) (undo func()) {
	blocks := len(p.TokenKeys(prompt.Form{BlockTokens: blockTokens}))
	share := rng.Float64() * rng.Float64()
	var undone []func()
	for _, m := range h.members {
		if rng.Float64() > share || blocks == 0 {
			continue
		}
		n, tier := 1+rng.IntN(blocks), kv.HBM
		if rng.Float64() < 0.2 {
			tier = kv.CPU
		}
		h.hold(m, p, 0, n, tier)
		undone = append(undone, func() { h.drop(m, p, n, tier) })
	}
	return func() {
		for _, f := range undone {
			f()
		}
	}
}

// all prices every member, as of the last decision, and returns the choice's
// cost, and every cost.
func (h *house) all(now clock.Instant, q Query, request cost.Request, z *sizing) (best float64, costs map[kv.Target]float64) {
	hits := h.matched(h.members, q.Prompt)
	h.cands = h.cands[:0]
	for i, m := range h.members {
		h.cands = append(h.cands, candidate{member: m})
		h.price(now, &h.cands[len(h.cands)-1], &hits[i], z, q.Prompt, request)
	}
	h.addLaterWait(now)
	costs = make(map[kv.Target]float64)
	for i := range h.cands {
		costs[h.cands[i].member.Target] = h.cands[i].total
	}
	return h.cands[h.choose(now, &q, request).index].total, costs
}

// weigh prices the candidates for q, without making a decision.
func (h *house) weigh(t testing.TB, q *Query) (clock.Instant, cost.Request, sizing) {
	t.Helper()
	s, err := h.find(q)
	if err != nil {
		t.Fatal(err)
	}
	defer h.searches.Put(s)
	request, z, err := h.priceAll(s, q)
	if err != nil {
		t.Fatal(err)
	}
	return s.now, request, z
}

// Looking closely at a few of many workers must cost next to nothing against
// looking at all: 1 % on average, 5 % in the worst of a hundred decisions.
func TestPreselectionRegret(t *testing.T) {
	var regrets []float64
	for _, size := range []struct {
		workers int
		seeds   uint64
	}{{64, 16}, {250, 8}, {1000, 3}} {
		workers := size.workers
		h := newHouse(t, Rhizome, workers)
		h.cfg.SlowStart = 0
		for seed := range max(1, size.seeds/raceSlowdown) {
			rng := clock.Rand(seed, fmt.Sprint("regret of ", workers))
			mixed(h, rng)
			for i := range 6 {
				p := tokens(t, 0, 100+rng.IntN(9000), int(seed)*10+i)
				undo := holders(h, p, rng)
				q := Query{Prompt: p, Session: fmt.Sprint(i)}
				if rng.IntN(2) == 0 {
					h.sessions.put(q.Session, session{target: h.members[rng.IntN(workers)].Target})
				}
				now, request, z := h.weigh(t, &q)
				chosen := h.cands[h.choose(now, &q, request).index].member.Target
				if n := len(h.cands); n > 200 || n == workers {
					t.Fatalf("%d of %d workers are priced", n, workers)
				}
				best, costs := h.all(now, q, request, &z)
				regrets = append(regrets, max(0, costs[chosen]/best-1))
				undo()
			}
		}
	}
	slices.Sort(regrets)
	mean := 0.0
	for _, r := range regrets {
		mean += r / float64(len(regrets))
	}
	p99 := regrets[len(regrets)*99/100]
	t.Logf("regret of %d decisions: mean %.3f %%, p99 %.3f %%, worst %.3f %%", len(regrets), 100*mean, 100*p99, 100*regrets[len(regrets)-1])
	if mean > 0.01 || p99 > 0.05 {
		t.Errorf("regret %.2f %% on average and %.2f %% in the worst of a hundred, want at most 1 %% and 5 %%", 100*mean, 100*p99)
	}
}

// The session's last worker is always looked at, and so is whoever holds the
// prompt and is not too dear all the same; of few workers all are.
func TestPreselectionKeepsWhoMatters(t *testing.T) {
	const workers = 100
	h := newHouse(t, Rhizome, workers)
	p := tokens(t, 0, 1600, 1)
	h.hold(h.members[77], p, 0, 100, kv.HBM)
	h.hold(h.members[78], p, 0, 40, kv.CPU)
	h.hold(h.members[79], p, 0, 100, kv.HBM)
	for m, tokens := range map[int]float64{42: 1e6, 77: 2000, 78: 2000, 79: 1e6} { // the dearest of all
		h.members[m].Ledger.Book(0, &fleet.Booking{UncachedTokens: tokens, PromptTokens: tokens, Choices: 1, PredictedTTFT: time.Hour})
	}
	h.sessions.put("s", session{target: h.members[42].Target})
	q := Query{Prompt: p, Session: "s"}
	h.weigh(t, &q)
	looksAt := func(i int) bool {
		return slices.ContainsFunc(h.cands, func(c candidate) bool { return c.member == h.members[i] })
	}
	if !looksAt(42) || !looksAt(77) || !looksAt(78) {
		t.Errorf("of 42, 77 and 78 are looked at: %v, %v, %v", looksAt(42), looksAt(77), looksAt(78))
	}
	if looksAt(79) {
		t.Error("a holder is looked at that can't be the cheapest")
	}
	if n := len(h.cands); n > perClass+2*perDepth+atRandom+1 {
		t.Errorf("%d workers are looked at", n)
	}
	h.members = h.members[:preselectFrom]
	h.view = fleet.NewView(h.members, []fleet.Served{{Model: engine.Model{ID: "m"}, Members: h.members}})
	h.weigh(t, &q)
	if len(h.cands) != preselectFrom {
		t.Errorf("%d of %d workers are looked at", len(h.cands), preselectFrom)
	}
}

func TestShortlist(t *testing.T) {
	rng := clock.Rand(1, "shortlist")
	for range 200 {
		var s shortlist
		var offered []float64
		for i := range rng.IntN(30) {
			x := float64(rng.IntN(20))
			s.offer(int32(i), x)
			offered = append(offered, x)
		}
		slices.Sort(offered)
		if want := offered[:min(perDepth, len(offered))]; !slices.Equal(s.micros[:s.n], want) {
			t.Fatalf("kept %v of %v", s.micros[:s.n], offered)
		}
	}
}

func TestWeighingAllocatesNothing(t *testing.T) {
	h := newHouse(t, Rhizome, 200)
	q := Query{Prompt: tokens(t, 0, 1600, 1)}
	h.decide(t, q.Prompt)
	h.weigh(t, &q)
	if n := testing.AllocsPerRun(20, func() { h.weigh(t, &q) }); n != 0 && raceSlowdown == 1 {
		t.Errorf("%v allocations", n)
	}
}

// Before candidates were chosen beforehand, weighing 1000 workers took 0.94 ms
// of CPU and a decision 1.65; with a rough price of each, 0.24 and 0.73; from the
// orders, 0.012 and 0.15 (go test ./route -bench
// Thousand, and the same at preselectFrom 1000).
func BenchmarkThousand(b *testing.B) {
	h := newHouse(b, Rhizome, 1000)
	for i := range 2000 {
		d := h.decide(b, tokens(b, 0, 500+i%700, i))
		if i%2 == 0 {
			h.FirstByte(d)
		}
	}
	q := Query{Prompt: tokens(b, 4000, 100, 1)}
	b.Run("weigh", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			h.weigh(b, &q)
		}
	})
	b.Run("decide", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			h.Done(h.decide(b, q.Prompt), Outcome{Result: Cancelled})
		}
	})
}
