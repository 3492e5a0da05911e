package policy

import (
	"fmt"
	"testing"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/engine"
	"github.com/rhizome-router/rhizome/kv"
)

// A decision on prompts of 190 blocks of which the first 60 are everywhere and
// the rest on two workers, with ten requests in flight on each.
func BenchmarkChoose(b *testing.B) {
	for _, workers := range []int{8, 240} {
		for _, n := range All() {
			if n.Fitted {
				continue
			}
			b.Run(fmt.Sprintf("workers=%d/%s", workers, n.Name), func(b *testing.B) {
				r := n.Make(Config{Workers: workers, Replicas: 1, BlockTokens: 64, Seed: 1})[0]
				prompts := warm(r, workers)
				b.ReportAllocs()
				id, now := uint64(0), clock.Instant(0)
				for b.Loop() {
					id++
					now += 1_000_000
					keys := prompts[id%uint64(len(prompts))]
					c := r.Choose(now, &Request{ID: id, Keys: keys, BlockTokens: 64, PromptTokens: 64*len(keys) + 9})
					if c.Worker < 0 {
						b.Fatal("nowhere to go")
					}
					if depth := uint64(10 * workers); id > depth {
						r.FirstToken(now, id-depth)
						r.Done(now, id-depth, Usage{CompletionTokens: 200})
					}
				}
			})
		}
	}
}

// warm fills the workers' caches and returns the prompts.
func warm(r Router, workers int) [][]kv.Key {
	var prompts [][]kv.Key
	for i := range 64 {
		keys := chain(1, 60)
		at := keys[59]
		for j := range 130 {
			at = kv.Next(at, kv.Content(1000*(i+1)+j))
			keys = append(keys, at)
		}
		prompts = append(prompts, keys)
	}
	seq := make([]uint64, workers)
	tell := func(w int, keys []kv.Key) {
		stored(r, w, seq[w], kv.HBM, keys)
		seq[w]++
	}
	for w := range workers {
		tell(w, prompts[0][:60])
		r.Scraped(0, w, &engine.RankTelemetry{KVUsage: known(0.4), Waiting: known(1), Running: known(9),
			WaitingTokens: known(float64(100 * (w % 7))), MaxSeqs: known(256), HBMTokens: known(450_000)})
	}
	for i, keys := range prompts {
		tell(i%workers, keys)
		tell((i+3)%workers, keys[:120])
	}
	return prompts
}

// What one replica's event-fed index of 60 workers costs in memory is reported
// as bytes a block; the blocks are all different but for a shared beginning.
func BenchmarkEventMemory(b *testing.B) {
	const workers, blocks = 60, 7_000
	for b.Loop() {
		e, h := newEvents(Config{Workers: workers}), newHolders(Config{Workers: workers})
		for w := range workers {
			batch := &Batch{Seq: 0}
			for i, k := range chain(w+2, blocks) {
				if i < 200 {
					k = kv.Key(i + 1)
				}
				batch.Changes = append(batch.Changes, Change{Key: k, Present: true})
			}
			e.apply(w, batch)
			h.apply(w, batch)
		}
		b.ReportMetric(float64(e.index.Stats().Bytes)/(workers*blocks), "index-B/block")
		b.ReportMetric(float64(32*len(h.cells))/(workers*blocks), "holders-B/block")
	}
}
