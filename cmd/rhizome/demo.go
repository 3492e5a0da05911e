package main

import (
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/rhizome-router/rhizome/engine/emulator"
	"github.com/rhizome-router/rhizome/engine/model"
	"github.com/rhizome-router/rhizome/load"
)

type demoCommand struct {
	Workers       int           `help:"How many emulated workers." default:"4"`
	Preset        string        `help:"Engine, model and accelerator to emulate: ${enum}." enum:"${presets}" default:"llama3-8b-h100"`
	Speedup       float64       `help:"How many times faster than life they run." default:"10"`
	Pool          *int          `help:"KV tokens in each worker's HBM. 0: the preset's; default: 24000, or 140000 with --stress, so that a short demo shows lower tiers at work."`
	Policy        string        `help:"How workers are chosen: ${enum}." enum:"${policies}" default:"rhizome"`
	Once          bool          `help:"End by itself, with a summary."`
	Duration      time.Duration `help:"How long to send new turns; default: until Ctrl-C, or 20s with --once."`
	Stress        bool          `help:"Make it hard: late KV events, small pools, a worker that restarts, a chat template that leaves thinking out."`
	JSON          bool          `help:"Print the summary as JSON and nothing else."`
	Replicas      int           `help:"How many routers, in a mesh behind a random balancer." default:"1"`
	RestartRouter bool          `help:"End the router half-way through (or after 10s) and start another, which knows what is in the state directory; conversations are named."`
	StateDir      string        `help:"Where the router keeps what it learned. Default: nowhere, or with --restart-router a directory that goes with the demo."`
	Listen        string        `help:"The router's data address; port 0 takes a free one." default:"127.0.0.1:0"`
	Admin         string        `help:"The router's admin address." default:"127.0.0.1:0"`
}

func (c *demoCommand) Run(sh *shell) error {
	// The table has the terminal: of the log only what went wrong is shown.
	quiet := *sh
	quiet.log = slog.New(slog.NewTextHandler(sh.stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	sh = &quiet
	if c.Replicas < 1 || c.Replicas > maxDemoReplicas {
		return fmt.Errorf("--replicas is %d: want 1 to %d", c.Replicas, maxDemoReplicas)
	}
	preset, err := model.PresetByName(c.Preset)
	if err != nil {
		return err
	}
	cfg := load.DemoConfig{
		Workers: c.Workers, Duration: c.Duration, Once: c.Once, Speedup: c.Speedup,
		Out: sh.stdout, TTY: load.IsTerminal(sh.stdout), JSON: c.JSON,
	}
	fleet := emulator.GroupConfig{AnyPorts: true, Config: emulator.Config{
		Preset: preset, Speedup: c.Speedup, PoolTokens: c.pool(), Log: sh.log,
	}}
	if c.RestartRouter {
		cfg.RestartRouterAfter, cfg.NameSessions = load.Middle(c.Duration), true
		if c.StateDir == "" {
			if c.StateDir, err = os.MkdirTemp("", "rhizome-demo-"); err != nil {
				return fmt.Errorf("make a state directory: %w", err)
			}
			defer os.RemoveAll(c.StateDir)
		}
	}
	if c.Stress {
		cfg, fleet = load.Stress(cfg, fleet)
	}
	cfg.StartWorkers, cfg.StartRouter = load.EmulatedWorkers(fleet), c.startRouter(sh)
	summary, err := load.Demo(sh.ctx, cfg)
	if err == nil && summary.Failed > 0 {
		err = fmt.Errorf("%d of %d requests failed", summary.Failed, summary.Requests)
	}
	return err
}

// pool returns the KV tokens of each worker's HBM; 0: the preset's.
func (c *demoCommand) pool() int {
	switch {
	case c.Pool != nil:
		return *c.Pool
	case c.Stress:
		return load.StressPoolTokens
	}
	return 24_000
}
