package indexbench

import (
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/rhizome-router/rhizome/crdt"
	"github.com/rhizome-router/rhizome/index"
	"github.com/rhizome-router/rhizome/workload"
)

// excerpt is what the bench plays by default, or as much of it as a processor's own
// caches hold what comes of it.
func excerpt(b *testing.B, small bool) *schedule {
	trace, err := workload.Excerpt(0)
	if err != nil {
		b.Fatal(err)
	}
	size := (&Config{}).withDefaults()
	if small {
		size.copies, size.workers, size.held = 1, 2, 1000
	}
	return newSchedule(trace, size.copies, size.workers, size.held, 1)
}

// BenchmarkReplay is a run of the bench without lookups: what of a block-op is
// the log's and what the index's, in CPU time, the least of all runs; and, where all
// is small, what of that is not memory.
func BenchmarkReplay(b *testing.B) {
	b.Run("whole", func(b *testing.B) { benchmarkReplay(b, excerpt(b, false)) })
	b.Run("small", func(b *testing.B) { benchmarkReplay(b, excerpt(b, true)) })
}

func benchmarkReplay(b *testing.B, s *schedule) {
	var logs, tables, reads []float64
	read := newCalibration(calibrationBytes)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	b.ResetTimer()
	for b.Loop() {
		reads = append(reads, read.readNanos(1<<18))
		g := newGround(s.workers, index.Config{Seed: 1}, crdt.LogConfig{})
		runtime.GC()
		var changes []index.Change
		var log, table time.Duration
		for i := range s.batches {
			batch := &s.batches[i]
			from := threadCPU()
			changes = changes[:0]
			g.streams[batch.worker].Apply(batch.seq, batch.ops, func(c index.Change) { changes = append(changes, c) })
			told := threadCPU()
			g.index.Apply(g.slots[batch.worker], changes)
			log, table = log+told-from, table+threadCPU()-told
		}
		logs = append(logs, float64(log.Nanoseconds())/float64(s.blockOps))
		tables = append(tables, float64(table.Nanoseconds())/float64(s.blockOps))
	}
	b.ReportMetric(slices.Min(logs), "log-ns/op")
	b.ReportMetric(slices.Min(tables), "index-ns/op")
	b.ReportMetric(median(reads), "read-ns")
}

// BenchmarkAsk is the lookups of a run, after it, each by its median: what they
// take of themselves, whatever else the machine does.
func BenchmarkAsk(b *testing.B) {
	s := excerpt(b, false)
	_, g := s.replay(b.Context(), 0)
	took := make([][]float64, len(s.queries))
	var hits []index.Hit
	b.ResetTimer()
	for b.Loop() {
		for i := range s.queries {
			from := time.Now()
			hits = g.index.Match(s.queries[i].keys, hits[:0])
			took[i] = append(took[i], micros(time.Since(from)))
		}
	}
	medians := make([]float64, len(took))
	for i := range took {
		medians[i] = median(took[i])
	}
	slices.Sort(medians)
	b.ReportMetric(quantile(medians, 0.5), "p50-µs")
	b.ReportMetric(quantile(medians, 0.99), "p99-µs")
}
