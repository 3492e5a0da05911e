package workload

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Figures sum up one quantity of a plan: its mean and quantiles.
type Figures struct {
	Mean, P50, P90, P99 float64
}

// PlanStats tell what a plan holds.
type PlanStats struct {
	Name           string
	Jobs, Sessions int
	// Last is the latest arrival that the plan itself sets; jobs that wait may
	// come later.
	Last time.Duration
	// InputTokens, OutputTokens and FreshTokens are per job, Turns per session.
	// Fresh is what an infinite shared cache would not hold (see
	// [InfiniteCache]).
	InputTokens, OutputTokens, CachedTokens, FreshTokens, Turns Figures
	// CachedShare is the share of all input in such a cache.
	CachedShare float64
	// UniqueTokens is how many tokens that cache holds in the end.
	UniqueTokens int
}

// Stats computes the figures of a plan, for a cache of blocks of blockTokens.
func Stats(plan *Plan, blockTokens int) PlanStats {
	s := PlanStats{Name: plan.Name, Jobs: len(plan.Jobs)}
	cached := InfiniteCache(plan, blockTokens)
	var input, output, held, fresh []float64
	turns := make(map[int]float64)
	var inputSum, cachedSum int
	for i := range plan.Jobs {
		j := &plan.Jobs[i]
		n := j.PromptTokens()
		input = append(input, float64(n))
		output = append(output, float64(j.Answer.Tokens))
		held = append(held, float64(cached[i]))
		fresh = append(fresh, float64(n-cached[i]))
		turns[j.Session]++
		inputSum, cachedSum = inputSum+n, cachedSum+cached[i]
		s.UniqueTokens += n - cached[i] + j.Answer.Tokens
		s.Last = max(s.Last, j.At)
	}
	s.Sessions = len(turns)
	if inputSum > 0 {
		s.CachedShare = float64(cachedSum) / float64(inputSum)
	}
	var perSession []float64
	for _, n := range turns { // order-free: figures sorts them
		perSession = append(perSession, n)
	}
	s.InputTokens, s.OutputTokens, s.CachedTokens = figures(input), figures(output), figures(held)
	s.FreshTokens, s.Turns = figures(fresh), figures(perSession)
	return s
}

// figures sorts values and sums them up.
func figures(values []float64) Figures {
	if len(values) == 0 {
		return Figures{}
	}
	slices.Sort(values)
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	at := func(q float64) float64 { return values[int(q*float64(len(values)-1))] }
	return Figures{Mean: sum / float64(len(values)), P50: at(0.5), P90: at(0.9), P99: at(0.99)}
}

// String prints the figures as a small table.
func (s PlanStats) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d requests of %d sessions, last set arrival %v, %.1f %% of input reusable, %.3g tokens distinct\n",
		s.Name, s.Jobs, s.Sessions, s.Last.Round(time.Second), 100*s.CachedShare, float64(s.UniqueTokens))
	fmt.Fprintf(&b, "%-8s %10s %10s %10s %10s\n", "", "mean", "p50", "p90", "p99")
	for _, row := range []struct {
		name string
		Figures
	}{{"input", s.InputTokens}, {"cached", s.CachedTokens}, {"fresh", s.FreshTokens}, {"output", s.OutputTokens}, {"turns", s.Turns}} {
		fmt.Fprintf(&b, "%-8s %10.1f %10.0f %10.0f %10.0f\n", row.name, row.Mean, row.P50, row.P90, row.P99)
	}
	return b.String()
}
