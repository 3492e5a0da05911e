package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rhizome-router/rhizome/chaos"
	"github.com/rhizome-router/rhizome/chaos/bubble"
	"github.com/rhizome-router/rhizome/chaos/pure"
	"github.com/rhizome-router/rhizome/chaos/real"
	"github.com/rhizome-router/rhizome/chaos/report"
	"github.com/rhizome-router/rhizome/load"
	simreport "github.com/rhizome-router/rhizome/sim/report"
)

type chaosCommand struct {
	Suite    string   `help:"What to play: quick or standard." default:"quick"`
	Scenario string   `help:"Play these scenarios instead, by name, separated by commas."`
	Ground   []string `help:"Where to play them: pure, bubble, real, or all. Each scenario is played where it is required." default:"pure,bubble"`
	Real     bool     `help:"Play them on the real ground as well, which needs root, iproute2 and nftables."`
	Seeds    int      `help:"Runs of each scenario on the pure ground, each from another seed; 0: 20 for the standard suite, else 1." default:"0"`
	JSON     bool     `help:"Print results as JSON lines; the last one is the summary."`
	Report   string   `help:"Write a page with timelines to this file." type:"path"`
	Save     string   `help:"Make failing schedules of the pure ground small and write them into this directory." type:"path"`
	Rhizome  string   `help:"The lab build of rhizome that the real ground runs; default: rhizome-chaos beside this program (make chaos-build)." type:"path"`
	Bubble   string   `help:"The test of chaos/bubble as a program, which the bubble ground runs; default: chaos-bubble beside this program (make chaos-build)." type:"path"`
	Logs     string   `help:"Copy what replicas and workers of the real ground log into this directory." type:"path"`
	Stretch  float64  `help:"Have all of a scenario but its last part take so many times as long." default:"1"`
	List     bool     `help:"List the scenarios and play nothing."`
}

// shrinkTries bounds the runs for making one failing schedule small.
const shrinkTries = 200

func (c *chaosCommand) Run(sh *shell) error {
	scenarios, grounds, err := c.chosen(sh)
	if err != nil {
		return err
	}
	if c.List {
		for i := range scenarios {
			fmt.Fprintf(sh.stdout, "%-20s %-18s %s\n", scenarios[i].Name, join(scenarios[i].Grounds), scenarios[i].Doc)
		}
		return nil
	}
	o := chaos.Options{Seeds: c.seeds()}
	finish := func() {}
	if load.IsTerminal(sh.stderr) {
		var step func(int, string)
		step, finish = simreport.Progress(sh.stderr, chaos.Runs(scenarios, grounds, o))
		o.Progress = func(label string) { step(1, label) }
	}
	results, err := chaos.Play(sh.ctx, scenarios, grounds, o)
	finish()
	if err != nil {
		return err
	}
	if err := c.write(sh, scenarios, results); err != nil {
		return err
	}
	if err := c.save(sh, scenarios, results); err != nil {
		return err
	}
	if sum := chaos.Sum(scenarios, results); len(sum.Failed) > 0 || sum.Scenarios == 0 {
		return fmt.Errorf("%d of %d scenarios failed: %s", len(sum.Failed), sum.Scenarios, strings.Join(sum.Failed, ", "))
	}
	return nil
}

// standardSeeds is how many runs each scenario of the standard suite has on the
// pure ground.
const standardSeeds = 20

func (c *chaosCommand) seeds() int {
	if c.Seeds == 0 && c.Suite == "standard" && c.Scenario == "" {
		return standardSeeds
	}
	return max(1, c.Seeds)
}

// chosen returns what is to be played where.
func (c *chaosCommand) chosen(sh *shell) ([]chaos.Scenario, []chaos.Ground, error) {
	if c.Seeds < 0 || c.Seeds > 10_000 {
		return nil, nil, fmt.Errorf("--seeds %d: give 1 to 10000, or 0 for what suits the suite", c.Seeds)
	}
	scenarios, err := chaos.Suite(c.Suite)
	if c.Scenario != "" {
		scenarios, err = chaos.Find(c.Scenario)
	}
	if err != nil {
		return nil, nil, err
	}
	for i := range scenarios {
		scenarios[i] = scenarios[i].Stretched(c.Stretch)
		if err := scenarios[i].Validate(); err != nil {
			return nil, nil, fmt.Errorf("--stretch %g: %w", c.Stretch, err)
		}
	}
	var grounds []chaos.Ground
	var places []chaos.Place
	for _, p := range chaos.Places() {
		if slices.Contains(c.Ground, string(p)) || slices.Contains(c.Ground, "all") || c.Real && p == chaos.Real {
			places, grounds = append(places, p), append(grounds, c.ground(sh, p))
		}
	}
	for _, name := range c.Ground {
		if name != "all" && !slices.Contains(chaos.Places(), chaos.Place(name)) {
			return nil, nil, fmt.Errorf("--ground %s: give pure, bubble, real or all", name)
		}
	}
	can := chaos.Playable(scenarios, places)
	if c.Scenario != "" && len(can) < len(scenarios) {
		return nil, nil, fmt.Errorf("--scenario %s: not all of them are played on %s; see --list", c.Scenario, join(places))
	}
	return can, grounds, nil
}

// ground returns a ground.
func (c *chaosCommand) ground(sh *shell, p chaos.Place) chaos.Ground {
	switch p {
	case chaos.Bubble:
		return &bubble.Ground{Binary: cmp.Or(c.Bubble, beside("chaos-bubble"))}
	case chaos.Real:
		return &real.Ground{Binary: cmp.Or(c.Rhizome, beside("rhizome-chaos")), Logs: c.Logs, Log: slog.New(slog.NewTextHandler(sh.stderr, nil))}
	}
	return pure.Ground{}
}

// beside is where a program is that was built with this one.
func beside(name string) string {
	own, err := os.Executable()
	if err != nil {
		return name
	}
	return filepath.Join(filepath.Dir(own), name)
}

func join[S ~string](all []S) string {
	parts := make([]string, len(all))
	for i := range all {
		parts[i] = string(all[i])
	}
	return strings.Join(parts, ",")
}

// write prints the results, and the page if one is wanted.
func (c *chaosCommand) write(sh *shell, scenarios []chaos.Scenario, results []chaos.Result) error {
	if c.JSON {
		enc := json.NewEncoder(sh.stdout)
		for i := range results {
			if err := enc.Encode(&results[i]); err != nil {
				return fmt.Errorf("print results: %w", err)
			}
		}
		if err := enc.Encode(chaos.Sum(scenarios, results)); err != nil {
			return fmt.Errorf("print results: %w", err)
		}
	} else {
		report.Text(sh.stdout, results)
	}
	if c.Report == "" {
		return nil
	}
	f, err := os.Create(c.Report)
	if err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	err = report.HTML(f, scenarios, results, report.Meta{Command: strings.Join(append([]string{"rhizome-lab"}, sh.args...), " "), Commit: commit()})
	return errors.Join(err, f.Close())
}

// save makes what failed on the pure ground small, one run of each scenario, and
// writes it down.
func (c *chaosCommand) save(sh *shell, scenarios []chaos.Scenario, results []chaos.Result) error {
	if c.Save == "" {
		return nil
	}
	done := make(map[string]bool)
	for i := range results {
		r := &results[i]
		if r.Place != chaos.Pure || len(r.Violations) == 0 || done[r.Scenario] {
			continue
		}
		done[r.Scenario] = true
		s := scenarios[slices.IndexFunc(scenarios, func(s chaos.Scenario) bool { return s.Name == r.Scenario })]
		small, err := pure.Shrink(sh.ctx, s, r.Seed, shrinkTries)
		if err != nil {
			return err
		}
		path, err := small.Save(c.Save)
		if err != nil {
			return err
		}
		fmt.Fprintf(sh.stderr, "%s: %d faults of %d are left in %s\n", r.Scenario, len(small.Scenario.Faults), len(s.Faults), path)
	}
	return nil
}
