package report

import (
	"encoding/csv"
	"fmt"
	"io"
	"strconv"

	"github.com/rhizome-router/rhizome/sim"
)

// WriteCSV writes one line for each scenario and policy. The header's names end
// in their units: _s seconds, _us microseconds, _share 0 to 1, _ratio, _bytes,
// _count; name_ci95 is the half-width of the 95 % interval in the same unit.
// What was not measured, or has no interval, is empty.
func WriteCSV(w io.Writer, tables []*sim.Table) error {
	if err := check(tables); err != nil {
		return err
	}
	out := csv.NewWriter(w)
	header := []string{"scenario", "set", "column", "seeds_count", "policy"}
	for _, f := range figures() {
		name := f.name
		if f.unit != "" {
			name += "_" + f.unit
		}
		header = append(header, name, name+"_ci95")
	}
	header = append(header, decision, "bound_ttft_mean_s", "bound_cached_share")
	_ = out.Write(header) // Flush keeps the first error
	for _, t := range tables {
		order := names(t)
		cols := columns(t, order)
		for i, name := range order {
			line := []string{t.Scenario.Name, t.Scenario.Set, string(t.Column), strconv.Itoa(len(t.Seeds)), name}
			for _, c := range cols {
				line = append(line, number(c.cells[i].value))
				if c.name != decision {
					line = append(line, number(c.cells[i].ci))
				}
			}
			_ = out.Write(append(line, number(t.Bound.TTFTMean), number(t.Bound.Cached)))
		}
	}
	out.Flush()
	if err := out.Error(); err != nil {
		return fmt.Errorf("report: write CSV: %w", err)
	}
	return nil
}

// number is a figure to 9 significant digits without an exponent.
func number(v float64) string {
	if !known(v) {
		return ""
	}
	return strconv.FormatFloat(significant(v, 9), 'f', -1, 64)
}
