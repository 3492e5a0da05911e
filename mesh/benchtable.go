package mesh

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// longGrowth is how much live memory may be at the end of the long run, of what it
// was once all was full: what a collection finds varies by some hundredths.
const longGrowth = 1.1

// WriteTable writes the report for a human, with the targets.
func (r *BenchReport) WriteTable(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "what the mesh costs, all replicas in one process on %d cores; %.0f s\n\n", r.Cores, r.DurationSeconds)
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "what\tmeasured\ttarget\t")
	row := func(what, unit string, value float64, digits int, met bool, target string) {
		verdict := "met"
		if !met {
			verdict = "missed"
		}
		if target == "" {
			verdict = ""
		}
		fmt.Fprintf(t, "%s\t%.*f%s\t%s\t%s\n", what, digits, value, unit, target, verdict)
	}
	most := func(what, unit string, value, target float64, digits int) {
		row(what, unit, value, digits, value <= target, fmt.Sprintf("at most %g%s", target, unit))
	}
	most("a batch at the last of 3, p99", " ms", r.ConvergenceP99MillisN3, 15, 1)
	most("a batch at the last of 16, p99", " ms", r.ConvergenceP99MillisN16, 25, 1)
	most("a batch at the last of 64 (60 light), p99", " ms", r.ConvergenceP99MillisN64, 120, 1)
	for _, of := range []struct {
		n         int
		cpu, wake float64
	}{{3, r.CPUCoresN3, r.WakeP99MillisN3}, {16, r.CPUCoresN16, r.WakeP99MillisN16}, {64, r.CPUCoresN64, r.WakeP99MillisN64}} {
		row(fmt.Sprintf("cores used by %d together", of.n), "", of.cpu, 2, true, "")
		row("  a timer's lateness meanwhile, p99", " ms", of.wake, 1, true, "")
	}
	row("ops received, a second and core", "", r.OpsPerSPerCore, 0, r.OpsPerSPerCore >= 200_000, "at least 200000")
	most("an op in a frame", " B", r.BytesPerOp, 18, 1)
	most("an op of a native engine", " B", r.BytesPerOpNative, 10, 1)
	row("a block that comes", " B", r.BytesPerInsert, 1, true, "")
	row("a block that comes, native", " B", r.BytesPerInsertNative, 1, true, "")
	most("rejoin, bytes sent / bytes missed", "", r.RejoinBytesRatio, 2, 2)
	row("memory of the process with 16 replicas", " MiB", r.RSSMiB, 0, true, "")
	if l := r.Long; l != nil {
		row(fmt.Sprintf("%.0f s at %.0f ops/s, 3 replicas: p99", l.Seconds, l.OpsPerS), " ms", l.P99Millis, 1, true, "")
		row("  live memory after a fifth", " MiB", l.LiveMiBBegin, 0, true, "")
		most("  live memory at the end, of that", "", l.LiveMiBEnd/max(1, l.LiveMiBBegin), longGrowth, 2)
		row("  memory of the process after a fifth", " MiB", l.RSSMiBBegin, 0, true, "")
		row("  memory of the process at the end", " MiB", l.RSSMiBEnd, 0, true, "")
		row("  memory of the process at most", " MiB", l.RSSMiBMost, 0, true, "")
		row("  CPU, cores", "", l.CPUCores, 3, true, "")
	}
	t.Flush() // writes to b, which cannot fail
	fmt.Fprintf(&b, "\nconvergence at %.0f ops/s of all engines together\n", r.ConvergenceOpsPerS)
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}
