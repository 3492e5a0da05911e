package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/cost"
	"github.com/rhizome-router/rhizome/engine"
	"github.com/rhizome-router/rhizome/fleet"
	"github.com/rhizome-router/rhizome/gateway"
	"github.com/rhizome-router/rhizome/index"
	"github.com/rhizome-router/rhizome/load"
	"github.com/rhizome-router/rhizome/route"
)

// benchCommand holds the benches that need more than a Go benchmark.
type benchCommand struct {
	Gateway benchGatewayCommand `cmd:"" help:"What the router adds to a request, against no router and against the smallest relay."`
	Mesh    benchMeshCommand    `cmd:"" help:"How fast replicas learn what one of them reads, and what that costs."`
	Lease   benchLeaseCommand   `cmd:"" help:"How fast replicas agree on leases, and go on when their leader crashes."`
	Index   benchIndexCommand   `cmd:"" help:"How fast the prefix index takes events and answers lookups, and its memory."`
	Parse   benchParseCommand   `cmd:"" help:"How long a request's bytes take to become keys, against a bare skip over them."`
	Decide  benchDecideCommand  `cmd:"" help:"How long the router takes to place a request, by workers and prompt length."`
}

// runBench measures, with a progress bar where somebody looks, and prints what
// came of it: a table, or one JSON object.
func runBench[R interface{ WriteTable(io.Writer) error }](sh *shell, asJSON bool, measure func(progress func(share float64)) (R, error)) error {
	progress, finish := (func(float64))(nil), func() {}
	if load.IsTerminal(sh.stderr) {
		progress, finish = load.BenchBar(sh.stderr)
	}
	report, err := measure(progress)
	finish()
	if err != nil {
		return err
	}
	if !asJSON {
		return report.WriteTable(sh.stdout)
	}
	enc := json.NewEncoder(sh.stdout)
	enc.SetIndent("", "  ")
	if err := enc.Encode(report); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}

type benchGatewayCommand struct {
	Duration    time.Duration `help:"How long to measure." default:"30s"`
	Connections int           `help:"How many clients ask at once where throughput is measured." default:"16"`
	JSON        bool          `help:"Print the report as JSON."`
}

func (c *benchGatewayCommand) Run(sh *shell) error {
	if c.Duration < 100*time.Millisecond || c.Connections < 1 || c.Connections > 4096 {
		return fmt.Errorf("--duration %v, --connections %d: want at least 100ms, and 1 to 4096", c.Duration, c.Connections)
	}
	cfg := load.BenchConfig{Duration: c.Duration, Connections: c.Connections, StartRouter: startBenchRouter}
	return runBench(sh, c.JSON, func(progress func(float64)) (*load.BenchReport, error) {
		cfg.Progress = progress
		return load.BenchGateway(sh.ctx, cfg)
	})
}

// startBenchRouter starts a router with the parts that the product has, and
// all their defaults.
func startBenchRouter(ctx context.Context, lines []string) (*load.Router, error) {
	var specs []engine.Spec
	for _, line := range lines {
		spec, err := engine.ParseSpec(line)
		if err != nil {
			return nil, err
		}
		specs = append(specs, spec)
	}
	log, now := slog.New(slog.DiscardHandler), clock.Real()
	prefixes, sent := index.New(index.Config{Seed: 1}), index.NewApprox(index.ApproxConfig{Seed: 1})
	workers, err := fleet.New(fleet.Config{}, fleet.Deps{Index: prefixes, Approx: sent, Clock: now, Log: log}, specs,
		func(engine.Spec) (cost.Class, error) { return cost.Generic(), nil })
	if err != nil {
		return nil, err
	}
	router := route.New(route.Config{Policy: route.Rhizome, Weights: cost.DefaultWeights(), NearTie: route.DefaultMargins(), Article: cost.DefaultArticle(), Seed: 1},
		route.Deps{Fleet: workers, Index: prefixes, Approx: sent, Clock: now})
	registry := prometheus.NewRegistry()
	front, err := gateway.New(gateway.Config{}, gateway.Deps{
		Decider: router, Models: func() []engine.Model { return workers.View().Models() }, Ready: workers.Ready,
		Registerer: registry, Gatherer: registry, Log: log, Clock: now, Replica: "bench",
	})
	if err != nil {
		return nil, err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("open the data port: %w", err)
	}
	ctx, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	var serveErr error
	wg.Go(func() { workers.Run(ctx) })
	wg.Go(func() { serveErr = gateway.Serve(ctx, ln, front, 5*time.Second, log) })
	end := func() error { stop(); wg.Wait(); return serveErr }
	if err := awaitReady(ctx, workers); err != nil {
		end()
		return nil, err
	}
	return &load.Router{URL: "http://" + ln.Addr().String(), Close: end}, nil
}

// awaitReady waits until a fleet knows its workers.
func awaitReady(ctx context.Context, workers *fleet.Fleet) error {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := workers.Ready()
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
