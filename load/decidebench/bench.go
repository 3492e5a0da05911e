// Package decidebench measures how long the router takes to place a request, by
// the length of its prompt and the number of workers.
//
// The central type is [Report]; start reading at [Bench]. ground.go makes a
// fleet at work, measure.go lets the product's router decide on it, table.go and
// chart.go show what came out. What that was is in docs/performance.md.
package decidebench

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"github.com/rhizome-router/rhizome/load/indexbench"
)

// Config says what [Bench] measures.
type Config struct {
	// Progress, if set, is told the share done, 0 to 1.
	Progress func(share float64)

	points []point // nil: all
	budget time.Duration
}

// point is one fleet and one length of prompts.
type point struct{ workers, tokens int }

const (
	mainWorkers, mainTokens = 1000, 128 << 10
	callers                 = 256
	pacedPerSecond          = 5000
)

// points are both growth curves, and where they meet.
func points() (all []point) {
	for _, tokens := range []int{1 << 10, 4 << 10, 16 << 10, 64 << 10, mainTokens, 256 << 10, 1 << 20} {
		all = append(all, point{mainWorkers, tokens})
	}
	for _, workers := range []int{8, 32, 100, 300, 3000, 10_000} {
		all = append(all, point{workers, mainTokens})
	}
	return all
}

// Row is how long a decision takes: choosing a worker and booking the request.
type Row struct {
	Workers      int     `json:"workers"`
	PromptTokens int     `json:"prompt_tokens"`
	P50Micros    float64 `json:"decide_p50_us"`
	P99Micros    float64 `json:"decide_p99_us"`
	AllocsPerOp  float64 `json:"allocs_per_op"`
	Decisions    int     `json:"decisions"` // measured
}

// Report is what decisions cost. Times are wall time.
type Report struct {
	// Rows are of prompts whose keys are known.
	Rows []Row `json:"rows"`
	// Hashing is of prompts of which the token ids alone are.
	Hashing Row `json:"hashing"`
	// Text is of prompts that are text whose tokens nobody knows, parsed before.
	Text Row `json:"text"`
	// Concurrent is while so many callers ask at once, each again as soon as it
	// has an answer: waiting for the others is in it.
	Concurrent          Row     `json:"concurrent"`
	Callers             int     `json:"callers"`
	ConcurrentPerSecond float64 `json:"concurrent_decisions_per_s"`
	// Paced is while so many callers ask by chance, PacedPerSecond times together:
	// what a decision takes among others where they don't all ask at once.
	Paced          Row     `json:"paced"`
	PacedPerSecond float64 `json:"paced_decisions_per_s"`
	// CalibrationReadNanos is one read of 64 B at a place that the one before told,
	// in the same process.
	CalibrationReadNanos float64 `json:"calibration_read_ns"`
	Cores                int     `json:"cores"`
	DurationSeconds      float64 `json:"duration_seconds"`
}

// Bench measures on this machine.
func Bench(ctx context.Context, cfg Config) (*Report, error) {
	began := time.Now()
	if cfg.points == nil {
		cfg.points, cfg.budget = points(), 700*time.Millisecond
	}
	r := &Report{Cores: runtime.GOMAXPROCS(0), Callers: callers, CalibrationReadNanos: indexbench.ReadNanos()}
	special := max(0, slices.Index(cfg.points, point{mainWorkers, mainTokens}))
	for i, at := range cfg.points {
		if err := r.measure(ctx, cfg.budget, at, i == special); err != nil {
			return nil, err
		}
		debug.FreeOSMemory()
		if cfg.Progress != nil {
			cfg.Progress(float64(i+1) / float64(len(cfg.points)))
		}
	}
	r.DurationSeconds = time.Since(began).Seconds()
	return r, nil
}

// measure adds a row, and if asked for all what is measured at one point alone.
func (r *Report) measure(ctx context.Context, budget time.Duration, at point, all bool) error {
	g, err := newGround(at.workers, at.tokens, false)
	if err != nil {
		return fmt.Errorf("bench decisions: prepare %d workers: %w", at.workers, err)
	}
	row := func(took []float64, allocs float64) Row {
		return Row{at.workers, at.tokens, quantile(took, 0.5), quantile(took, 0.99), allocs, len(took)}
	}
	took, allocs, err := g.sample(ctx, budget, false)
	if err != nil {
		return err
	}
	r.Rows = append(r.Rows, row(took, allocs))
	if !all {
		return nil
	}
	if took, allocs, err = g.sample(ctx, budget, true); err != nil {
		return err
	}
	r.Hashing = row(took, allocs)
	took, r.ConcurrentPerSecond, err = g.crowd(ctx, callers, 2*budget, 0)
	if err != nil {
		return err
	}
	r.Concurrent = row(took, 0)
	took, r.PacedPerSecond, err = g.crowd(ctx, callers, 2*budget, callers*time.Second/pacedPerSecond)
	if err != nil {
		return err
	}
	r.Paced = row(took, 0)
	if g, err = newGround(at.workers, at.tokens, true); err != nil {
		return fmt.Errorf("bench decisions: prepare texts: %w", err)
	}
	if took, allocs, err = g.sample(ctx, budget, false); err != nil {
		return err
	}
	r.Text = row(took, allocs)
	return nil
}
