package indexbench

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// WriteTable writes the report for a human, with the targets.
func (r *Report) WriteTable(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "the index: %s, %d times over %d workers, %d block-ops and %d lookups a run, %d runs on %d cores; %.0f s\n\n",
		r.Trace, r.Copies, r.Workers, r.BlockOps, r.Queries, r.Runs, r.Cores, r.DurationSeconds)
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "what\tmeasured\ttarget\t")
	row := func(what, unit string, value float64, digits int) {
		fmt.Fprintf(t, "%s\t%.*f%s\t\t\n", what, digits, value, unit)
	}
	goal := func(what, unit string, value float64, digits int, met bool, word string, target float64) {
		verdict := "met"
		if !met {
			verdict = "missed"
		}
		fmt.Fprintf(t, "%s\t%.*f%s\t%s %g%s\t%s\n", what, digits, value, unit, word, target, unit, verdict)
	}
	most := func(what, unit string, value, target float64, digits int) {
		goal(what, unit, value, digits, value <= target, "at most", target)
	}
	ops := r.BlockOpsPerSPerCore / 1e6
	goal("block-ops, a second and core", " M", ops, 2, ops >= 4, "at least", 4)
	row("lookups, a second and core", "", r.QueriesPerSPerCore, 0)
	most("lookup at a quarter of that, p50", " µs", r.LookupP50Micros, 2, 2)
	most("lookup at a quarter of that, p99", " µs", r.LookupP99Micros, 6, 2)
	row("lookup at twice that, p99", " µs", r.LookupOverloadP99Micros, 2)
	row("a batch can be found after, p99", " µs", r.ApplyLagP99Micros, 0)
	row("  a sleeper's lateness, p99", " µs", r.CalibrationWakeP99Micros, 0)
	for _, m := range r.Mixes {
		mix := fmt.Sprintf("%d entries, %d workers hold each block: ", m.Entries, m.Sharers)
		most(mix+"tables of the index, by entry", " B", m.CoreBytes, 16, 1)
		most("  all structures, by entry", " B", m.AllBytes, 48, 1)
		most("  the collector's pauses, p99", " µs", m.GCPauseP99Micros, 1000, 0)
		most("  readers are kept out of a shard for a removal, p99", " µs", m.RemovalBlockP99Micros, 1000, 1)
		most("  the longest of these", " µs", m.RemovalBlockMaxMicros, 1000, 1)
		row("  lookup while workers are dropped, p99", " µs", m.DropReaderP99Micros, 1)
		row("  the longest", " µs", m.DropReaderMaxMicros, 0)
		row("  lookup without that, p99", " µs", m.IdleReaderP99Micros, 1)
		row("  the longest", " µs", m.IdleReaderMaxMicros, 0)
	}
	row("one dependent read of memory", " ns", r.CalibrationReadNanos, 1)
	t.Flush() // writes to b, which cannot fail
	fmt.Fprintf(&b, "\na prompt has %.0f blocks; a lookup reaches %.1f of them\n", r.QueryBlocks, r.QueryBlocksReached)
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}
