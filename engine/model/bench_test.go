package model

import (
	"math/rand/v2"
	"runtime"
	"strconv"
	"testing"

	"github.com/rhizome-router/rhizome/kv"
)

// BenchmarkTraffic runs an hour of chat: 12,000 requests on eight workers,
// prompts of 12,000 tokens of which a third is a prefix seen before, 343 tokens
// out, requests spread at random, by tokens in a block. requests/s are of real
// time. Most of it is cache misses of the machine that runs it, so it scales
// with blocks.
func BenchmarkTraffic(b *testing.B) {
	for _, tokens := range []int{16, 64, 512} {
		b.Run(strconv.Itoa(tokens), func(b *testing.B) { benchmarkTraffic(b, tokens) })
	}
}

func benchmarkTraffic(b *testing.B, blockTokens int) {
	type job struct {
		worker int
		at     float64
		r      Request
	}
	rnd := rand.New(rand.NewPCG(1, 1))
	var jobs []job
	at := 0.0
	for i := range 12000 {
		at += rnd.ExpFloat64() * 3537e6 / 12000
		k := make([]kv.EngineHash, 12343/blockTokens)
		session := kv.EngineHash(rnd.IntN(2000)) << 20
		for j := range k {
			k[j] = session + kv.EngineHash(j)
			if j > 4000/blockTokens {
				k[j] += kv.EngineHash(i+1) << 40
			}
		}
		jobs = append(jobs, job{rnd.IntN(8), at, Request{ID: uint64(i), PromptTokens: 12000, OutputTokens: 343, Keys: k}})
	}
	b.ReportAllocs()
	for b.Loop() {
		var workers [8]*Worker
		for i := range workers {
			workers[i] = newWorker(b, Config{BlockTokens: blockTokens})
		}
		sink := func(Event) {}
		for _, j := range jobs {
			w := workers[j.worker]
			for {
				next, ok := w.Next()
				if !ok || next > j.at {
					break
				}
				w.Advance(next, sink)
			}
			submit(b, w, j.at, j.r)
		}
		for _, w := range workers {
			drain(w, sink)
		}
	}
	b.ReportMetric(float64(len(jobs)*b.N)/b.Elapsed().Seconds(), "requests/s")
}

// BenchmarkDecode is one token of one sequence in a batch of 64.
func BenchmarkDecode(b *testing.B) {
	w := newWorker(b, Config{})
	sink := func(Event) {}
	next, id := 0.0, uint64(0)
	for tokens := 0; b.Loop(); tokens++ {
		for ; len(w.seqs) < 64; id++ {
			submit(b, w, next, Request{ID: id, PromptTokens: 1000, OutputTokens: 1000})
		}
		next, _ = w.NextIteration()
		w.Advance(next, sink)
	}
}

// BenchmarkMemory fills HBM and the CPU tier of workers with pools of 450,000
// tokens in blocks of 64, and reports what one takes of the heap.
func BenchmarkMemory(b *testing.B) {
	const workers = 24
	for b.Loop() {
		before := heap()
		var fleet [workers]*Worker
		for i := range fleet {
			fleet[i] = newWorker(b, Config{BlockTokens: 64})
		}
		b.ReportMetric(float64(heap()-before)/workers, "idleB/worker")
		for _, w := range fleet {
			for id := range uint64(24) {
				submit(b, w, 0, Request{ID: id, PromptTokens: 120_000, OutputTokens: 1, Keys: keys(id, 1875)})
			}
			drain(w, func(Event) {})
		}
		b.ReportMetric(float64(heap()-before)/workers, "fullB/worker")
		if st := fleet[0].Stats(); st.Lower[0].UsedBlocks < st.Lower[0].CapacityBlocks {
			b.Fatalf("the CPU tier isn't full: %+v", st.Lower[0])
		}
	}
}

func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// BenchmarkCheck looks at the books of a worker whose tiers are full.
func BenchmarkCheck(b *testing.B) {
	w := newWorker(b, Config{BlockTokens: 64})
	for id := range uint64(24) {
		submit(b, w, 0, Request{ID: id, PromptTokens: 120_000, OutputTokens: 1, Keys: keys(id, 1875)})
	}
	drain(w, func(Event) {})
	for b.Loop() {
		if err := w.Check(); err != nil {
			b.Fatal(err)
		}
	}
}
