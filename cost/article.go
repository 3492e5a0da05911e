package cost

import (
	"math"

	"github.com/rhizome-router/rhizome/kv"
)

// Article holds the parameters of the article's cost, the form this project
// started from and keeps as a reproducible reference:
//
//	α_p·p_eff + α_d·Σd_rem + (α_d2/2)·Σd_rem² + Σ_t α_t·bytes_t/(BW_t·avail_t)
//	+ α_ho·max(0, Q−Q_slack)² − α_wf·1[last worker]·e^(−λ·t) − α_wf2·expected share
//
// It is not the default: Σd_rem over residents is no wait under continuous
// batching, a bonus for the last worker counts its hit twice, no term knows
// the KV pool's size, and it herds.
type Article struct {
	// PrefillMicros is α_p, per token.
	PrefillMicros float64 `yaml:"prefill_micros" config:"zero"`
	// DecodeMicros is α_d, per token.
	DecodeMicros float64 `yaml:"decode_micros" config:"zero"`
	// DecodeSquareMicros is α_d2, per token².
	DecodeSquareMicros float64 `yaml:"decode_square_micros" config:"zero"`
	// TierWeight is α_t.
	TierWeight float64 `yaml:"tier_weight" config:"zero"`
	// HeadOfLineMicros is α_ho.
	HeadOfLineMicros float64 `yaml:"head_of_line_micros" config:"zero"`
	// QueueSlack is Q_slack, in requests.
	QueueSlack float64 `yaml:"queue_slack" config:"zero"`
	// AffinityMicros is α_wf.
	AffinityMicros float64 `yaml:"affinity_micros" config:"zero"`
	// AffinityPerSecond is λ.
	AffinityPerSecond float64 `yaml:"affinity_per_second" config:"zero"`
	// ExpectedMicros is α_wf2.
	ExpectedMicros float64 `yaml:"expected_micros" config:"zero"`
	// KVBytes is the KV of a token.
	KVBytes float64 `yaml:"kv_bytes"`
	// BytesPerMicro is BW of every tier; 1 GB/s is 1000.
	BytesPerMicro float64 `yaml:"bytes_per_micro"`
	// Literal reads the article to the letter: see Article.Score.
	Literal bool `yaml:"literal"`
}

// DefaultArticle returns the parameters of the article's worked example.
func DefaultArticle() Article {
	return Article{
		PrefillMicros: 1, DecodeMicros: 50, DecodeSquareMicros: 0.001, TierWeight: 1, HeadOfLineMicros: 100, QueueSlack: 4,
		AffinityMicros: 5000, AffinityPerSecond: 1.0 / 120, KVBytes: 512, BytesPerMicro: 64_000,
	}
}

// ArticleLoad is what the article's cost reads of a worker.
type ArticleLoad struct {
	RemainingTokens  float64 // Σ d_rem over the active requests
	RemainingSquares float64 // Σ d_rem²
	Queue            float64 // Q: requests waiting
	Rho              [kv.NumTiers]float64
	Closed           [kv.NumTiers]float64 // see [Gate]
	LastWorker       bool                 // this worker served the session's last request …
	SinceSeconds     float64              // … that long ago
	ExpectedShare    float64              // |ExpectedHits| / |expected tools|, 0 to 1
}

// ArticleTerms are the parts of the article's cost in microseconds. Affinity
// and Expected are bonuses, so they are negative.
type ArticleTerms struct {
	PrefillMicros      float64 `json:"prefill_micros"`
	DecodeMicros       float64 `json:"decode_micros"`
	DecodeSquareMicros float64 `json:"decode_square_micros"`
	TierMicros         float64 `json:"tier_micros"`
	HeadOfLineMicros   float64 `json:"head_of_line_micros"`
	AffinityMicros     float64 `json:"affinity_micros"`
	ExpectedMicros     float64 `json:"expected_micros"`
}

// TotalMicros is the cost.
func (t ArticleTerms) TotalMicros() float64 {
	return t.PrefillMicros + t.DecodeMicros + t.DecodeSquareMicros + t.TierMicros + t.HeadOfLineMicros +
		t.AffinityMicros + t.ExpectedMicros
}

// Score prices one worker. The corrected reading takes loaded tier tokens off
// the prefill and divides bandwidth by what is left of it; the literal one
// leaves them in and divides by ρ itself, so that congestion looks cheap.
func (a *Article) Score(l *ArticleLoad, r Request, h Hit) ArticleTerms {
	var t ArticleTerms
	available := max(1-l.Rho[h.Tier], minAvailable)
	tokens := Uncached(r, h)
	if a.Literal {
		available = max(l.Rho[h.Tier], minAvailable)
		tokens = r.PromptTokens - h.HBMTokens
	}
	t.PrefillMicros = a.PrefillMicros * tokens
	t.DecodeMicros = a.DecodeMicros * l.RemainingTokens
	t.DecodeSquareMicros = a.DecodeSquareMicros / 2 * l.RemainingSquares
	if h.LowerTokens > 0 {
		load := a.TierWeight * h.LowerTokens * a.KVBytes / (a.BytesPerMicro * available)
		t.TierMicros = gated(load, a.PrefillMicros*h.LowerTokens, l.Closed[h.Tier])
	}
	excess := max(0, l.Queue-a.QueueSlack)
	t.HeadOfLineMicros = a.HeadOfLineMicros * excess * excess
	if l.LastWorker {
		t.AffinityMicros = -a.AffinityMicros * math.Exp(-a.AffinityPerSecond*l.SinceSeconds)
	}
	t.ExpectedMicros = -a.ExpectedMicros * l.ExpectedShare
	return t
}
