package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/rhizome-router/rhizome/config"
	"github.com/rhizome-router/rhizome/engine/emulator"
	"github.com/rhizome-router/rhizome/engine/model"
	"github.com/rhizome-router/rhizome/load"
	"github.com/rhizome-router/rhizome/route"
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

// startRouter returns what the demo calls to get its router: the product's
// own, wired as serve wires it.
func (c *demoCommand) startRouter(sh *shell) func(context.Context, []string) (*load.Router, error) {
	return func(ctx context.Context, lines []string) (*load.Router, error) {
		flags := []config.Flag{
			{Name: "--worker", Path: "workers", Values: lines}, {Name: "--policy", Path: "route.policy", Values: []string{c.Policy}},
			{Name: "--listen", Path: "gateway.listen", Values: []string{c.Listen}}, {Name: "--admin", Path: "gateway.admin.listen", Values: []string{c.Admin}},
			{Name: "demo", Path: "name", Values: []string{"demo"}}, {Name: "demo", Path: "grace", Values: []string{"5s"}},
			{Name: "demo", Path: "seed", Values: []string{"1"}},
		}
		if c.StateDir != "" {
			flags = append(flags, config.Flag{Name: "--state-dir", Path: "state.dir", Values: []string{c.StateDir}})
		}
		loaded, err := config.Source{Flags: flags}.Load()
		if err != nil {
			return nil, err
		}
		r, err := newReplica(loaded, sh)
		if err != nil {
			return nil, err
		}
		ctx, stop := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() { ended <- r.run(ctx) }()
		closeRouter := func() error { stop(); return <-ended }
		if err := r.awaitReady(ctx); err != nil {
			closeRouter()
			return nil, err
		}
		return &load.Router{
			URL: "http://" + r.data.Addr().String(), Admin: "http://" + r.admin.Addr().String(), Close: closeRouter,
			Stats: func() load.RouterStats {
				s := r.router.Stats()
				return load.RouterStats{Requests: int64(s.Requests), Failed: int64(s.Ended[route.Failed]),
					CachedPredicted: int64(s.CachedPredicted), CachedActual: int64(s.CachedActual), CachedAbsError: int64(s.CachedAbsError)}
			},
		}, nil
	}
}

// awaitReady waits until the replica would take traffic.
func (r *replica) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := r.ready()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return err
		}
	}
}
