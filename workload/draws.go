package workload

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// LogNormal is a log-normal distribution cut at both ends: draws outside are
// moved to the nearer end. Units are the user's.
type LogNormal struct {
	// Median is that of the uncut distribution; Sigma the standard deviation of
	// its logarithm.
	Median, Sigma float64
	Min, Max      float64
}

func (l LogNormal) draw(rng *rand.Rand) float64 {
	return min(max(l.Median*math.Exp(l.Sigma*rng.NormFloat64()), l.Min), l.Max)
}

// tokens draws a whole number.
func (l LogNormal) tokens(rng *rand.Rand) int { return int(l.draw(rng)) }

func (l LogNormal) valid() bool {
	return l.Median > 0 && l.Sigma >= 0 && l.Sigma < 10 && l.Min >= 0 && l.Min <= l.Median && l.Median <= l.Max && l.Max < 1e9
}

// Mixture is a time in seconds that is mostly short: a share TailShare of draws
// comes from Tail, the others from Body.
type Mixture struct {
	Body, Tail LogNormal
	TailShare  float64
}

func (m Mixture) draw(rng *rand.Rand) time.Duration {
	if rng.Float64() < m.TailShare {
		return seconds(m.Tail.draw(rng))
	}
	return seconds(m.Body.draw(rng))
}

// ranks draws ranks below n with weight (rank+1)^-skew (Zipf).
type ranks []float64 // running sums of the weights

func newRanks(n int, skew float64) ranks {
	r := make(ranks, n)
	total := 0.0
	for k := range r {
		total += math.Pow(float64(k+1), -skew)
		r[k] = total
	}
	return r
}

func (r ranks) draw(rng *rand.Rand) int {
	u := rng.Float64() * r[len(r)-1]
	k, found := slices.BinarySearch(r, u)
	if found {
		k++
	}
	return min(k, len(r)-1)
}
