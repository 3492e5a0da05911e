package policy

import (
	"slices"
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/kv"
)

// LLMDPreciseParams are llm-d's weights and what else can be set.
type LLMDPreciseParams struct {
	MatchWeight, KVWeight, QueueWeight float64
	CPUWeight                          float64 // of a block in host memory against one in HBM
	SpeculativeSeconds                 float64 // life of a speculative entry
}

// DefaultLLMDPrecise returns the published settings.
func DefaultLLMDPrecise() LLMDPreciseParams {
	w := defaultLLMDWeights()
	return LLMDPreciseParams{MatchWeight: w.match, KVWeight: w.kv, QueueWeight: w.queue,
		CPUWeight: 0.8, SpeculativeSeconds: 2}
}

// llmdPrecise is llm-d with the precise prefix scorer: match is the sum over
// the prompt's leading consecutive blocks of the weight of the best tier where
// the worker holds them (HBM 1.0, CPU 0.8, anything else and speculative
// entries 1.0), by the number of the prompt's blocks. The highest score wins,
// equal ones are drawn at random.
//
// What a request is sent becomes a speculative entry for each of the prompt's
// blocks. It has one timer of 2 s: a later request that finds the entry
// shares it and does not start the timer anew. The index keeps the 10 entries
// of a block that were added last.
//
// Source: llm-d/llm-d-inference-scheduler,
// dataproducer/preciseprefixcache (prerequest.go for the speculative entries);
// llm-d/llm-d-kv-cache, pkg/kvcache/kvblock_scorer.go and
// kvblock/in_memory.go (10 entries a key); llmdScores. Signals: KV events, own
// routings for 2 s, the metrics' waiting requests and KV usage. Replicas share
// nothing.
//
// Assumed: speculative entries, which are an option, are on.
type llmdPrecise struct {
	replica
	p      LLMDPreciseParams
	blocks *holders
	timers []speculation // in the order of their ends
	scores []float64     // by worker
	runs   []int
}

// speculation is the entries that one request made.
type speculation struct {
	ends   clock.Instant
	worker int
	keys   []kv.Key
}

// LLMDPrecise makes replicas of llm-d-precise with given parameters.
func LLMDPrecise(p LLMDPreciseParams) Maker {
	return each(func(cfg Config, i int) Router {
		return &llmdPrecise{replica: newReplica(cfg, "llm-d-precise", i), p: p, blocks: newHolders(cfg),
			scores: make([]float64, cfg.Workers), runs: make([]int, cfg.Workers)}
	})
}

// Choose implements Router.
func (p *llmdPrecise) Choose(now clock.Instant, r *Request) Choice {
	p.expire(now)
	p.match(r.Keys)
	best := p.least()
	p.llmdScores(llmdWeights{p.p.MatchWeight, p.p.KVWeight, p.p.QueueWeight}, func(w int) float64 {
		if len(r.Keys) == 0 {
			return 0
		}
		return p.scores[w] / float64(len(r.Keys))
	}, func(w int, score float64) { best.offer(w, -score) })
	w := best.worker
	cached := cachedTokens(r, p.runs[w])
	p.speculate(now, w, r.Keys)
	p.send(r, w, r.PromptTokens-cached)
	return Choice{Worker: w, CachedTokens: cached}
}

// match sets for each worker the sum of weights over its leading blocks, and
// their number.
func (p *llmdPrecise) match(keys []kv.Key) {
	clear(p.scores)
	clear(p.runs)
	for i, k := range keys {
		found := false
		for e, weight := range p.weights(k) {
			if w := e.worker(); p.runs[w] == i {
				p.runs[w]++
				p.scores[w] += weight
				found = true
			}
		}
		if !found {
			return
		}
	}
}

// weights ranges over the entries of a block with their weights, the best one
// of a worker first.
func (p *llmdPrecise) weights(k kv.Key) func(yield func(entry, float64) bool) {
	return func(yield func(entry, float64) bool) {
		found := p.blocks.find(k)
		for _, e := range found {
			if e.tier() != kv.CPU && !yield(e, 1) {
				return
			}
		}
		for _, e := range found {
			if e.tier() == kv.CPU && !yield(e, p.p.CPUWeight) {
				return
			}
		}
	}
}

// speculate adds entries for a prompt that was sent.
func (p *llmdPrecise) speculate(now clock.Instant, worker int, keys []kv.Key) {
	if p.p.SpeculativeSeconds <= 0 || len(keys) == 0 || worker >= maxHolderWorkers {
		return
	}
	for _, k := range keys {
		p.blocks.add(k, speculativeEntry(worker))
	}
	life := time.Duration(p.p.SpeculativeSeconds * float64(time.Second))
	p.timers = append(p.timers, speculation{now.Add(life), worker, slices.Clone(keys)})
}

// expire takes away the entries whose timer ended. An entry that several
// requests share goes with the first one's.
func (p *llmdPrecise) expire(now clock.Instant) {
	for len(p.timers) > 0 && p.timers[0].ends <= now {
		t := p.timers[0]
		for _, k := range t.keys {
			p.blocks.remove(k, speculativeEntry(t.worker))
		}
		p.timers[0] = speculation{}
		p.timers = p.timers[1:]
	}
}

// Events implements Router.
func (p *llmdPrecise) Events(_ clock.Instant, worker int, b *Batch) {
	p.blocks.apply(worker, b)
}

// Up implements Router.
func (p *llmdPrecise) Up(now clock.Instant, worker int, up bool) {
	if !up && p.up[worker] {
		p.blocks.forget(worker)
		p.timers = slices.DeleteFunc(p.timers, func(t speculation) bool { return t.worker == worker })
	}
	p.replica.Up(now, worker, up)
}

// tunableLLMDPrecise describes the settings to an optimiser.
func tunableLLMDPrecise() Tunable {
	d := DefaultLLMDPrecise()
	return Tunable{
		Params: []Param{
			{Name: "match_weight", Low: 0.1, High: 30, Log: true, Default: d.MatchWeight},
			{Name: "kv_weight", Low: 0, High: 10, Default: d.KVWeight},
			{Name: "queue_weight", Low: 0, High: 10, Default: d.QueueWeight},
			{Name: "cpu_weight", Low: 0, High: 1, Default: d.CPUWeight},
			{Name: "speculative_seconds", Low: 0.1, High: 60, Log: true, Default: d.SpeculativeSeconds},
		},
		Make: func(x []float64) Maker {
			return LLMDPrecise(LLMDPreciseParams{MatchWeight: x[0], KVWeight: x[1], QueueWeight: x[2], CPUWeight: x[3],
				SpeculativeSeconds: x[4]})
		},
	}
}
