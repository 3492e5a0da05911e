package sim

import "github.com/rhizome-router/rhizome/cost"

// Row is what one policy did in one scenario: each figure the mean over the
// seeds.
type Row struct {
	TTFTMean        float64 `json:"ttft_mean_s"`
	TTFTP50         float64 `json:"ttft_p50_s"`
	TTFTP90         float64 `json:"ttft_p90_s"`
	TTFTP99         float64 `json:"ttft_p99_s"`
	TPOTMean        float64 `json:"tpot_mean_s"`
	TPOTP50         float64 `json:"tpot_p50_s"`
	TPOTP90         float64 `json:"tpot_p90_s"`
	TPOTP99         float64 `json:"tpot_p99_s"`
	E2EMean         float64 `json:"e2e_mean_s"`
	E2EP50          float64 `json:"e2e_p50_s"`
	E2EP90          float64 `json:"e2e_p90_s"`
	E2EP99          float64 `json:"e2e_p99_s"`
	Goodput         float64 `json:"goodput"`         // share of requests within both objectives
	HitHBM          float64 `json:"hit_hbm"`         // share of prompt tokens found in HBM
	HitTier         float64 `json:"hit_tier"`        // share loaded from a lower tier
	FollowupCached  float64 `json:"followup_cached"` // cached share of the prompts of turns after the first
	LoadCoV         float64 `json:"load_cov"`        // std/mean over workers of busy time per 10 s, averaged
	LoadMaxMean     float64 `json:"load_max_mean"`   // max/mean of the same
	MovedBytes      float64 `json:"moved_bytes"`     // up from lower tiers
	Preemptions     float64 `json:"preemptions"`
	Failed          float64 `json:"failed"` // requests without a full answer
	PredictedError  float64 `json:"cached_error,omitempty"`
	Requests        float64 `json:"requests"`
	MakespanSeconds float64 `json:"makespan_s"`
	// CapacitySpeed is the highest speed with goodput ≥ 95 %, when searched.
	CapacitySpeed float64 `json:"capacity_speed,omitempty"`
	// CI95 holds, by the JSON name of a figure, the half-width of its 95 %
	// interval over the seeds (Student's t). Empty of a single run.
	CI95 map[string]float64 `json:"ci95"`
}

// Table is one scenario played by several policies over the same seeds.
type Table struct {
	Scenario Scenario        `json:"scenario"`
	Column   Column          `json:"column"`
	Seeds    []uint64        `json:"seeds"`
	Order    []string        `json:"-"` // the policies as asked for
	Policies map[string]*Row `json:"policies"`
	Bound    Bound           `json:"bound"`
	// Versus compares pairs of policies seed by seed.
	Versus []Versus `json:"versus,omitempty"`

	// Pictures and DecisionMicros are for the report and the terminal alone:
	// the latter is measured in real time, which no two runs share.
	Pictures       map[string]*Picture `json:"-"`
	DecisionMicros map[string]float64  `json:"-"`
}

// Bound is what no placement can pass: one cache shared by all that never
// forgets, and no queue.
type Bound struct {
	TTFTMean float64 `json:"ttft_mean_s"`
	Cached   float64 `json:"cached"` // share of prompt tokens
}

// Versus is a policy's figure over another's, paired by seed.
type Versus struct {
	Policy string  `json:"policy"` // ratio = Policy / Than
	Than   string  `json:"than"`
	Figure string  `json:"figure"` // JSON name in Row
	Ratio  float64 `json:"ratio"`  // geometric mean over the seeds
	Low    float64 `json:"low"`    // 95 % interval of it; equal to Ratio of a single run
	High   float64 `json:"high"`
}

// Picture is what plots are drawn from: one policy, the first seed.
type Picture struct {
	// TTFT and TPOT are quantiles in seconds at equal steps from 0 to 1
	// inclusive.
	TTFT, TPOT []float64
	// The series below are by window of WindowSeconds.
	WindowSeconds float64
	HitHBM        []float64 // share of the prompt tokens that arrived in it
	HitTier       []float64
	LoadMin       []float64 // busy share of the least busy worker
	LoadMean      []float64
	LoadMax       []float64
	// Terms are the mean parts of the chosen worker's cost in µs, of policies
	// that price; by name, in order.
	Terms []Term
	// Speeds and Goodput are the goodput-against-load curve, when one was
	// played.
	Speeds, Goodput []float64
}

// Term is one named part of a cost.
type Term = cost.NamedTerm
