package policy

import (
	"slices"
	"testing"
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/engine"
	"github.com/rhizome-router/rhizome/index"
	"github.com/rhizome-router/rhizome/kv"
)

// scoresOf returns llm-d's scores by worker.
func scoresOf(r *replica, match func(int) float64) []float64 {
	got := make([]float64, len(r.up))
	r.llmdScores(defaultLLMDWeights(), match, func(w int, s float64) { got[w] = s })
	return got
}

func TestLLMDScores(t *testing.T) {
	r := newReplica(Config{Workers: 3}, "x", 0)
	match := func(w int) float64 { return []float64{0.5, 0, 1}[w] }
	for w, x := range []struct{ kv, waiting float64 }{{0.25, 0}, {0.5, 3}, {1, 4}} {
		r.gauges[w] = gauges{known: true, t: engine.RankTelemetry{KVUsage: known(x.kv), Waiting: known(x.waiting)}}
	}
	got := scoresOf(&r, match)
	wantNear(t, "score of 0", got[0], 3*0.5+2*0.75+2*1)
	wantNear(t, "score of 1", got[1], 0+2*0.5+2*0.25)
	wantNear(t, "score of 2", got[2], 3*1+0+0)
	for w := range r.gauges {
		r.gauges[w].t.Waiting = known(4) // equal queues count as 1 everywhere
	}
	wantNear(t, "score with equal queues", scoresOf(&r, match)[2], 3+0+2)
}

func TestLLMDApprox(t *testing.T) {
	// Blocks of 16 tokens: the scorer's are of 64, four of the fleet's.
	r := LLMDApprox()(Config{Workers: 2, Replicas: 1, BlockTokens: 16, Seed: 1})[0].(*llmdApprox)
	send := func(id uint64, keys []kv.Key) Choice {
		return r.Choose(0, &Request{ID: id, Keys: keys, BlockTokens: 16, PromptTokens: 16*len(keys) + 1})
	}
	w := send(1, chain(1, 11)).Worker // two whole blocks of the scorer's
	if n := r.tree.size(w); n != 2 {
		t.Fatalf("%d blocks remembered, want 2", n)
	}
	c := send(2, chain(1, 19))
	if c.Worker != w || c.CachedTokens != 128 {
		t.Errorf("%+v, want worker %d and 128 tokens", c, w)
	}
	// 3·½ for the match against 2·1 for the KV in use.
	r.Scraped(0, w, &engine.RankTelemetry{KVUsage: known(1), Waiting: known(0)})
	wantWorker(t, "a full worker with half the prompt", send(3, append(chain(1, 8), chain(2, 8)...)), 1-w)
	// The list is as long as the worker's memory: 256 tokens.
	r.Scraped(0, w, &engine.RankTelemetry{HBMTokens: known(256), KVUsage: known(0)})
	r.Scraped(0, 1-w, &engine.RankTelemetry{HBMTokens: known(256), KVUsage: known(1)})
	send(4, chain(3, 40))
	if n := r.tree.size(w); n != 4 {
		t.Errorf("%d blocks remembered, want 4", n)
	}
}

func TestLLMDPreciseMatch(t *testing.T) {
	r := alone(4, LLMDPrecise(DefaultLLMDPrecise())).(*llmdPrecise)
	keys := chain(1, 10)
	stored(r, 0, 0, kv.HBM, keys[:5])
	stored(r, 1, 0, kv.HBM, keys[:2])
	stored(r, 1, 1, kv.CPU, keys[1:6]) // both tiers hold block 1: the better counts
	stored(r, 2, 0, kv.HBM, keys[1:])  // the first block is missing
	stored(r, 3, 0, kv.HBM, keys[:1])
	stored(r, 3, 1, kv.Disk, keys[1:3])
	r.match(keys)
	for w, want := range []float64{5, 2 + 4*0.8, 0, 3} {
		wantNear(t, "the sum of weights", r.scores[w], want)
	}
	if !slices.Equal(r.runs, []int{5, 6, 0, 3}) {
		t.Errorf("runs %v", r.runs)
	}
	changed(r, 0, 1, kv.HBM, keys[2:3], false)
	r.match(keys)
	wantNear(t, "the sum after an eviction", r.scores[0], 2)
}

func TestLLMDPreciseSpeculation(t *testing.T) {
	r := alone(3, LLMDPrecise(DefaultLLMDPrecise())).(*llmdPrecise)
	at := func(d time.Duration) clock.Instant { return clock.Instant(d) }
	known := func(now time.Duration, w int) int {
		r.expire(at(now))
		r.match(chain(1, 4))
		return r.runs[w]
	}
	w := r.Choose(at(0), ask(1, chain(1, 4))).Worker
	wantWorker(t, "a second one of the same", r.Choose(at(time.Second), ask(2, chain(1, 4))), w)
	if n := known(1999*time.Millisecond, w); n != 4 {
		t.Errorf("just before 2 s %d blocks are there", n)
	}
	// The first request's timer takes the entry that the second one shares.
	if n := known(2*time.Second, w); n != 0 {
		t.Errorf("at 2 s %d blocks are there", n)
	}
	// What events confirm stays.
	c := r.Choose(at(5*time.Second), ask(3, chain(1, 4)))
	stored(r, c.Worker, 0, kv.HBM, chain(1, 4))
	if n := known(9*time.Second, c.Worker); n != 4 {
		t.Errorf("%d confirmed blocks are there when their entries ended", n)
	}
}

func TestLLMDPreciseKeepsTenHolders(t *testing.T) {
	r := alone(12, LLMDPrecise(DefaultLLMDPrecise())).(*llmdPrecise)
	for w := range 12 {
		stored(r, w, 0, kv.HBM, chain(1, 3))
	}
	r.match(chain(1, 3))
	if !slices.Equal(r.runs, []int{0, 0, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3}) {
		t.Errorf("runs %v, want the ten that came last", r.runs)
	}
}

func TestAIBrix(t *testing.T) {
	r := alone(4, AIBrix()).(*aibrix)
	r.tree.touch(0, 0, chain(1, 10))
	r.tree.touch(0, 1, chain(1, 8))
	r.tree.touch(0, 2, chain(1, 8))
	busy(r, 0, 8, 0)
	busy(r, 1, 4, 0)
	busy(r, 2, 3, 0)
	busy(r, 3, 1, 0)
	// Mean 4, deviation √((16+0+1+9)/4) = 2.55: 0 is too busy with 8; of 1 and 2
	// with 80 % each, 2 has fewer requests. 8 − 1 is within the gap.
	mean, deviation, eligible := r.spread()
	wantNear(t, "mean", mean, 4)
	wantNear(t, "deviation squared", deviation*deviation, 6.5)
	if len(eligible) != 4 {
		t.Errorf("eligible are %v", eligible)
	}
	c := r.Choose(0, ask(1, chain(1, 10)))
	wantWorker(t, "the longest match that isn't busy", c, 2)
	if c.CachedTokens != 800 {
		t.Errorf("expects %d tokens", c.CachedTokens)
	}
	r.Done(0, 1, Usage{})
	busy(r, 0, 2, 0) // 10 − 1 is over the gap: only 3 is left
	wantWorker(t, "out of balance", r.Choose(0, ask(2, chain(1, 10))), 3)
	wantWorker(t, "and again: 3 has part of it, and the fewest", r.Choose(0, ask(3, chain(5, 10))), 3)
}

func TestLMetric(t *testing.T) {
	r := alone(3, LMetric(DefaultLMetric())).(*lmetric)
	busy(r, 0, 2, 500)
	busy(r, 1, 1, 0)
	r.book.firstToken(1_000_002)
	req := &Request{ID: 1, Keys: chain(1, 10), BlockTokens: testBlock, PromptTokens: 1050}
	wantNear(t, "at 0: 1000 queued, 450 own, 2 requests and this", r.score(req, 0, index.Run{HBM: 6}), (1000+450)*3)
	wantNear(t, "at 1: 250 own beyond a lower tier, 1 and this", r.score(req, 1, index.Run{HBM: 5, Lower: 3, Tier: kv.CPU}), 250*2)
	wantNear(t, "at 2: all of it, this alone", r.score(req, 2, index.Run{}), 1050)
	stored(r, 0, 0, kv.HBM, chain(1, 6))
	stored(r, 1, 0, kv.HBM, chain(1, 8))
	wantWorker(t, "the lowest product", r.Choose(0, req), 1)

	r.p = LMetricParams{RequestExponent: 2, QueuedWeight: 0.5, RunningWeight: 3, LowerCredit: 0.5}
	r.Done(0, 1, Usage{})
	wantNear(t, "with exponents and weights at 0", r.score(req, 0, index.Run{HBM: 6}), (500+450)*9)
	wantNear(t, "and at 1", r.score(req, 1, index.Run{HBM: 5, Lower: 3, Tier: kv.CPU}), (550-150)*16)
}

func TestLMetricSeesOthersRequests(t *testing.T) {
	r := LMetric(DefaultLMetric())(Config{Workers: 1, Replicas: 2, BlockTokens: testBlock, Seed: 1})[0].(*lmetric)
	busy(r, 0, 2, 300)
	r.Scraped(0, 0, &engine.RankTelemetry{Running: known(4), Waiting: known(3), WaitingTokens: known(1000)})
	// Own: 2 waiting with 600 tokens. Others': 5 more requests, 400 more tokens.
	req := &Request{ID: 1, Keys: chain(1, 10), BlockTokens: testBlock, PromptTokens: 1000}
	wantNear(t, "the product", r.score(req, 0, index.Run{}), (600+400+1000)*(2+5+1))
}

func TestPrebleExploits(t *testing.T) {
	r := alone(3, Preble()).(*preble)
	r.tree.touch(0, 0, chain(1, 10))
	r.tree.touch(0, 1, chain(1, 10))
	r.loads = []float64{500, 400, 0}
	r.recent = []assignment{{0, 0, 500}, {0, 1, 400}}
	c := r.Choose(0, ask(1, chain(1, 15))) // 1000 of 1550 tokens: longer than the rest
	wantWorker(t, "the less loaded holder", c, 1)
	if c.CachedTokens != 1000 {
		t.Errorf("expects %d tokens", c.CachedTokens)
	}
	// L grows by 550 tokens of prefill and a cold answer of 200 tokens.
	wantNear(t, "L", r.loads[1], 400+550*65+200*2000)
	// Now both others are lighter: 1 alone has the longest match and is far ahead.
	wantWorker(t, "the most loaded worker is far ahead", r.Choose(0, ask(2, chain(1, 15))), 2)
}

func TestPrebleExplores(t *testing.T) {
	r := alone(2, Preble()).(*preble)
	r.tree.touch(0, 0, chain(1, 5))
	r.loads = []float64{40_000, 10_000}
	r.recent = []assignment{{0, 0, 40_000}, {0, 1, 10_000}}
	// 500 of 1050 tokens are less than the rest. At 0: 40000 + 550·65 = 75750; at
	// 1: 10000 + 1050·65 = 78250.
	wantWorker(t, "the lower sum", r.Choose(0, ask(1, chain(1, 10))), 0)

	r = alone(2, Preble()).(*preble)
	r.recent = []assignment{{0, 0, 0}, {0, 0, 0}}
	r.tree.workers[0].cap = 4
	r.tree.touch(0, 0, chain(2, 4)) // used by one of two recent requests
	// 3 new blocks push 3 out: 3·100 tokens · 65 µs · ½.
	wantNear(t, "M", r.eviction(0, ask(1, chain(1, 3)), 0, 3), 9750)
	wantNear(t, "M where there is room", r.eviction(0, ask(1, chain(1, 3)), 1, 3), 0)
	wantNear(t, "M of blocks unused for long", r.eviction(clock.Instant(4*time.Minute), ask(1, chain(1, 3)), 0, 3), 0)
	wantWorker(t, "where nothing is pushed out", r.Choose(0, ask(2, chain(1, 3))), 1)
}

func TestPrebleWindow(t *testing.T) {
	r := alone(1, Preble()).(*preble)
	r.Choose(0, ask(1, chain(1, 1)))
	r.Done(0, 1, Usage{CompletionTokens: 10})
	r.Choose(clock.Instant(2*time.Minute), ask(2, chain(2, 1)))
	wantNear(t, "L of two", r.loads[0], 150*65+200*2000+150*65+10*2000)
	r.forgetOld(clock.Instant(3*time.Minute + 1))
	wantNear(t, "L of the later one", r.loads[0], 150*65+10*2000)
	r.forgetOld(clock.Instant(6 * time.Minute))
	wantNear(t, "L of none", r.loads[0], 0)
}

// A worker that restarted has nothing, whether the replica heard that it was
// down or only sees its batches begin at 0 again.
func TestRestart(t *testing.T) {
	for _, n := range All() {
		for _, heard := range []bool{true, false} {
			r := n.Make(Config{Workers: 2, Replicas: 1, BlockTokens: testBlock, Seed: 1})[0]
			stored(r, 1, 0, kv.HBM, chain(1, 40))
			c := r.Choose(0, ask(1, chain(1, 40)))
			r.Done(0, 1, Usage{})
			follows := c.CachedTokens > 0 // KV events; else it goes by its own routing
			if !follows && !heard {
				continue
			}
			if heard {
				r.Up(0, 0, false)
				if got := choices(r, 3, chain(1, 40)); got[0] > 0 {
					t.Errorf("%s: chose a worker that is down", n.Name)
				}
				r.Up(0, 1, false)
				r.Up(0, 0, true)
				r.Up(0, 1, true)
			} else {
				stored(r, 1, 0, kv.HBM, nil)
			}
			// Speculative entries of what was chosen just now end with time.
			c = r.Choose(clock.Instant(time.Hour), ask(2, chain(1, 40)))
			if c.CachedTokens != 0 {
				t.Errorf("%s, told %v: expects %d tokens of a worker that restarted", n.Name, heard, c.CachedTokens)
			}
		}
	}
}

// Equal workers are drawn at random, by the seed.
func TestTiesAreSeeded(t *testing.T) {
	for _, n := range All() {
		draw := func(seed uint64) (at []int) {
			r := n.Make(Config{Workers: 8, Replicas: 1, BlockTokens: testBlock, Seed: seed})[0]
			for i := range 12 {
				at = append(at, r.Choose(0, ask(uint64(i), chain(i, 0))).Worker)
			}
			return at
		}
		a, again, b := draw(1), draw(1), draw(2)
		if !slices.Equal(a, again) {
			t.Errorf("%s: seed 1 chose %v and then %v", n.Name, a, again)
		}
		if slices.Equal(a, b) {
			t.Errorf("%s: seeds 1 and 2 both chose %v", n.Name, a)
		}
	}
}

// What a restarted worker stored before a replica heard that it is back counts.
func TestEventsComeBeforeTheNews(t *testing.T) {
	for _, name := range []string{"smg", "smg-radix-index", "sgl-kv-indexer", "sgl-router", "dynamo", "llm-d-precise", "lmetric"} {
		n, err := ByName(name)
		if err != nil {
			t.Fatal(err)
		}
		r := alone(3, n.Make)
		r.Up(0, 1, false)
		stored(r, 1, 0, kv.HBM, chain(1, 40))
		if got := choices(r, 5, chain(1, 40)); got[1] > 0 {
			t.Errorf("%s: chose a worker that is down", name)
		}
		r.Up(clock.Instant(time.Hour), 1, true)
		c := r.Choose(clock.Instant(time.Hour), ask(99, chain(1, 40)))
		if c.Worker != 1 || c.CachedTokens != 4000 {
			t.Errorf("%s: %+v, want worker 1 and its 4000 tokens", name, c)
		}
	}
}

// With no worker known to be up, one of all is chosen; and then only those up.
func TestNoneUp(t *testing.T) {
	for _, n := range All() {
		r := alone(3, n.Make)
		for w := range 3 {
			r.Up(0, w, false)
		}
		if c := r.Choose(0, ask(1, chain(1, 4))); c.Worker < 0 || c.Worker > 2 {
			t.Errorf("%s: chose worker %d of 3", n.Name, c.Worker)
		}
		r.Up(0, 2, true)
		wantWorker(t, n.Name, r.Choose(0, ask(2, chain(2, 4))), 2)
	}
}
