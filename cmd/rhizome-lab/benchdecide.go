package main

import (
	"fmt"
	"os"

	"github.com/rhizome-router/rhizome/load"
	"github.com/rhizome-router/rhizome/load/decidebench"
)

type benchDecideCommand struct {
	JSON  bool   `help:"Print the report as JSON."`
	Chart string `help:"Write the growth curves to this SVG file." placeholder:"FILE"`
}

func (c *benchDecideCommand) Run(sh *shell) error {
	var cfg decidebench.Config
	finish := func() {}
	if load.IsTerminal(sh.stderr) {
		cfg.Progress, finish = load.BenchBar(sh.stderr)
	}
	report, err := decidebench.Bench(sh.ctx, cfg)
	finish()
	if err != nil {
		return err
	}
	if c.Chart != "" {
		if err := writeChart(c.Chart, report); err != nil {
			return err
		}
	}
	if c.JSON {
		return report.WriteJSON(sh.stdout)
	}
	return report.WriteTable(sh.stdout)
}

func writeChart(name string, r *decidebench.Report) (err error) {
	f, err := os.Create(name)
	if err != nil {
		return fmt.Errorf("create the chart: %w", err)
	}
	defer func() {
		if e := f.Close(); err == nil && e != nil {
			err = fmt.Errorf("write the chart: %w", e)
		}
	}()
	return r.WriteChart(f)
}
