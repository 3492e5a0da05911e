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

func TestPowerOfTwo(t *testing.T) {
	r := alone(3, PowerOfTwo())
	busy(r, 0, 5, 0)
	busy(r, 1, 2, 0)
	// Worker 0 is drawn with one that is less busy each time.
	at := choices(r, 600, nil)
	if at[0] != 0 || at[1] < 130 || at[2] < 330 {
		t.Errorf("went to %v; want a third to worker 1, drawn with 0, and the rest to 2", at)
	}
}

func TestSGLangClassic(t *testing.T) {
	r := alone(3, SGLangClassic())
	first := r.Choose(0, ask(1, chain(1, 10)))
	long := r.Choose(0, ask(2, chain(1, 20))) // half of it is found: over 0.3
	wantWorker(t, "a match of 0.5", long, first.Worker)
	if long.CachedTokens != 10*testBlock {
		t.Errorf("expects %d cached tokens", long.CachedTokens)
	}
	// 6 of 20 blocks are just 0.3, which is not over it: the smallest tree.
	p := slices.Concat(chain(1, 6), chain(2, 14))
	if c := r.Choose(0, ask(3, p)); c.Worker == first.Worker {
		t.Error("a match of 0.3 stayed with the fullest tree")
	}
	// 64 more requests than the others' least is still balance, 65 is not.
	in := inner(r)
	busy(r, first.Worker, 64+1-in.book.loads[first.Worker].requests, 0) // the third worker has none
	idle := slices.IndexFunc(in.book.loads, func(l load) bool { return l.requests == 0 })
	in.book.add(99, idle, 0, nil)
	wantWorker(t, "64 apart", r.Choose(0, ask(4, chain(1, 20))), first.Worker)
	in.book.done(99)
	wantWorker(t, "66 apart", r.Choose(0, ask(5, chain(1, 20))), idle)
}

func TestSGLangClassicNeedsTheRatioToo(t *testing.T) {
	r := alone(2, SGLangClassic()).(*sglangClassic)
	r.tree.touch(0, 0, chain(1, 10))
	busy(r, 0, 195, 0)
	busy(r, 1, 130, 0)
	wantWorker(t, "195 against 130, which is 1.5 times", r.Choose(0, ask(1, chain(1, 10))), 0)
	wantWorker(t, "196 against 130", r.Choose(0, ask(2, chain(1, 10))), 1)
}

func TestSMG(t *testing.T) {
	r := alone(4, SMG())
	stored(r, 0, 0, kv.HBM, chain(1, 8))
	stored(r, 1, 0, kv.HBM, chain(1, 10))
	stored(r, 2, 0, kv.HBM, chain(1, 10))
	busy(r, 1, 3, 0)
	wantWorker(t, "of two longest matches the less busy", r.Choose(0, ask(1, chain(1, 12))), 2)

	// No metrics: requests in flight. 2 is over pressure when it has more than
	// 1.5 times the mean and more than 64 above it.
	// 3 of 12 blocks are not over 0.3: the least busy of all.
	if c := r.Choose(0, ask(9, slices.Concat(chain(1, 3), chain(2, 9)))); c.Worker != 0 && c.Worker != 3 {
		t.Errorf("a match of 0.25 went to %d", c.Worker)
	}
	r.Done(0, 9, Usage{})
	busy(r, 1, 100, 0)
	busy(r, 2, 99, 0) // loads 0, 103, 100, 0: the mean is 50.75
	wantWorker(t, "1.97 times but 49 above", r.Choose(0, ask(2, chain(1, 12))), 2)
	busy(r, 1, 40, 0)
	busy(r, 2, 60, 0) // loads 0, 143, 161, 0: the mean is 76; 1 is 67 above, 2 is 85
	if c := r.Choose(0, ask(3, chain(1, 12))); c.Worker != 0 && c.Worker != 3 {
		t.Errorf("with both holders over pressure it went to %d", c.Worker)
	}
	if c := r.Choose(0, ask(4, chain(7, 12))); c.Worker != 0 && c.Worker != 3 || c.CachedTokens != 0 {
		t.Errorf("a prompt nobody has went to %+v", c)
	}
}

// Over 64 above the mean alone is no pressure: it takes both.
func TestSMGPressure(t *testing.T) {
	r := newReplica(Config{Workers: 2}, "x", 0)
	for _, c := range []struct {
		load int
		mean float64
		want bool
	}{{150, 100, false}, {151, 100, false}, {164, 100, false}, {165, 100, true}, {265, 200, false}, {301, 200, true}} {
		r.book.loads[0].requests = c.load
		if got := r.pressed(0, c.mean); got != c.want {
			t.Errorf("%d requests at a mean of %v: over pressure %v", c.load, c.mean, got)
		}
	}
}

func TestExpectedWait(t *testing.T) {
	// (3000 + 1000)/2000 + 0.15·0.5/0.5
	g := gauges{known: true, sentTokensSince: 1000, t: engine.RankTelemetry{WaitingTokens: known(3000), KVUsage: known(0.5)}}
	wantNear(t, "the wait by tokens", expectedWait(&g), 2.15)
	// 2 waiting × 1024/2000 + 0.15·0.8/0.2
	g = gauges{known: true, t: engine.RankTelemetry{Waiting: known(2), KVUsage: known(0.8)}}
	wantNear(t, "the wait by requests", expectedWait(&g), 1.024+0.6)

	r := newReplica(Config{Workers: 3, Seed: 1}, "x", 0)
	r.gauges[0] = gauges{known: true, t: engine.RankTelemetry{WaitingTokens: known(2000)}} // 1.0 s
	r.gauges[1] = gauges{known: true, t: engine.RankTelemetry{WaitingTokens: known(2100)}}
	r.book.loads[2].requests = 1 // the best one's 1.0 s + 0.512 s
	if w := r.leastWait(r.ups); w != 0 {
		t.Errorf("least wait at %d, want 0", w)
	}
	if w := r.leastWait([]int{1, 2}); w != 1 {
		t.Errorf("least wait at %d, want 1: 1.05 s against 1.05 s + 0.512 s", w)
	}
}

// What was sent since the last look counts until the next one.
func TestExpectedWaitCreditsWhatWasSent(t *testing.T) {
	r := alone(2, SMG())
	for w := range 2 {
		r.Scraped(0, w, &engine.RankTelemetry{WaitingTokens: known(float64(100 * w)), KVUsage: known(0)})
	}
	wantWorker(t, "the shorter queue", r.Choose(0, ask(1, chain(1, 5))), 0) // 550 tokens
	wantWorker(t, "what was sent counts", r.Choose(0, ask(2, chain(2, 5))), 1)
	r.Scraped(0, 0, &engine.RankTelemetry{WaitingTokens: known(550), KVUsage: known(0)})
	r.Scraped(0, 1, &engine.RankTelemetry{WaitingTokens: known(650), KVUsage: known(0)})
	if in := inner(r); in.gauges[0].sentTokensSince != 0 {
		t.Error("a new look does not start the count anew")
	}
}

func TestSMGMesh(t *testing.T) {
	rs := SMGMesh()(Config{Workers: 12, Replicas: 2, BlockTokens: testBlock, Seed: 1})
	a, b := rs[0], rs[1]
	w := a.Choose(0, ask(1, chain(1, 10))).Worker
	tellAt := func(at time.Duration) any { return a.(Peer).Tell(clock.Instant(at)) }
	if tellAt(500*time.Millisecond) != nil {
		t.Error("told before a second was over")
	}
	said := tellAt(time.Second)
	if said == nil || tellAt(3*time.Second) != nil {
		t.Fatal("an insertion is told once, after a second")
	}
	if got := b.(*smgMesh).tree.run(w, chain(1, 10)); got != 0 {
		t.Fatalf("the other replica knew %d blocks before it was told", got)
	}
	b.(Peer).Hear(0, 0, said)
	wantWorker(t, "at the replica that was told", b.Choose(0, ask(2, chain(1, 10))), w)

	// At most 8 of the holders are looked at.
	r := alone(12, SMGMesh()).(*smgMesh)
	for w := range 12 {
		r.tree.touch(0, w, chain(1, 10))
	}
	seen := map[int]bool{}
	for i := range 50 {
		seen[r.Choose(0, ask(uint64(i), chain(1, 10))).Worker] = true
		r.Done(0, uint64(i), Usage{})
	}
	if len(seen) < 9 {
		t.Errorf("only %d of 12 equal holders were ever chosen", len(seen))
	}
	// So the one idle worker of twelve is passed over now and then.
	for w := range 11 {
		busy(r, w, 1, 0)
	}
	if at := choices(r, 90, chain(1, 10)); at[11] < 40 || at[11] > 80 {
		t.Errorf("the idle holder got %d of 90, want about two thirds", at[11])
	}
	// 3 of 10 blocks are not over 0.3.
	r = alone(2, SMGMesh()).(*smgMesh)
	r.tree.touch(0, 1, chain(1, 3))
	busy(r, 1, 1, 0)
	wantWorker(t, "a match of 0.3", r.Choose(0, ask(1, chain(1, 10))), 0)
	r.Done(0, 1, Usage{})
	r.tree.forget(0)
	r.tree.touch(0, 1, chain(1, 4))
	wantWorker(t, "a match of 0.4", r.Choose(0, ask(2, chain(1, 10))), 1)
}

func TestSharedIndexes(t *testing.T) {
	for _, name := range []string{"smg-radix-index", "sgl-kv-indexer"} {
		t.Run(name, func(t *testing.T) {
			down := false
			n, _ := ByName(name)
			rs := n.Make(Config{Workers: 3, Replicas: 2, BlockTokens: testBlock, Seed: 1,
				IndexDown: func(clock.Instant) bool { return down }})
			stored(rs[0], 2, 0, kv.HBM, chain(1, 20))
			stored(rs[1], 1, 0, kv.HBM, chain(1, 30)) // not the replica that feeds it
			busy(rs[1], 2, 5, 0)
			c := rs[1].Choose(0, ask(1, chain(1, 20)))
			wantWorker(t, "what one replica heard, the other knows", c, 2)
			if c.After != 2*time.Millisecond || c.CachedTokens != 2000 {
				t.Errorf("asking the index gave %+v", c)
			}
			down = true
			c = rs[1].Choose(0, ask(2, chain(1, 20)))
			if c.Worker == 2 || c.CachedTokens != 0 || c.After != 0 {
				t.Errorf("with the index down: %+v, want a choice by load alone", c)
			}
			down = false
			wantWorker(t, "the index is back", rs[1].Choose(0, ask(3, chain(1, 20))), 2)
		})
	}
}

func TestSGLRouter(t *testing.T) {
	type at struct{ blocks, waitingTokens int }
	for _, c := range []struct {
		name    string
		workers []at
		want    int // -1: whichever has the fewest requests of two
	}{
		{"the fewest uncached tokens", []at{{20, 0}, {30, 0}, {0, 0}}, 1},
		{"pressed and near: 1000 tokens apart", []at{{20, 0}, {30, 1100}, {0, 0}}, 0},
		{"pressed but not near: 1100 tokens apart", []at{{19, 0}, {30, 9000}, {0, 0}}, 1},
		{"near but only 1024 more", []at{{20, 0}, {30, 1024}, {0, 0}}, 1},
		{"near, 1025 more, but not 1.5 times", []at{{20, 2051}, {30, 3076}, {0, 0}}, 1},
		{"near, 1026 more and over 1.5 times", []at{{20, 2051}, {30, 3077}, {0, 0}}, 0},
		{"1000 matched tokens are no match", []at{{10, 900}, {0, 0}, {0, 100}}, -1},
		{"equal matches: the shorter queue", []at{{20, 80}, {20, 70}, {0, 0}}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := alone(3, SGLRouter(DefaultSGLRouter()))
			for w, x := range c.workers {
				stored(r, w, 0, kv.HBM, chain(1, x.blocks))
				r.Scraped(0, w, &engine.RankTelemetry{WaitingTokens: known(float64(x.waitingTokens))})
			}
			req := ask(1, chain(1, 30))
			req.PromptTokens = 3000 // a block of the prompt is 100 tokens, to the token
			got := r.Choose(0, req)
			if c.want >= 0 {
				wantWorker(t, c.name, got, c.want)
			} else if got.Worker == 0 {
				t.Error("the busiest of two drawn was chosen")
			}
		})
	}
}

func TestSGLRouterCandidates(t *testing.T) {
	for n, want := range map[int]int{3: 3, 8: 8, 100: 8, 240: 12, 1000: 32} {
		r := alone(n, SGLRouter(DefaultSGLRouter())).(*sglRouter)
		if got := r.candidates(); got != want {
			t.Errorf("%d workers: %d candidates, want %d", n, got, want)
		}
	}
}

func TestSGLRouterCapacity(t *testing.T) {
	r := alone(3, SGLRouter(DefaultSGLRouter()))
	stored(r, 0, 0, kv.HBM, chain(1, 30))
	stored(r, 1, 0, kv.HBM, chain(1, 25))
	r.Scraped(0, 0, &engine.RankTelemetry{WaitingTokens: known(0), Running: known(16), MaxSeqs: known(16)})
	r.Scraped(0, 1, &engine.RankTelemetry{WaitingTokens: known(0), KVUsage: known(0.5), HBMTokens: known(6000)})
	// 0 has no place; 1 has 3000 free tokens, and the prompt is 3050.
	wantWorker(t, "no candidate has room", r.Choose(0, ask(1, chain(1, 30))), 2)
	r.Scraped(0, 1, &engine.RankTelemetry{WaitingTokens: known(0), KVUsage: known(0.5), HBMTokens: known(6100)})
	wantWorker(t, "one has just enough", r.Choose(0, ask(2, chain(1, 30))), 1)
}

func TestDynamo(t *testing.T) {
	r := alone(3, Dynamo(DefaultDynamo())).(*dynamo)
	stored(r, 0, 0, kv.HBM, chain(1, 6))
	stored(r, 1, 0, kv.HBM, chain(1, 2))
	stored(r, 1, 1, kv.CPU, chain(1, 10)[2:])
	r.book.add(91, 0, 400, chain(1, 4)) // active: 4 blocks, 400 tokens to prefill
	r.book.add(92, 2, 0, chain(2, 3))   // active: 3 blocks of another prompt
	req := &Request{ID: 1, Keys: chain(1, 10), BlockTokens: testBlock, PromptTokens: 1000}
	runs := slices.Clone(r.caches.match(req.Keys))
	// In blocks: (400 + 1000)/100 − 6 = 8, and 4 active + 6 new.
	wantNear(t, "cost at 0", r.cost(req, 0, runs[0]), 18)
	// 10 − (2 + 0.75·8) = 2, and 10 new.
	wantNear(t, "cost at 1", r.cost(req, 1, runs[1]), 12)
	// 10, and 3 active + 10 new.
	wantNear(t, "cost at 2", r.cost(req, 2, runs[2]), 23)
	wantWorker(t, "the lowest", r.Choose(0, req), 1)
	// Booked: 1000 − 100·8 tokens, 10 blocks.
	if got := r.book.loads[1]; got != (load{requests: 1, waiting: 1, prefillTokens: 200, blocks: 10}) {
		t.Errorf("booked %+v", got)
	}
	r.FirstToken(0, 1)
	if got := r.book.loads[1]; got.prefillTokens != 0 || got.blocks != 10 {
		t.Errorf("after the first token %+v", got)
	}
}

func TestDynamoSettings(t *testing.T) {
	req := &Request{ID: 1, Keys: chain(1, 10), BlockTokens: testBlock, PromptTokens: 1000}
	cost := func(p DynamoParams, run index.Run) float64 {
		r := alone(1, Dynamo(p)).(*dynamo)
		r.book.add(91, 0, 400, chain(2, 4))
		return r.cost(req, 0, run)
	}
	half := index.Run{HBM: 5}
	two := index.Run{HBM: 5, Lower: 4, Tier: kv.CPU}
	wantNear(t, "dynamo", cost(DefaultDynamo(), half), 9+4+10)
	wantNear(t, "dynamo-tuned", cost(dynamoTuned(), half), 32*9+4+10)
	wantNear(t, "dynamo-agentic", cost(dynamoAgentic(), half), 4*(14-2*5)+4+10+64)
	wantNear(t, "dynamo-two-tier", cost(dynamoTwoTier(), two), 32*(14-1.1*5-0.5*4)+4+10)
	wantNear(t, "a prefill below 0", cost(dynamoAgentic(), index.Run{HBM: 10}), 4+10+64)
	wantNear(t, "disk", cost(DefaultDynamo(), index.Run{HBM: 1, Lower: 4, Tier: kv.Disk}), 14-1-1+4+10)
}

func TestDynamoTemperature(t *testing.T) {
	p := DefaultDynamo()
	p.Temperature = 0.5
	r := alone(3, Dynamo(p)).(*dynamo)
	var n [3]int
	for range 6000 {
		r.costs = append(r.costs[:0], 10, 20, 30)
		n[r.soften()]++
	}
	// e^0, e^−1, e^−2 of 1.5032: 0.665, 0.245, 0.090.
	if n[0] < 3800 || n[0] > 4180 || n[1] < 1330 || n[1] > 1610 || n[2] < 450 {
		t.Errorf("drawn %v of 6000, want about 3991, 1468, 540", n)
	}
}

func TestDynamoReplicaSync(t *testing.T) {
	rs := Dynamo(DefaultDynamo())(Config{Workers: 2, Replicas: 2, BlockTokens: testBlock, Seed: 1})
	a, b := rs[0].(*dynamo), rs[1].(*dynamo)
	w := a.Choose(0, ask(1, chain(1, 5))).Worker
	b.Hear(0, 0, a.Tell(0))
	if b.book.loads[w] != a.book.loads[w] || b.book.loads[w].blocks != 5 {
		t.Fatalf("told %+v, want %+v", b.book.loads[w], a.book.loads[w])
	}
	a.FirstToken(0, 1)
	b.Hear(0, 0, a.Tell(0))
	if b.book.loads[w].prefillTokens != 0 {
		t.Error("the first token was not heard of")
	}
	a.Done(0, 1, Usage{})
	if a.Tell(0) == nil { // lost
		t.Fatal("nothing told of the end")
	}
	b.Choose(clock.Instant(300*time.Second), ask(2, chain(2, 5)))
	if b.book.byID[1].keys == nil {
		t.Error("forgotten before 300 s were over")
	}
	b.Choose(clock.Instant(301*time.Second), ask(3, chain(2, 5)))
	if _, ok := b.book.byID[1]; ok {
		t.Error("a sequence whose end was lost is never forgotten")
	}
	if alone(2, Dynamo(DefaultDynamo())).(*dynamo).Tell(0) != nil {
		t.Error("a lone replica talks")
	}
}
