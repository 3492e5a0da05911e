package engine

import (
	"math"
	"slices"

	"github.com/rhizome-router/rhizome/kv"
)

// Value is a number that a worker may or may not have told.
type Value struct {
	Value float64
	Known bool
}

// add sums known values.
func (v *Value) add(x Value) {
	if x.Known {
		v.Value, v.Known = v.Value+x.Value, true
	}
}

// known returns x as told, unless it is a NaN or an infinity.
func known(x float64) Value {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return Value{}
	}
	return Value{Value: x, Known: true}
}

// Telemetry is what one look at a worker's metrics showed. An idle engine
// repeats its last gauges, so they may be old.
type Telemetry struct {
	// ProcessStartSeconds is when the server process started, Unix time.
	ProcessStartSeconds Value
	// Ranks has an entry for each data-parallel rank up to the highest seen.
	Ranks []RankTelemetry
}

// RankTelemetry is what one data-parallel rank shows. Counters start at 0 with
// the process. SGLang counts prompts' and cached tokens for all ranks together:
// they stand at rank 0.
type RankTelemetry struct {
	Running       Value // requests
	Waiting       Value // requests
	WaitingTokens Value // of waiting requests, what is to be computed: not cached (SGLang)
	MaxSeqs       Value // requests that may run at once (SGLang)
	KVUsage       Value // share of KV memory in use by running requests, 0 to 1
	BlockTokens   Value // tokens in a block
	HBMTokens     Value // tokens that the KV memory in HBM can hold

	PrefixQueriesTokens Value // counter: tokens looked up in the prefix cache in HBM
	PrefixHitsTokens    Value // counter: tokens of them found
	// ExternalQueriesTokens and ExternalHitsTokens count the same for what is
	// beyond HBM: offload, a pool, another instance.
	ExternalQueriesTokens, ExternalHitsTokens Value

	// InterTokens counts tokens that came after another one of their request,
	// and InterTokenSeconds the times between the two.
	InterTokens, InterTokenSeconds Value
	// Prefills counts requests whose prompt was computed, PrefillSeconds the
	// times from admission to first token, and PrefilledTokens the tokens that
	// had to be computed.
	Prefills, PrefillSeconds, PrefilledTokens Value

	// Tiers are the transfers between HBM and each lower tier.
	Tiers [kv.NumTiers]TierTelemetry
}

// TierTelemetry counts transfers since the process started. Where several
// processes of a rank copy their shares at once, bytes are their sum and
// seconds their mean: bytes by seconds is then the rank's bandwidth, and
// seconds grow by at most one a second where one stream copies at a time.
type TierTelemetry struct {
	LoadBytes, LoadSeconds   Value // to HBM
	StoreBytes, StoreSeconds Value // from HBM
}

// rank returns a rank's entry, which it makes if need be; nil for a number
// that is no rank.
func (t *Telemetry) rank(n int) *RankTelemetry {
	if n < 0 || n >= MaxRanks {
		return nil
	}
	if missing := n + 1 - len(t.Ranks); missing > 0 {
		t.Ranks = append(t.Ranks, slices.Repeat([]RankTelemetry{{}}, missing)...)
	}
	return &t.Ranks[n]
}

// Rank returns one rank's telemetry, and for kv.NoRank that of all together:
// sums, and the means of shares and of seconds.
func (t Telemetry) Rank(rank int) RankTelemetry {
	switch {
	case rank == kv.NoRank && len(t.Ranks) == 1:
		return t.Ranks[0]
	case rank == kv.NoRank:
		return t.all()
	case rank < 0 || rank >= len(t.Ranks):
		return RankTelemetry{}
	}
	return t.Ranks[rank]
}

func (t Telemetry) all() RankTelemetry {
	var all RankTelemetry
	for i := range t.Ranks {
		r := &t.Ranks[i]
		all.Running.add(r.Running)
		all.Waiting.add(r.Waiting)
		all.WaitingTokens.add(r.WaitingTokens)
		all.MaxSeqs.add(r.MaxSeqs)
		all.HBMTokens.add(r.HBMTokens)
		all.PrefixQueriesTokens.add(r.PrefixQueriesTokens)
		all.PrefixHitsTokens.add(r.PrefixHitsTokens)
		all.ExternalQueriesTokens.add(r.ExternalQueriesTokens)
		all.ExternalHitsTokens.add(r.ExternalHitsTokens)
		all.InterTokens.add(r.InterTokens)
		all.InterTokenSeconds.add(r.InterTokenSeconds)
		all.Prefills.add(r.Prefills)
		all.PrefillSeconds.add(r.PrefillSeconds)
		all.PrefilledTokens.add(r.PrefilledTokens)
		if r.BlockTokens.Known {
			all.BlockTokens = r.BlockTokens
		}
		for tier := range all.Tiers {
			all.Tiers[tier].LoadBytes.add(r.Tiers[tier].LoadBytes)
			all.Tiers[tier].StoreBytes.add(r.Tiers[tier].StoreBytes)
		}
	}
	all.KVUsage = t.mean(func(r *RankTelemetry) Value { return r.KVUsage })
	for tier := range all.Tiers {
		all.Tiers[tier].LoadSeconds = t.mean(func(r *RankTelemetry) Value { return r.Tiers[tier].LoadSeconds })
		all.Tiers[tier].StoreSeconds = t.mean(func(r *RankTelemetry) Value { return r.Tiers[tier].StoreSeconds })
	}
	return all
}

// mean returns the mean over the ranks that know a value.
func (t Telemetry) mean(of func(*RankTelemetry) Value) Value {
	var sum Value
	n := 0.0
	for i := range t.Ranks {
		if v := of(&t.Ranks[i]); v.Known {
			sum.add(v)
			n++
		}
	}
	sum.Value /= max(1, n)
	return sum
}

// CapacityTokens returns how many tokens the HBM of a rank, or with kv.NoRank
// of all ranks, can hold; 0 where the worker doesn't say.
func (t Telemetry) CapacityTokens(rank int) int {
	tokens := 0.0
	for i := range t.Ranks {
		if v := t.Ranks[i].HBMTokens; (rank == i || rank == kv.NoRank) && v.Known {
			tokens += v.Value
		}
	}
	if !(tokens > 0 && tokens < 1<<53) {
		return 0
	}
	return int(tokens)
}
