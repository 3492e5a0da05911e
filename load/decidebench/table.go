package decidebench

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// WriteTable writes the report for a human.
func (r *Report) WriteTable(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "decisions on %d cores; one dependent read of memory takes %.0f ns; %.0f s\n\n", r.Cores, r.CalibrationReadNanos, r.DurationSeconds)
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "workers\tprompt tokens\tp50 µs\tp99 µs\tallocations\t")
	row := func(x *Row, what string) {
		fmt.Fprintf(t, "%d\t%d\t%.1f\t%.1f\t%.1f\t %s\n", x.Workers, x.PromptTokens, x.P50Micros, x.P99Micros, x.AllocsPerOp, what)
	}
	for i := range r.Rows {
		row(&r.Rows[i], "")
	}
	row(&r.Hashing, "the keys hashed too")
	row(&r.Text, "text")
	row(&r.Concurrent, fmt.Sprintf("%d callers at once, %.0f decisions a second", r.Callers, r.ConcurrentPerSecond))
	row(&r.Paced, fmt.Sprintf("%d callers, %.0f decisions a second", r.Callers, r.PacedPerSecond))
	t.Flush() // writes to b, which cannot fail
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}
