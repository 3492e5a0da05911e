package main

import (
	"fmt"

	"github.com/rhizome-router/rhizome/load/indexbench"
	"github.com/rhizome-router/rhizome/workload"
)

type benchIndexCommand struct {
	Trace string `help:"Mooncake trace (JSON lines); default: the shipped excerpt, 500 requests." type:"existingfile" placeholder:"FILE"`
	Limit int    `help:"Play only so many requests of the trace."`
	Long  bool   `help:"Five runs instead of three, and the memory of 10 million entries."`
	JSON  bool   `help:"Print the report as JSON."`
}

func (c *benchIndexCommand) Run(sh *shell) error {
	cfg := indexbench.Config{Long: c.Long, TraceName: workload.ExcerptName}
	var err error
	if c.Trace == "" {
		cfg.Trace, err = workload.Excerpt(0)
	} else {
		cfg.TraceName = c.Trace
		cfg.Trace, err = readTraceFile(c.Trace)
	}
	if err != nil {
		return err
	}
	if c.Limit > 0 {
		cfg.Trace = cfg.Trace[:min(c.Limit, len(cfg.Trace))]
	}
	if len(cfg.Trace) == 0 {
		return fmt.Errorf("trace %s has no requests", cfg.TraceName)
	}
	return runBench(sh, c.JSON, func(progress func(float64)) (*indexbench.Report, error) {
		cfg.Progress = progress
		return indexbench.Bench(sh.ctx, cfg)
	})
}
