package route

import (
	"fmt"
	"math"
	"sync"
	"testing"

	"github.com/rhizome-router/rhizome/cost"
	"github.com/rhizome-router/rhizome/index"
	"github.com/rhizome-router/rhizome/kv"
	"github.com/rhizome-router/rhizome/prompt"
)

// 256 requests in flight at once that 32 goroutines place, nothing cached and 8
// workers idle: whatever the order in which they get through, nobody is herded.
func TestConcurrentColdRequestsSpread(t *testing.T) {
	const requests, workers, placers, seeds = 256, 8, 32, 50
	prompts := make([]*prompt.Request, requests)
	for i := range prompts {
		ids := make([]uint32, 320)
		for j := range ids {
			ids[j] = uint32(i*100_000 + j)
		}
		prompts[i] = &prompt.Request{Kind: prompt.Completion, Model: "m", Stream: true, N: 1, Prompts: 1, MaxTokens: 100, Tokens: ids}
	}
	for seed := range uint64(seeds / raceSlowdown) {
		h := newHouse(t, Rhizome, workers)
		h.Router = New(Config{Policy: Rhizome, Weights: cost.DefaultWeights(), Explained: 1, Seed: seed},
			Deps{Fleet: h, Index: h.index, Approx: index.NewApprox(index.ApproxConfig{MaxEntries: 1 << 10}), Clock: &h.clock})
		var all sync.WaitGroup
		start := make(chan struct{})
		targets := make([]kv.Target, requests)
		for who := range placers {
			all.Go(func() {
				<-start
				for i := who; i < requests; i += placers {
					d, err := h.Decide(Query{ID: fmt.Sprint(i), Prompt: prompts[i]})
					if err != nil {
						t.Error(err)
						return
					}
					targets[i] = d.Target
				}
			})
		}
		close(start)
		all.Wait()
		load, most := make(map[kv.Target]int), 0
		for _, target := range targets {
			load[target]++
			most = max(most, load[target])
		}
		if mean := float64(requests) / workers; float64(most) > 1.5*mean {
			t.Errorf("seed %d: one worker got %d, the mean is %v", seed, most, mean)
		}
	}
}

// A burst of 28 requests with one new prefix computes it at most once on each
// worker that was chosen: what the engines really computed is counted.
func TestBurstPrefillsThePrefixOncePerWorker(t *testing.T) {
	const burst, shared, own = 28, 12_000 / groundBlock * groundBlock, 160
	for seed := range uint64(5) {
		g := newGround(t, groundConfig{seed: seed, workers: 8, preset: "llama3-8b-h100"})
		chosen := make(map[int]int)
		for i := range uint64(burst) {
			g.send(0, i, &talk{id: 1, tokens: shared + own, shared: shared, tail: 100 + i}, 50)
			for to, in := range g.inlets {
				if in.Member.Target == g.flights[i].d.Target {
					chosen[to]++
				}
			}
		}
		g.run(math.Inf(1))
		for to, n := range chosen {
			computed := int(g.engines[to].Stats().PrefilledTokens)
			if most := shared + n*(own+groundBlock); computed > most {
				t.Errorf("seed %d: worker %d computed %d tokens for %d requests: more than the prefix once and the rest of each, %d", seed, to, computed, n, most)
			}
		}
	}
}
