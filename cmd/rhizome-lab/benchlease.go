package main

import (
	"time"

	"github.com/rhizome-router/rhizome/mesh/lease"
)

type benchLeaseCommand struct {
	Long bool `help:"Crash the leader 20 times and idle for 10 minutes, instead of 5 times and 10 seconds."`
	JSON bool `help:"Print the report as JSON."`
}

func (c *benchLeaseCommand) Run(sh *shell) error {
	var cfg lease.BenchConfig
	if c.Long {
		cfg.Failovers, cfg.Idle = 20, 10*time.Minute
	}
	return runBench(sh, c.JSON, func(progress func(float64)) (*lease.BenchReport, error) {
		cfg.Progress = progress
		return lease.Bench(sh.ctx, cfg)
	})
}
