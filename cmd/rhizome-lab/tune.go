package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/rhizome-router/rhizome/load"
	"github.com/rhizome-router/rhizome/sim"
	"github.com/rhizome-router/rhizome/sim/report"
)

type tuneCommand struct {
	Policy   string `help:"Whose parameters to search: rhizome, lmetric, dynamo, llm-d-precise or sgl-router." default:"rhizome" placeholder:"NAME"`
	Trace    string `help:"Mooncake trace (JSON lines) that the conversation scenarios play; default: the shipped excerpt, 500 requests." type:"existingfile" placeholder:"FILE"`
	Scenario string `help:"Scenarios to search on, comma-separated. Default: all of set A; those of set B are for reporting." placeholder:"NAME,…"`
	Budget   int    `help:"How many settings to try; each plays every scenario over every seed." default:"60"`
	Seeds    int    `help:"Play seeds 1 to N." default:"1"`
	Column   string `help:"What the routers know of the workers' constants: oracle, learned or misspecified." default:"learned"`
	Report   bool   `help:"Then compare the defaults and what was found on set B."`
	JSON     bool   `help:"Print JSON on standard output."`
}

func (c *tuneCommand) Run(sh *shell) error {
	t, err := sim.FindTunable(c.Policy)
	if err != nil {
		return err
	}
	if c.Budget < 2 || c.Seeds < 1 {
		return fmt.Errorf("--budget %d, --seeds %d: want at least 2 and 1", c.Budget, c.Seeds)
	}
	scenarios := sim.OfSet("A")
	if c.Scenario != "" {
		if scenarios, err = sim.Find(c.Scenario); err != nil {
			return err
		}
	}
	opt := sim.Options{}
	if opt.Column, err = sim.ParseColumn(c.Column); err != nil {
		return err
	}
	for i := range c.Seeds {
		opt.Seeds = append(opt.Seeds, uint64(i+1))
	}
	if c.Trace != "" {
		if opt.Trace, err = readTraceFile(c.Trace); err != nil {
			return err
		}
	}
	finish := func() {}
	if load.IsTerminal(sh.stderr) {
		var step func(n int, label string)
		step, finish = report.Progress(sh.stderr, c.Budget*len(scenarios)*c.Seeds)
		opt.Progress = func(label string) { step(1, label) }
	}
	tuned, err := sim.Tune(sh.ctx, t, scenarios, opt, c.Budget)
	finish()
	if err != nil {
		return err
	}
	if err := c.print(sh, tuned); err != nil || !c.Report {
		return err
	}
	return c.compare(sh, t, tuned, opt)
}

func (c *tuneCommand) print(sh *shell, t *sim.Tuned) error {
	if c.JSON {
		enc := json.NewEncoder(sh.stdout)
		enc.SetIndent("", "  ")
		return enc.Encode(t)
	}
	fmt.Fprintf(sh.stdout, "%s on set A, column %s, %d settings tried: loss %.4f, from 0 at the defaults\n\n", t.Policy, c.Column, t.Evaluations, t.BestLoss)
	w := tabwriter.NewWriter(sh.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "parameter\tdefault\tfound")
	for i, name := range t.Params {
		fmt.Fprintf(w, "%s\t%.4g\t%.4g\n", name, t.Default[i], t.Best[i])
	}
	return w.Flush()
}

// compare plays set B by the defaults and by what was found.
func (c *tuneCommand) compare(sh *shell, t sim.Tunable, tuned *sim.Tuned, opt sim.Options) error {
	before, after := t.Make(tuned.Default), t.Make(tuned.Best)
	before.Name, after.Name = strings.TrimSuffix(t.Name, "-fitted")+" default", t.Name+" found"
	opt.Policies, opt.Progress = []sim.Policy{before, after}, nil
	var tables []*sim.Table
	for _, sc := range sim.OfSet("B") {
		table, err := sim.Play(sh.ctx, sc, opt)
		if err != nil {
			return err
		}
		tables = append(tables, table)
	}
	if c.JSON {
		return report.WriteJSON(sh.stdout, "tuned", tables)
	}
	return report.WriteTable(sh.stdout, tables, report.FitTo(sh.stdout))
}
