package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/rhizome-router/rhizome/cost"
)

// writeExample prints a worked example of the cost model: a table of the costs,
// then every worker's terms.
func writeExample(w io.Writer, e cost.Example) error {
	fmt.Fprintf(w, "example %s: %s\n\n", e.Name, e.About)
	for _, worker := range everyWorker(e) {
		fmt.Fprintf(w, "%s: %s\n", worker.Name, worker.About)
	}
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(t, "cost µs\t")
	for _, worker := range everyWorker(e) {
		fmt.Fprintf(t, "%s\t", worker.Name)
	}
	fmt.Fprintln(t, "pick\t")
	for _, row := range e.Rows {
		fmt.Fprintf(t, "%s\t", row.Name)
		for _, worker := range everyWorker(e) {
			cell := "-"
			for _, there := range row.Workers {
				if there.Name == worker.Name {
					cell = fmt.Sprintf("%.1f", there.CostMicros)
				}
			}
			fmt.Fprintf(t, "%s\t", cell)
		}
		fmt.Fprintf(t, "%s\t\n", row.Workers[row.Pick()].Name)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, row := range e.Rows {
		fmt.Fprintf(w, "\n%s\n", row.Name)
		writeExampleRow(w, &row)
	}
	return nil
}

// everyWorker lists the workers of all rows, each once.
func everyWorker(e cost.Example) []cost.ExampleWorker {
	var all []cost.ExampleWorker
	seen := make(map[string]bool)
	for _, row := range e.Rows {
		for _, worker := range row.Workers {
			if !seen[worker.Name] {
				seen[worker.Name] = true
				all = append(all, worker)
			}
		}
	}
	return all
}

// writeExampleRow prints the terms of a row's workers, the pick marked.
func writeExampleRow(w io.Writer, row *cost.ExampleRow) {
	most := 0.0
	for _, worker := range row.Workers {
		for _, t := range worker.Terms {
			most = max(most, t.Micros)
		}
	}
	for i, worker := range row.Workers {
		mark := ""
		if i == row.Pick() {
			mark = "  < pick"
		}
		fmt.Fprintf(w, "  %s %.1f µs%s\n", worker.Name, worker.CostMicros, mark)
		writeTerms(w, worker.Terms, most)
		if worker.BreakEvenBytesPerMicro > 0 {
			faster := "loading is faster than computing"
			if worker.LinkBytesPerMicro < worker.BreakEvenBytesPerMicro {
				faster = "computing is faster than loading"
			}
			fmt.Fprintf(w, "    break-even bandwidth %.2f GB/s, the link leaves %.2f: %s\n",
				worker.BreakEvenBytesPerMicro/1e3, worker.LinkBytesPerMicro/1e3, faster)
		}
	}
}

// writeTerms prints the terms of a cost that are not 0, a line each, with bars
// of which the longest stands for most.
func writeTerms(w io.Writer, terms []cost.NamedTerm, most float64) {
	for _, t := range terms {
		if t.Micros == 0 {
			continue
		}
		drawn := ""
		if t.Micros > 0 { // a bonus has none
			drawn = bar(t.Micros, most)
		}
		line := fmt.Sprintf("    %-20s %12.1f  %s", t.Name, t.Micros, drawn)
		fmt.Fprintln(w, strings.TrimRight(line, " "))
	}
}
