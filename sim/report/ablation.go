package report

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/rhizome-router/rhizome/sim"
)

// WriteAblation writes what each policy changes against the first one, scenario
// by scenario: mean and p99 of TTFT in per cent, where more is worse, and
// goodput in points, where more is better.
func WriteAblation(w io.Writer, tables []*sim.Table) error {
	if err := check(tables); err != nil {
		return err
	}
	base := tables[0].Order[0]
	var b strings.Builder
	fmt.Fprintf(&b, "change against %s: mean TTFT %%, p99 TTFT %%, goodput points; of %s\n", base, seedsOf(tables[0]))
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(t, "\t")
	for _, table := range tables {
		fmt.Fprintf(t, "%s\t\t\t", table.Scenario.Name)
	}
	fmt.Fprint(t, "\n")
	for _, name := range tables[0].Order[1:] {
		fmt.Fprintf(t, "%s\t", strings.TrimPrefix(name, base+"-"))
		for _, table := range tables {
			row, reference := table.Policies[name], table.Policies[base]
			if row == nil || reference == nil {
				return fmt.Errorf("ablation: scenario %s lacks %s or %s", table.Scenario.Name, name, base)
			}
			change := func(x, of float64) string {
				if of == 0 || x == of {
					return "="
				}
				return fmt.Sprintf("%+.1f", 100*(x/of-1))
			}
			goodput := "="
			if row.Goodput != reference.Goodput {
				goodput = fmt.Sprintf("%+.1f", 100*(row.Goodput-reference.Goodput))
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t", change(row.TTFTMean, reference.TTFTMean), change(row.TTFTP99, reference.TTFTP99), goodput)
		}
		fmt.Fprint(t, "\n")
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func seedsOf(t *sim.Table) string {
	if n := len(t.Seeds); n > 1 {
		return fmt.Sprintf("%d seeds", n)
	}
	return "a single run, so that small differences say nothing"
}
