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

	// Totals over requests as engines report them; the name of vLLM's metric is
	// given where there is one. Tokens found are counted at every admission,
	// looked up again after a preemption.
	QueriedTokens     int64   // looked up in the cache: prefix_cache_queries; HBMHitTokens are its hits
	ExternalHitTokens int64   // found in lower tiers: external_prefix_cache_hits
	Admitted          int64   // requests admitted at least once
	QueueMicros       float64 // from arrival to first admission, over Admitted: request_queue_time_seconds
	FirstTokens       int64   // requests whose first token is out
	FirstTokenMicros  float64 // from arrival to there, over FirstTokens: time_to_first_token_seconds
	AdmittedMicros    float64 // from admission to there, over FirstTokens: request_prefill_time_seconds
	PrefilledTokens   int64   // prompt tokens not found in any cache, over FirstTokens: request_prefill_kv_computed_tokens
	InterTokens       int64   // tokens after the first of a request
	InterTokenMicros  float64 // each from the token before, over InterTokens: inter_token_latency_seconds

	HBM   TierStats
	Lower []TierStats // as configured
}

// TierStats tells of one tier.
type TierStats struct {
	Tier                       kv.Tier
	CapacityBlocks, UsedBlocks int     // UsedBlocks: HBM: in use by sequences; lower: held
	CachedBlocks               int     // HBM: named, in use or not; lower: held
	IdleBlocks                 int     // HBM: cached and not in use, to be evicted when room is needed
	HitTokens                  int64   // found here at admission
	Loads, LoadedBytes         int64   // transfers that have arrived
	LoadedMicros               float64 // that they took on the link; they overlap where it is shared
	StoredBytes                int64   // that came from above
}

// countFirst notes a first token.
func (w *Worker) countFirst(s *seq, now float64) {
	w.stats.FirstTokens++
	w.stats.FirstTokenMicros += now - s.arrival
	w.stats.AdmittedMicros += now - s.admitted
	w.stats.PrefilledTokens += int64(s.PromptTokens - s.hbmTokens - s.tierTokens)
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
		n += target - w.usable(usable[:hits])*w.cfg.BlockTokens
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
		if s.loading > 0 {
			st.Loading++
		}
	}
	for _, s := range w.running {
		if n := w.steps - s.startStep; s.state == decoding && n > 0 {
			st.InterTokens += n
			st.InterTokenMicros += w.it.lastDecode - s.tokenAt
		}
	}
	st.BusyMicros = w.BusyMicros()
	st.HBM = TierStats{
		Tier: kv.HBM, CapacityBlocks: w.pool.capacity, UsedBlocks: w.pool.used,
		CachedBlocks: w.pool.named, IdleBlocks: w.pool.cached, HitTokens: st.HBMHitTokens,
	}
	for _, l := range w.tiers {
		st.Lower = append(st.Lower, TierStats{
			Tier: l.tier, CapacityBlocks: l.capacity, UsedBlocks: l.len(), CachedBlocks: l.len(),
			HitTokens: l.hitTokens, Loads: l.link.loads, LoadedBytes: l.link.loadedBytes, LoadedMicros: l.link.loadedMicros,
			StoredBytes: l.storedBlocks * int64(w.cfg.BlockTokens) * w.cfg.Preset.KVBytesPerToken,
		})
	}
	return st
}

// Cached yields the name of every block that a tier holds, once per copy, in
// an order that means nothing. It includes blocks that the current iteration
// computes and those on a link; on an idle worker it equals the sum of all
// Stored and Removed events of group 0.
func (w *Worker) Cached(t kv.Tier) iter.Seq[kv.EngineHash] {
	return func(yield func(kv.EngineHash) bool) {
		if t == kv.HBM {
			for i := range w.pool.blocks {
				if b := &w.pool.blocks[i]; b.named && !b.windowed && !yield(b.hash) {
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

// CachedWindow does the same for the blocks of WindowGroup, which are in HBM.
func (w *Worker) CachedWindow() iter.Seq[kv.EngineHash] {
	return func(yield func(kv.EngineHash) bool) {
		for i := range w.pool.blocks {
			if b := &w.pool.blocks[i]; b.named && b.windowed && !yield(windowName(b.hash)) {
				return
			}
		}
	}
}
