package main

import (
	"fmt"
	"os"

	"github.com/rhizome-router/rhizome/load/decidebench"
)

type benchDecideCommand struct {
	JSON  bool   `help:"Print the report as JSON."`
	Chart string `help:"Write the growth curves to this SVG file." placeholder:"FILE"`
}

func (c *benchDecideCommand) Run(sh *shell) error {
	return runBench(sh, c.JSON, func(progress func(float64)) (*decidebench.Report, error) {
		report, err := decidebench.Bench(sh.ctx, decidebench.Config{Progress: progress})
		if err == nil && c.Chart != "" {
			err = writeChart(c.Chart, report)
		}
		return report, err
	})
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
