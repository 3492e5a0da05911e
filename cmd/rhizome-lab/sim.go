package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/rhizome-router/rhizome/engine/model"
	"github.com/rhizome-router/rhizome/load"
	"github.com/rhizome-router/rhizome/sim"
	"github.com/rhizome-router/rhizome/sim/report"
	"github.com/rhizome-router/rhizome/workload"
)

type simCommand struct {
	Trace       string  `help:"Mooncake trace (JSON lines) that the conversation scenarios play; default: the shipped excerpt, 500 requests." type:"existingfile" placeholder:"FILE"`
	Scenario    string  `help:"Scenarios to play, comma-separated; --list shows them. With --suite: only those of it. Default: the whole trace (without --trace: its excerpt), or with --sessions so many agents in closed loop." placeholder:"NAME,…"`
	Suite       string  `help:"Play a suite of scenarios: quick, standard or full." placeholder:"NAME"`
	Policies    string  `help:"Policies to play, comma-separated; --list shows them. Default: all, or the suite's." placeholder:"NAME,…"`
	Ablate      bool    `help:"Play rhizome without each of its terms in turn, and with those that are off by default, and print what that changes."`
	Workers     int     `help:"Workers in the fleet." placeholder:"N"`
	Preset      string  `help:"What the workers are; --list shows the presets." placeholder:"NAME"`
	Speed       float64 `help:"Compress the time of open-loop work." placeholder:"X"`
	Sessions    int     `help:"Agents in closed loop." placeholder:"N"`
	Announce    bool    `help:"Agents name their workflow with every request."`
	Replicas    int     `help:"Routers that share the work, each request going to one drawn at random." placeholder:"N"`
	Seeds       int     `help:"Play seeds 1 to N. A single one gives no intervals. Default 3, or the suite's." placeholder:"N"`
	Column      string  `help:"What the routers know of the workers' constants: oracle, learned or misspecified. Default learned, or the suite's." placeholder:"NAME"`
	Capacity    bool    `help:"Also search the highest speed at which goodput is at least 95 %."`
	Speculation bool    `help:"Play what indexes are worth while events are late or lost, and workers and replicas die; only --grid, --seeds and --json count beside it."`
	Grid        bool    `help:"With --speculation: every combination of late, lost and refused, not one row of each measure of trouble."`
	Limit       int     `help:"Play only so many requests." placeholder:"N"`
	NoHold      bool    `help:"Send turns of a trace at their own time, even if the turn before has not been answered."`
	Block       int     `help:"Tokens in a KV block; smaller ones are slower to simulate." placeholder:"N"`
	JSON        bool    `help:"Print JSON on standard output."`
	CSV         string  `name:"csv" help:"Also write the table as CSV." placeholder:"FILE"`
	Report      string  `help:"Also write a page with plots, one HTML file that needs nothing else." placeholder:"FILE"`
	Markdown    string  `help:"Also write a summary, ours beside the best peers, as a Markdown table." placeholder:"FILE"`
	List        bool    `help:"List scenarios, policies and presets, and do nothing."`
}

func (c *simCommand) Run(sh *shell) error {
	if c.List {
		return listSim(sh.stdout)
	}
	if c.Speculation {
		return c.speculate(sh)
	}
	if c.Grid {
		return errors.New("--grid is for --speculation")
	}
	p, err := c.plan()
	if err != nil {
		return err
	}
	var opt sim.Options
	for i := range p.seeds {
		opt.Seeds = append(opt.Seeds, uint64(i+1))
	}
	if c.Trace != "" {
		if opt.Trace, err = readTraceFile(c.Trace); err != nil {
			return err
		}
	}
	if c.Trace == "" && slices.ContainsFunc(p.scenarios, func(s sim.Scenario) bool { return s.Workload.Kind == sim.Trace }) {
		fmt.Fprintln(sh.stderr, "note: conversations are the shipped excerpt, the trace's first 500 requests; --trace FILE plays the whole")
	}
	finish := func() {}
	if load.IsTerminal(sh.stderr) {
		var step func(n int, label string)
		step, finish = report.Progress(sh.stderr, p.runs())
		opt.Progress = func(label string) { step(1, label) }
	}
	var tables []*sim.Table
	for _, column := range p.columns {
		opt.Column, opt.Policies = column, p.policiesIn(column)
		for _, sc := range p.scenarios {
			play := sim.Play
			if c.Capacity {
				play = sim.Capacity
			}
			t, err := play(sh.ctx, sc, opt)
			if err != nil {
				finish()
				return err
			}
			if len(p.columns) > 1 && column != sim.Learned {
				t.Scenario.Name += " (" + string(column) + ")"
			}
			tables = append(tables, t)
		}
	}
	finish()
	return c.write(sh, tables)
}

// simPlan is what the flags ask for.
type simPlan struct {
	scenarios []sim.Scenario
	policies  []sim.Policy
	columns   []sim.Column
	seeds     int
}

// policiesIn returns who plays a column: beside the learned one, only those for
// whom it makes a difference.
func (p *simPlan) policiesIn(column sim.Column) []sim.Policy {
	if len(p.columns) == 1 || column == sim.Learned {
		return p.policies
	}
	return sim.Priced(p.policies)
}

// runs is how many there are to play.
func (p *simPlan) runs() int {
	n := 0
	for _, column := range p.columns {
		n += len(p.scenarios) * p.seeds * len(p.policiesIn(column))
	}
	return n
}

func (c *simCommand) plan() (p simPlan, err error) {
	names := c.Policies
	p.seeds, p.columns = 3, []sim.Column{sim.Learned}
	switch {
	case c.Suite != "":
		s, err := sim.FindSuite(c.Suite)
		if err != nil {
			return p, err
		}
		if s.Scenarios, err = only(s.Scenarios, c.Scenario); err != nil {
			return p, err
		}
		p.scenarios, p.columns, p.seeds, names = s.Scenarios, s.Columns, s.Seeds, cmp.Or(names, s.Policies)
	case c.Scenario != "":
		if p.scenarios, err = sim.Find(c.Scenario); err != nil {
			return p, err
		}
	default:
		sc := sim.Default()
		if c.Sessions > 0 {
			sc.Name, sc.Workload = fmt.Sprintf("agents-%d", c.Sessions), sim.Workload{Kind: sim.Agents, Sessions: c.Sessions, Speed: 1}
		}
		p.scenarios = []sim.Scenario{sc}
	}
	if c.Column != "" {
		column, err := sim.ParseColumn(c.Column)
		if err != nil {
			return p, err
		}
		p.columns = []sim.Column{column}
	}
	if c.Seeds < 0 || c.Seeds > 1000 {
		return p, fmt.Errorf("--seeds %d: want 1 to 1000", c.Seeds)
	}
	p.seeds = cmp.Or(c.Seeds, p.seeds)
	switch {
	case c.Ablate && c.Policies != "":
		return p, fmt.Errorf("--ablate plays policies of its own: leave out --policies, or leave out --ablate and name some of them (--list shows them)")
	case c.Ablate:
		p.policies = sim.Ablations()
	default:
		if p.policies, err = sim.ParsePolicies(names); err != nil {
			return p, err
		}
	}
	for i := range p.scenarios {
		if err := c.change(&p.scenarios[i]); err != nil {
			return p, err
		}
	}
	return p, nil
}

// only returns the scenarios of a suite that a comma-separated list names; all
// for an empty one.
func only(suite []sim.Scenario, names string) ([]sim.Scenario, error) {
	if names == "" {
		return suite, nil
	}
	var out []sim.Scenario
	for name := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(suite, func(s sim.Scenario) bool { return s.Name == strings.TrimSpace(name) })
		if i < 0 {
			return nil, fmt.Errorf("no scenario %q in the suite; rhizome-lab sim --list shows them all", name)
		}
		out = append(out, suite[i])
	}
	return out, nil
}

// change applies the flags that differ from a scenario.
func (c *simCommand) change(sc *sim.Scenario) error {
	if c.Preset != "" {
		if _, err := model.PresetByName(c.Preset); err != nil {
			return err
		}
	}
	sc.Fleet.Preset = cmp.Or(c.Preset, sc.Fleet.Preset)
	sc.Fleet.Workers = cmp.Or(c.Workers, sc.Fleet.Workers)
	sc.Workload.Speed = cmp.Or(c.Speed, sc.Workload.Speed)
	sc.Replicas = cmp.Or(c.Replicas, sc.Replicas)
	sc.BlockTokens = cmp.Or(c.Block, sc.BlockTokens)
	if sc.Workload.Sessions > 0 {
		sc.Workload.Sessions = cmp.Or(c.Sessions, sc.Workload.Sessions)
	}
	sc.Workload.Announce = sc.Workload.Announce || c.Announce
	sc.Workload.Limit = cmp.Or(c.Limit, sc.Workload.Limit)
	if c.NoHold {
		sc.Workload.Hold = false
	}
	return sc.Validate()
}

// write puts the results where they were asked for: files first, so that
// nothing printed claims what was not written.
func (c *simCommand) write(sh *shell, tables []*sim.Table) error {
	if c.CSV != "" {
		if err := writeFile(c.CSV, func(w io.Writer) error { return report.WriteCSV(w, tables) }); err != nil {
			return fmt.Errorf("write the CSV: %w", err)
		}
	}
	if c.Markdown != "" {
		if err := writeFile(c.Markdown, func(w io.Writer) error { return report.WriteMarkdown(w, tables) }); err != nil {
			return fmt.Errorf("write the summary: %w", err)
		}
	}
	if c.Report != "" {
		meta := report.Meta{Suite: c.Suite, Command: "rhizome-lab " + strings.Join(sh.args, " "), Commit: cmp.Or(commit(), version)}
		if c.Trace == "" {
			meta.Notes = append(meta.Notes, "Conversation scenarios play the shipped excerpt, the trace's first 500 requests.")
		}
		if err := writeFile(c.Report, func(w io.Writer) error { return report.WriteHTML(w, tables, meta) }); err != nil {
			return fmt.Errorf("write the report: %w", err)
		}
	}
	if c.JSON {
		return report.WriteJSON(sh.stdout, c.Suite, tables)
	}
	if c.Ablate {
		return report.WriteAblation(sh.stdout, tables)
	}
	return report.WriteTable(sh.stdout, tables, report.FitTo(sh.stdout))
}

// commit is what the program was built from, as the Go tool noted it.
func commit() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value[:min(12, len(s.Value))]
		}
	}
	return ""
}

func readTraceFile(name string) ([]workload.Request, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("read the trace: %w", err)
	}
	defer f.Close()
	trace, err := workload.ReadTrace(f, 0)
	if err != nil {
		return nil, fmt.Errorf("read the trace %s: %w", name, err)
	}
	return trace, nil
}

func listSim(w io.Writer) error {
	var b strings.Builder
	b.WriteString("scenarios (set A: tuned on, set B: reported on)\n")
	for _, s := range sim.Catalogue() {
		fmt.Fprintf(&b, "  %-24s %s  %s\n", s.Name, s.Set, s.Describe())
	}
	b.WriteString("\npolicies\n")
	for _, p := range sim.Policies() {
		fmt.Fprintf(&b, "  %-24s %s\n", p.Name, p.Doc)
	}
	b.WriteString("\nablations (--ablate plays them all)\n")
	for _, p := range sim.Ablations()[1:] {
		fmt.Fprintf(&b, "  %-36s %s\n", p.Name, p.Doc)
	}
	b.WriteString("\npresets\n")
	for _, p := range model.Presets() {
		fmt.Fprintf(&b, "  %-24s %d KV bytes per token, pool of %d tokens\n", p.Name, p.KVBytesPerToken, p.PoolTokens)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
