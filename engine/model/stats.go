package model

import (
	"iter"

	"github.com/rhizome-router/rhizome/kv"
)

// Stats are a worker's gauges and totals since it began.
type Stats struct {
	Waiting int // requests not admitted
	Running int // admitted: loading, prefilling or decoding
	Loading int // those of Running that wait for a load

	Requests, Finished, Cancelled int64
	PromptTokens                  int64 // of submitted requests
	ComputedTokens                int64 // prompt tokens computed, recomputation included
	GeneratedTokens               int64
	HBMHitTokens                  int64
	Preemptions                   int64
	Evictions                     int64 // blocks pushed out of HBM
	Iterations                    int64
	BusyMicros                    float64 // modelled time in which an iteration ran
	PrefillMicros                 float64 // that of ended iterations which computed prompts

	HBM   TierStats
	Lower []TierStats // as configured
}

// TierStats tells of one tier.
type TierStats struct {
	Tier                       kv.Tier
	CapacityBlocks, UsedBlocks int   // UsedBlocks: HBM: in use by sequences; lower: held
	CachedBlocks               int   // HBM: named, in use or not; lower: held
	IdleBlocks                 int   // HBM: cached and not in use, to be evicted when room is needed
	HitTokens                  int64 // found here at admission
	Loads, LoadedBytes         int64 // queued on the link so far
	LoadedMicros               float64
}

// BusyMicros returns the modelled time in which an iteration ran, up to now.
func (w *Worker) BusyMicros() float64 {
	if w.it.active {
		return w.stats.BusyMicros + w.now - w.it.start
	}
	return w.stats.BusyMicros
}

// WaitingTokens returns how many prompt tokens the requests that wait for
// admission would have to compute, as the cache stands.
func (w *Worker) WaitingTokens() int {
	n := 0
	for _, s := range w.waiting {
		target := s.PromptTokens + s.generated
		usable := s.Keys[:min((target-1)/w.cfg.BlockTokens, len(s.Keys))]
		hits := 0
		for hits < len(usable) && w.holds(usable[hits]) {
			hits++
		}
		n += target - hits*w.cfg.BlockTokens
	}
	return n
}

// holds reports whether any tier has a block.
func (w *Worker) holds(h kv.EngineHash) bool {
	found := w.pool.names.Get(h) >= 0
	for _, l := range w.tiers {
		found = found || l.names.Get(h) >= 0
	}
	return found
}

// Stats returns the gauges and totals at the instant of the last Advance.
func (w *Worker) Stats() Stats {
	st := w.stats
	st.Waiting, st.Running = len(w.waiting), len(w.running)
	for _, s := range w.prefilling {
		if s.ready > w.now {
			st.Loading++
		}
	}
	st.BusyMicros = w.BusyMicros()
	st.HBM = TierStats{
		Tier: kv.HBM, CapacityBlocks: w.pool.size(), UsedBlocks: w.pool.used,
		CachedBlocks: w.pool.named, IdleBlocks: w.pool.cached, HitTokens: st.HBMHitTokens,
	}
	for _, l := range w.tiers {
		st.Lower = append(st.Lower, TierStats{
			Tier: l.tier, CapacityBlocks: l.capacity, UsedBlocks: l.len(), CachedBlocks: l.len(),
			HitTokens: l.hitTokens, Loads: l.loads, LoadedBytes: l.loadedBytes, LoadedMicros: l.loadedMicros,
		})
	}
	return st
}

// Cached yields the name of every block that a tier holds, once per copy, in
// an order that means nothing. It includes blocks that the current iteration
// computes and those on a link; on an idle worker it equals the sum of all
// Stored and Removed events.
func (w *Worker) Cached(t kv.Tier) iter.Seq[kv.EngineHash] {
	return func(yield func(kv.EngineHash) bool) {
		if t == kv.HBM {
			for i := range w.pool.size() {
				if b := &w.pool.blocks[i]; b.named && !yield(b.hash) {
					return
				}
			}
			return
		}
		for _, l := range w.tiers {
			if l.tier != t {
				continue
			}
			for i := range l.nodes[1:] {
				if !yield(l.nodes[i+1].hash) {
					return
				}
			}
		}
	}
}
