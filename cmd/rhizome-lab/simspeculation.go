package main

import (
	"cmp"
	"encoding/json"
	"fmt"
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
	settings, seeds := sim.Speculations(), max(1, c.Seeds)
	if c.Grid {
		settings = sim.SpeculationGrid()
	}
	if c.Seeds == 0 {
		seeds = 3
	}
	step, finish := func(int, string) {}, func() {}
	if load.IsTerminal(sh.stderr) {
		step, finish = report.Progress(sh.stderr, len(settings)*seeds)
	}
	var rows []speculationRow
	for _, x := range settings {
		var sum sim.SpeculationResult
		var all []*sim.SpeculationResult
		for i := range seeds {
			x.Seed = uint64(i + 1)
			r, err := x.Play(sh.ctx)
			if err != nil {
				finish()
				return err
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
	finish()
	if c.JSON {
		enc := json.NewEncoder(sh.stdout)
		enc.SetIndent("", "  ")
		return enc.Encode(rows)
	}
	fmt.Fprintf(sh.stdout, "| events late | lost | refused | replay | precision | recall | TTFT | perfect index | regret |\n|---|---|---|---|---|---|---|---|---|\n")
	for _, r := range rows {
		replay := "no"
		if r.Replay {
			replay = "yes"
		}
		fmt.Fprintf(sh.stdout, "| %v | %.3g %% | %.3g %% | %s | %.4f | %.4f | %.1f ms | %.1f ms | %+.1f ± %.1f %% |\n",
			time.Duration(r.EventDelaySeconds*float64(time.Second)), 100*r.EventLoss, 100*r.Refused, replay, r.Precision, r.Recall, r.TTFTMillis, r.IdealMillis, 100*r.Regret, 100*r.RegretCI95)
	}
	if widest := slices.MaxFunc(rows, func(a, b speculationRow) int { return cmp.Compare(a.RegretCI95, b.RegretCI95) }).RegretCI95; seeds >= seedsToTell {
		fmt.Fprintf(sh.stdout, "\n± is the 95 %% interval over %d seeds, the same for both runs. For ± %.1f %% everywhere it takes about %.0f.\n", seeds, 100*fineRegret, math.Ceil(float64(seeds)*math.Pow(widest/fineRegret, 2)))
	}
	return nil
}
