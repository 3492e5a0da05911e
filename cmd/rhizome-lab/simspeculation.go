package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/rhizome-router/rhizome/load"
	"github.com/rhizome-router/rhizome/sim"
	"github.com/rhizome-router/rhizome/sim/report"
)

// speculationRow is a setting of the experiment and what came of it over all
// seeds.
type speculationRow struct {
	EventDelaySeconds float64 `json:"event_delay_s"`
	EventLoss         float64 `json:"event_loss"`
	Refused           float64 `json:"refused"`
	Replay            bool    `json:"replay"`
	Precision         float64 `json:"precision"`
	Recall            float64 `json:"recall"`
	Regret            float64 `json:"ttft_regret"`
	RegretCI95        float64 `json:"ttft_regret_ci95"` // half-width; 0 of a single seed
	Seeds             int     `json:"seeds"`
	TTFTMillis        float64 `json:"ttft_mean_ms"`
	IdealMillis       float64 `json:"ideal_ttft_mean_ms"`
	Tickets           int     `json:"open_tickets"`
	Diverged          uint64  `json:"diverged"`
	Requests          int     `json:"requests"`
}

const (
	// fineRegret is how narrow an interval of regret is for which the seeds are
	// told that it takes, and seedsToTell how many can tell.
	fineRegret  = 0.01
	seedsToTell = 8
)

// speculate plays the experiment with speculation in all its settings.
func (c *simCommand) speculate(sh *shell) error {
	settings, seeds := sim.Speculations(), c.Seeds
	if c.Grid {
		settings = sim.SpeculationGrid()
	}
	if seeds == 0 {
		seeds = 3
	}
	step, finish := func(int, string) {}, func() {}
	if load.IsTerminal(sh.stderr) {
		step, finish = report.Progress(sh.stderr, len(settings)*seeds)
	}
	rows, err := playSpeculations(sh.ctx, settings, seeds, step)
	finish()
	if err != nil {
		return err
	}
	if c.JSON {
		enc := json.NewEncoder(sh.stdout)
		enc.SetIndent("", "  ")
		return enc.Encode(rows)
	}
	printSpeculations(sh.stdout, rows)
	return nil
}

// playSpeculations plays each setting with that many seeds; step is told of each.
func playSpeculations(ctx context.Context, settings []sim.Speculation, seeds int, step func(int, string)) (rows []speculationRow, err error) {
	type played struct { // what runs with a perfect index differ in
		refuse float64
		seed   uint64
	}
	perfect := make(map[played]*sim.Perfect)
	for _, x := range settings {
		var sum sim.SpeculationResult
		var all []*sim.SpeculationResult
		for i := range seeds {
			x.Seed = uint64(i + 1)
			with := played{x.Refuse, x.Seed}
			if perfect[with] == nil {
				if perfect[with], err = x.Perfect(ctx); err != nil {
					return nil, err
				}
			}
			r, err := x.Against(ctx, perfect[with])
			if err != nil {
				return nil, err
			}
			sum.Add(r)
			all = append(all, r)
			step(1, fmt.Sprintf("events up to %v late", x.EventDelay))
		}
		n := float64(max(1, sum.Compared))
		regret, half := sim.RegretInterval(all)
		rows = append(rows, speculationRow{
			x.EventDelay.Seconds(), x.EventLoss, x.Refuse, !x.NoReplay, sum.Precision(), sum.Recall(), regret, half, seeds,
			sum.TTFT.Seconds() * 1e3 / n, sum.Ideal.Seconds() * 1e3 / n, sum.Tickets, sum.Diverged, sum.Requests,
		})
	}
	return rows, nil
}

// printSpeculations writes the rows as a table, and how many seeds it takes to
// tell regret well.
func printSpeculations(to io.Writer, rows []speculationRow) {
	fmt.Fprintf(to, "| events late | lost | refused | replay | precision | recall | TTFT | perfect index | regret |\n|---|---|---|---|---|---|---|---|---|\n")
	for _, r := range rows {
		replay := "no"
		if r.Replay {
			replay = "yes"
		}
		fmt.Fprintf(to, "| %v | %.3g %% | %.3g %% | %s | %.4f | %.4f | %.1f ms | %.1f ms | %+.1f ± %.1f %% |\n",
			time.Duration(r.EventDelaySeconds*float64(time.Second)), 100*r.EventLoss, 100*r.Refused, replay, r.Precision, r.Recall, r.TTFTMillis, r.IdealMillis, 100*r.Regret, 100*r.RegretCI95)
	}
	widest := slices.MaxFunc(rows, func(a, b speculationRow) int { return cmp.Compare(a.RegretCI95, b.RegretCI95) })
	if n := widest.Seeds; n >= seedsToTell {
		fmt.Fprintf(to, "\n± is the 95 %% interval over %d seeds, each the same for both runs. For ± %.1f %% in all rows it takes about %.0f.\n",
			n, 100*fineRegret, math.Ceil(float64(n)*math.Pow(widest.RegretCI95/fineRegret, 2)))
	}
}
