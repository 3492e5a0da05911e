package main

import "github.com/rhizome-router/rhizome/load/parsebench"

type benchParseCommand struct {
	JSON bool `help:"Print the report as JSON."`
}

func (c *benchParseCommand) Run(sh *shell) error {
	return runBench(sh, c.JSON, func(progress func(float64)) (*parsebench.Report, error) {
		return parsebench.Bench(sh.ctx, parsebench.Config{Progress: progress})
	})
}
