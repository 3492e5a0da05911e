package load

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
)

// Figure is a measured number; NaN means it was not measured, which JSON shows
// as null.
type Figure float64

// Known tells whether f was measured.
func (f Figure) Known() bool { return !math.IsNaN(float64(f)) && !math.IsInf(float64(f), 0) }

// MarshalJSON writes at most six digits after the point.
func (f Figure) MarshalJSON() ([]byte, error) {
	if !f.Known() {
		return []byte("null"), nil
	}
	return strconv.AppendFloat(nil, math.Round(float64(f)*1e6)/1e6, 'f', -1, 64), nil
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (f *Figure) UnmarshalJSON(data []byte) error {
	v := math.NaN()
	if string(data) != "null" {
		if err := json.Unmarshal(data, &v); err != nil {
			return fmt.Errorf("figure: %w", err)
		}
	}
	*f = Figure(v)
	return nil
}

// Measures is what one target did. Times are modelled milliseconds of the
// requests that succeeded, so read them together with Errors.
type Measures struct {
	// Requests is how many were sent (over all seeds), Errors how many of them
	// did not get a whole answer, and ErrorKinds why.
	Requests   int            `json:"requests"`
	Errors     int            `json:"errors"`
	ErrorKinds map[string]int `json:"error_kinds,omitempty"`

	// TTFT is the time from sending a request to its first token.
	TTFTMeanMillis Figure `json:"ttft_mean_ms"`
	TTFTP50Millis  Figure `json:"ttft_p50_ms"`
	TTFTP90Millis  Figure `json:"ttft_p90_ms"`
	TTFTP99Millis  Figure `json:"ttft_p99_ms"`
	// TPOT is the mean time between the tokens of one answer.
	TPOTMeanMillis Figure `json:"tpot_mean_ms"`
	TPOTP99Millis  Figure `json:"tpot_p99_ms"`
	// E2E is the time from sending a request to the end of its answer.
	E2EMeanMillis Figure `json:"e2e_mean_ms"`
	E2EP99Millis  Figure `json:"e2e_p99_ms"`

	// HitShare is cached over prompt tokens, as the answers' usage told them.
	HitShare Figure `json:"hit_share"`
	// Utilisation is the mean over workers of their busy share, between the
	// first and the last response of each; null unless workers are emulated.
	Utilisation Figure `json:"utilisation"`
	// Workers is how many emulated workers answered.
	Workers int `json:"workers"`

	PromptTokens int64 `json:"prompt_tokens"`
	CachedTokens int64 `json:"cached_tokens"`
	OutputTokens int64 `json:"output_tokens"`
}

// SeedReport is one seed's run.
type SeedReport struct {
	Seed      uint64              `json:"seed"`
	Ours      Measures            `json:"ours"`
	Against   map[string]Measures `json:"against"`
	TTFTRatio map[string]Figure   `json:"ttft_ratio"`
	// SendLagMaxMillis is the most that the client itself was late in sending,
	// in modelled milliseconds. Compare with the TTFT before trusting either.
	SendLagMaxMillis Figure `json:"send_lag_max_ms"`
}

// Report compares targets over one trace. Ours is the first target; counts are
// summed over the seeds, everything else is the mean of the seeds' values.
type Report struct {
	Trace     string   `json:"trace"`
	Model     string   `json:"model"`
	Speed     float64  `json:"speed"`
	Seeds     []uint64 `json:"seeds"`
	MaxOutput int      `json:"max_output"` // 0: as in the trace
	Hold      bool     `json:"hold"`
	Prompt    string   `json:"prompt"` // "text" or "tokens"

	Ours    Measures            `json:"ours"`
	Against map[string]Measures `json:"against"`
	// TTFTRatio is ours over theirs, of the mean TTFT: below 1 we are faster.
	TTFTRatio map[string]Figure `json:"ttft_ratio"`
	// InfiniteCacheShare is the share of the sent prompt tokens that one shared
	// cache that never forgets would have served, in blocks of 512 tokens,
	// counting leading runs only: the bound of HitShare.
	InfiniteCacheShare Figure       `json:"infinite_cache_share"`
	SendLagMaxMillis   Figure       `json:"send_lag_max_ms"`
	PerSeed            []SeedReport `json:"per_seed"`
	// Notes tells what a reader of the figures should know.
	Notes []string `json:"notes,omitempty"`
}

// combine fills r's figures from its PerSeed.
func (r *Report) combine() {
	n := len(r.PerSeed)
	ours := make([]Measures, n)
	against := make(map[string][]Measures)
	lags := make([]Figure, n)
	for i, s := range r.PerSeed {
		ours[i], lags[i] = s.Ours, s.SendLagMaxMillis
		for name, m := range s.Against {
			against[name] = append(against[name], m)
		}
	}
	r.Ours = meanMeasures(ours)
	r.SendLagMaxMillis = mean(lags)
	r.Against = make(map[string]Measures)
	for name, m := range against {
		r.Against[name] = meanMeasures(m)
	}
	r.TTFTRatio = ttftRatios(r.Ours, r.Against)
}

func ttftRatios(ours Measures, against map[string]Measures) map[string]Figure {
	ratios := make(map[string]Figure, len(against))
	for name, m := range against {
		ratios[name] = ours.TTFTMeanMillis / m.TTFTMeanMillis
	}
	return ratios
}

func meanMeasures(all []Measures) Measures {
	var out Measures
	over := func(get func(*Measures) *Figure) {
		values := make([]Figure, len(all))
		for i := range all {
			values[i] = *get(&all[i])
		}
		*get(&out) = mean(values)
	}
	for _, get := range []func(*Measures) *Figure{
		func(m *Measures) *Figure { return &m.TTFTMeanMillis },
		func(m *Measures) *Figure { return &m.TTFTP50Millis },
		func(m *Measures) *Figure { return &m.TTFTP90Millis },
		func(m *Measures) *Figure { return &m.TTFTP99Millis },
		func(m *Measures) *Figure { return &m.TPOTMeanMillis },
		func(m *Measures) *Figure { return &m.TPOTP99Millis },
		func(m *Measures) *Figure { return &m.E2EMeanMillis },
		func(m *Measures) *Figure { return &m.E2EP99Millis },
		func(m *Measures) *Figure { return &m.HitShare },
		func(m *Measures) *Figure { return &m.Utilisation },
	} {
		over(get)
	}
	for _, m := range all {
		out.Requests += m.Requests
		out.Errors += m.Errors
		out.Workers = max(out.Workers, m.Workers)
		out.PromptTokens += m.PromptTokens
		out.CachedTokens += m.CachedTokens
		out.OutputTokens += m.OutputTokens
		for kind, n := range m.ErrorKinds {
			if out.ErrorKinds == nil {
				out.ErrorKinds = make(map[string]int)
			}
			out.ErrorKinds[kind] += n
		}
	}
	return out
}

// mean is over the known values; a mean of none is unknown.
func mean(values []Figure) Figure {
	var sum Figure
	n := 0
	for _, v := range values {
		if v.Known() {
			sum += v
			n++
		}
	}
	return sum / Figure(n)
}

// WriteJSON writes the report as one indented JSON object.
func (r *Report) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	if err := enc.Encode(r); err != nil {
		return fmt.Errorf("write the load report: %w", err)
	}
	return nil
}
