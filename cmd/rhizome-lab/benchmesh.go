package main

import (
	"fmt"
	"time"

	"github.com/rhizome-router/rhizome/mesh"
)

type benchMeshCommand struct {
	Duration time.Duration `help:"How long to measure each size of the mesh." default:"5s"`
	Long     bool          `help:"Also run 3 replicas for 10 minutes, for their memory and CPU time."`
	JSON     bool          `help:"Print the report as JSON."`
}

// longRun is how long --long adds.
const longRun = 10 * time.Minute

func (c *benchMeshCommand) Run(sh *shell) error {
	if c.Duration < 200*time.Millisecond || c.Duration > time.Hour {
		return fmt.Errorf("--duration %v: want 200ms to 1h", c.Duration)
	}
	cfg := mesh.BenchConfig{Duration: c.Duration}
	if c.Long {
		cfg.Long = longRun
	}
	return runBench(sh, c.JSON, func(progress func(float64)) (*mesh.BenchReport, error) {
		cfg.Progress = progress
		return mesh.Bench(sh.ctx, cfg)
	})
}
