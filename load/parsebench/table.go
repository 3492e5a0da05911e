package parsebench

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// WriteTable writes the report for a human.
func (r *Report) WriteTable(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "requests read, on one of %d cores; one dependent read of memory takes %.0f ns; %.0f s\n\n", r.Cores, r.CalibrationReadNanos, r.DurationSeconds)
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "body\tKiB\tto keys µs\tbare skip µs\tof it\tlast 64 KiB µs\tallocations\t")
	for _, x := range r.Rows {
		fmt.Fprintf(t, "%s\t%d\t%.0f\t%.0f\t%.2f\t%.0f\t%.0f\t\n", x.Body, x.Bytes>>10, x.ParseMicros, x.SkipMicros, x.OfSkip, x.LastPieceMicros, x.AllocsPerOp)
	}
	fmt.Fprintf(t, "target\t\t\t\t1.30\t\t0\t\n")
	t.Flush() // writes to b, which cannot fail
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}
