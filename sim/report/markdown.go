package report

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/rhizome-router/rhizome/sim"
)

// WriteMarkdown writes a summary for documents: a line for each scenario, ours
// beside the best of the peers in each figure. Ratios are ours over theirs,
// with the 95 % interval over the seeds where there is one.
func WriteMarkdown(w io.Writer, tables []*sim.Table) error {
	if err := check(tables); err != nil {
		return err
	}
	peers := make(map[string]bool)
	for _, p := range sim.Policies() {
		peers[p.Name] = p.Peer
	}
	var b strings.Builder
	b.WriteString("| scenario | seeds | bound TTFT | TTFT mean | best peer | ratio | TTFT p99 | best peer | TPOT mean | best peer | goodput | best peer |\n" +
		"|---|---|---|---|---|---|---|---|---|---|---|---|\n")
	for _, t := range tables {
		ours := t.Policies[sim.Ours]
		if ours == nil {
			continue
		}
		fmt.Fprintf(&b, "| %s | %d | %s | %s |", plain(t.Scenario.Name), len(t.Seeds), inUnit(t.Bound.TTFTMean), inUnit(ours.TTFTMean))
		best := bestPeer(t, peers, "ttft_mean_s", -1)
		fmt.Fprintf(&b, " %s | %s |", named(t, best, "ttft_mean_s"), ratioOf(t, best, "ttft_mean_s"))
		for _, f := range []string{"ttft_p99_s", "tpot_mean_s"} {
			fmt.Fprintf(&b, " %s | %s |", inUnit(valueOf(ours, f)), named(t, bestPeer(t, peers, f, -1), f))
		}
		fmt.Fprintf(&b, " %.3f | %s |\n", ours.Goodput, named(t, bestPeer(t, peers, "goodput", +1), "goodput"))
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("report: write the summary: %w", err)
	}
	return nil
}

// bestPeer returns the peer that is best by a figure, the first by name of
// equals; empty where none was played.
func bestPeer(t *sim.Table, peers map[string]bool, figure string, better float64) string {
	best := ""
	for _, name := range slices.Sorted(slices.Values(names(t))) {
		if !peers[name] {
			continue
		}
		if best == "" || better*valueOf(t.Policies[name], figure) > better*valueOf(t.Policies[best], figure) {
			best = name
		}
	}
	return best
}

func valueOf(r *sim.Row, name string) float64 {
	for _, f := range figures() {
		if f.name == name {
			return f.of(r)
		}
	}
	return math.NaN()
}

func named(t *sim.Table, policy, figure string) string {
	if policy == "" {
		return "–"
	}
	v := valueOf(t.Policies[policy], figure)
	if figure == "goodput" {
		return fmt.Sprintf("%.3f %s", v, plain(policy))
	}
	return inUnit(v) + " " + plain(policy)
}

func ratioOf(t *sim.Table, policy, figure string) string {
	for _, v := range t.Versus {
		if v.Than == policy && v.Figure == figure {
			if len(t.Seeds) < 2 {
				return fmt.Sprintf("%.2f", v.Ratio)
			}
			return fmt.Sprintf("%.2f [%.2f, %.2f]", v.Ratio, v.Low, v.High)
		}
	}
	return "–"
}

// inUnit is a time for humans.
func inUnit(seconds float64) string {
	switch {
	case !known(seconds) || seconds <= 0:
		return "–"
	case seconds < 0.9995:
		return fmt.Sprintf("%.3g ms", seconds*1e3)
	}
	return fmt.Sprintf("%.3g s", seconds)
}
