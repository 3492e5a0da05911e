// Package report shows what came of chaos runs: a table for the terminal
// ([Text]) and one page that needs nothing but itself ([HTML]), with a timeline
// for each scenario of what went wrong against what replicas knew and how
// requests fared.
package report

import (
	"fmt"
	"io"
	"time"

	"github.com/rhizome-router/rhizome/chaos"
)

// Text writes a line for each run, and what was wrong with it.
func Text(w io.Writer, results []chaos.Result) {
	fmt.Fprintf(w, "%-20s %-7s %5s  %-6s %9s %7s %7s\n", "scenario", "ground", "seed", "", "requests", "failed", "regret")
	for i := range results {
		r := &results[i]
		fmt.Fprintf(w, "%-20s %-7s %5d  %-6s %9d %7d %7s\n", r.Scenario, r.Place, r.Seed, verdict(r), r.Requests, r.Failed, regret(r))
		if r.Stalls > 0 {
			fmt.Fprintf(w, "    failed %d times before, while the machine had no time for it\n", r.Stalls)
		}
		if r.Err != "" {
			fmt.Fprintf(w, "    %s\n", r.Err)
		}
		for _, v := range r.Violations {
			fmt.Fprintf(w, "    %8v %s: %s\n", v.At.Round(time.Millisecond), v.Checker, v.What)
		}
	}
}

func verdict(r *chaos.Result) string {
	if r.Passed() {
		return "passed"
	}
	return "FAILED"
}

func regret(r *chaos.Result) string {
	if r.Regret == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", r.Regret)
}
