// Package indexbench measures the prefix index and the logs that feed it, by
// the method of Dynamo's indexer benchmark: a trace many times over on many
// workers, played open-loop, each thing due at its own time, until all queues
// are empty.
//
// The central type is [Report]; start reading at [Bench]. schedule.go makes of
// a trace what the workers say and what is asked, replay.go plays it, memory.go
// weighs ten million entries, calibrate.go measures the machine. What came of
// it, and how it compares, is in docs/performance.md.
package indexbench

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"github.com/rhizome-router/rhizome/workload"
)

// Config says what [Bench] measures.
type Config struct {
	Trace     []workload.Request
	TraceName string
	// Long measures five runs instead of three, and the memory of 10 Mi entries
	// instead of 2 Mi.
	Long bool
	// Progress, if set, is told the share done, 0 to 1.
	Progress func(share float64)

	sizes sizes // the zero value: as the report says
}

// sizes are how large things are that are measured.
type sizes struct {
	copies, workers, held int
	runs, entries         int
	calibration           int // bytes
}

func (c *Config) withDefaults() sizes {
	s := c.sizes
	if s.workers == 0 {
		s = sizes{copies: 20, workers: 128, held: 4096, runs: 3, entries: 2 << 20, calibration: calibrationBytes}
		if c.Long {
			s.runs, s.entries = 5, 10_000_000
		}
	}
	return s
}

// Report is what the index costs. A block-op is one applied (block, target,
// tier) store or removal, through the stream's log and into the index. Times of
// runs are medians over the runs; CPU time is that of the thread that did the
// work, so that a busy machine changes little.
type Report struct {
	// BlockOpsPerSPerCore is while twice as much is due as can be done, and
	// lookups go on meanwhile.
	BlockOpsPerSPerCore float64 `json:"block_ops_per_s_per_core"`
	// QueriesPerSPerCore is lookups alone, one after the other, on full tables.
	QueriesPerSPerCore float64 `json:"queries_per_s_per_core"`
	// Lookup is the time that one lookup takes, at a quarter of what can be done;
	// LookupOverload while twice as much is due.
	LookupP50Micros         float64 `json:"lookup_p50_us"`
	LookupP99Micros         float64 `json:"lookup_p99_us"`
	LookupOverloadP99Micros float64 `json:"lookup_overload_p99_us"`
	// ApplyLag is from the time that a batch of events is due until all of it can
	// be found, at a quarter of what can be done. It includes how late this system
	// wakes who sleeps, CalibrationWake.
	ApplyLagP99Micros float64 `json:"apply_lag_p99_us"`
	// RemovalBlock, BytesPerEntry and GCPause are the larger of the two Mixes'.
	RemovalBlockP99Micros float64 `json:"removal_block_p99_us"`
	BytesPerEntryCore     float64 `json:"bytes_per_entry_core"`
	BytesPerEntryAll      float64 `json:"bytes_per_entry_all"`
	GCPauseP99Micros      float64 `json:"gc_pause_p99_us"`
	// CalibrationRead is one read of 64 B at a place that the one before told, in
	// the same process between the runs.
	CalibrationReadNanos     float64 `json:"calibration_read_ns"`
	CalibrationWakeP99Micros float64 `json:"calibration_wake_p99_us"`

	Mixes [2]*mixReport `json:"mixes"`
	// QueryBlocks is the mean length of a prompt, QueryBlocksReached up to and
	// including its first block that nobody holds.
	QueryBlocks        float64 `json:"query_blocks_mean"`
	QueryBlocksReached float64 `json:"query_blocks_reached_mean"`

	Trace           string  `json:"trace"`
	Copies          int     `json:"duplication"`
	Workers         int     `json:"workers"`
	HeldBlocks      int     `json:"held_blocks_per_worker"` // at most
	BlockOps        int     `json:"block_ops"`              // of one run
	Queries         int     `json:"queries"`                // of one run
	Runs            int     `json:"runs"`
	KeptUp          bool    `json:"kept_up"` // in all runs at a quarter of what can be done
	Cores           int     `json:"cores"`
	DurationSeconds float64 `json:"duration_seconds"`
}

// Bench measures on this machine.
func Bench(ctx context.Context, cfg Config) (*Report, error) {
	began := time.Now()
	size := cfg.withDefaults()
	r := &Report{Trace: cfg.TraceName, Copies: size.copies, Workers: size.workers, HeldBlocks: size.held, Runs: size.runs,
		KeptUp: true, Cores: runtime.GOMAXPROCS(0)}
	steps, done := 4+2*size.runs, 0
	step := func() error {
		if done++; cfg.Progress != nil {
			cfg.Progress(float64(done) / float64(steps))
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("bench the index: %w", err)
		}
		return nil
	}
	for i, sharers := range [2]int{1, 20} {
		m, err := measureMix(ctx, size.entries, size.workers, min(sharers, size.workers))
		if err != nil {
			return nil, fmt.Errorf("bench the index's memory: %w", err)
		}
		r.Mixes[i] = m
		r.BytesPerEntryCore = max(r.BytesPerEntryCore, m.CoreBytes)
		r.BytesPerEntryAll = max(r.BytesPerEntryAll, m.AllBytes)
		r.RemovalBlockP99Micros = max(r.RemovalBlockP99Micros, m.RemovalBlockP99Micros)
		r.GCPauseP99Micros = max(r.GCPauseP99Micros, m.GCPauseP99Micros)
		debug.FreeOSMemory()
		if err := step(); err != nil {
			return nil, err
		}
	}
	s := newSchedule(cfg.Trace, size.copies, size.workers, size.held, 1)
	r.BlockOps, r.Queries = s.blockOps, len(s.queries)
	if err := step(); err != nil {
		return nil, err
	}
	if err := r.measureRuns(ctx, s, size, step); err != nil {
		return nil, err
	}
	r.DurationSeconds = time.Since(began).Seconds()
	return r, nil
}

// measureRuns plays the schedule: once to find out how fast it can be, then
// in turns twice as fast and a quarter as fast as that.
func (r *Report) measureRuns(ctx context.Context, s *schedule, size sizes, step func() error) error {
	read := newCalibration(size.calibration)
	var reads, ops, asked, p50, p99, overload, lag []float64
	calibrate := func() { reads = append(reads, read.readNanos(len(read.lines)/2)) }
	first, _ := s.replay(ctx, 0)
	if err := step(); err != nil {
		return err
	}
	for range size.runs {
		calibrate()
		o, g := s.replay(ctx, first.applied/2)
		ops = append(ops, float64(s.blockOps)/o.applyCPU.Seconds())
		overload = append(overload, quantile(o.lookups, 0.99))
		asked = append(asked, s.askAll(g))
		if err := step(); err != nil {
			return err
		}
		calibrate()
		o, _ = s.replay(ctx, 4*first.applied)
		p50, p99 = append(p50, quantile(o.lookups, 0.5)), append(p99, quantile(o.lookups, 0.99))
		lag = append(lag, quantile(o.lags, 0.99))
		r.KeptUp = r.KeptUp && o.onTime
		r.QueryBlocks, r.QueryBlocksReached = float64(o.asked)/float64(len(s.queries)), float64(o.reached)/float64(len(s.queries))
		if err := step(); err != nil {
			return err
		}
	}
	r.BlockOpsPerSPerCore, r.QueriesPerSPerCore = median(ops), median(asked)
	r.LookupP50Micros, r.LookupP99Micros, r.LookupOverloadP99Micros = median(p50), median(p99), median(overload)
	r.ApplyLagP99Micros, r.CalibrationReadNanos = median(lag), median(reads)
	r.CalibrationWakeP99Micros = wakeP99()
	return nil
}

// wakeP99 returns how much later than asked one wakes who sleeps for 100 µs.
func wakeP99() float64 {
	late := make([]float64, 0, 500)
	for range cap(late) {
		from := time.Now()
		time.Sleep(100 * time.Microsecond)
		late = append(late, micros(time.Since(from))-100)
	}
	return quantile(slices.Sorted(slices.Values(late)), 0.99)
}
