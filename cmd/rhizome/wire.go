package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/cost"
	"github.com/rhizome-router/rhizome/engine"
	"github.com/rhizome-router/rhizome/engine/model"
	"github.com/rhizome-router/rhizome/fleet"
	"github.com/rhizome-router/rhizome/gateway"
	"github.com/rhizome-router/rhizome/index"
	"github.com/rhizome-router/rhizome/route"
)

// replicaConfig is all that a replica is made from.
type replicaConfig struct {
	Workers []engine.Spec
	Policy  route.Policy
	Gateway gateway.Config
	Name    string
	// Grace is how long running requests may take after the end was asked for.
	Grace time.Duration
	Seed  uint64
}

// replica is one router: its parts in the order of the house, and its two
// listeners, which are open before run is called.
type replica struct {
	fleet   *fleet.Fleet
	router  *route.Router
	gateway *gateway.Gateway
	data    net.Listener
	admin   net.Listener
	grace   time.Duration
	log     *slog.Logger
}

// newReplica puts a replica together and opens its listeners.
func newReplica(cfg replicaConfig, log *slog.Logger) (*replica, error) {
	cfg.Gateway = cfg.Gateway.WithDefaults()
	if err := cfg.Gateway.Validate(); err != nil {
		return nil, err
	}
	time := clock.Real()
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))

	prefixes := index.New(index.Config{Seed: cfg.Seed})
	sent := index.NewApprox(index.ApproxConfig{Seed: cfg.Seed})
	workers, err := fleet.New(fleet.Config{}, fleet.Deps{Index: prefixes, Approx: sent, Clock: time, Log: log}, cfg.Workers, classOf)
	if err != nil {
		return nil, err
	}
	router := route.New(route.Config{Policy: cfg.Policy, Weights: cost.DefaultWeights(), Article: cost.DefaultArticle(), Seed: cfg.Seed},
		route.Deps{Fleet: workers, Index: prefixes, Approx: sent, Clock: time})
	registry.MustRegister(workers.Collector(), router.Collector())
	front, err := gateway.New(cfg.Gateway, gateway.Deps{
		Decider: router, Models: func() []engine.Model { return workers.View().Models() }, Ready: workers.Ready,
		Workers:    func() any { return workers.Describe() },
		Index:      func() any { return workers.DescribeIndex() },
		Explain:    func(id string) (any, bool) { return router.Explain(id) },
		Registerer: registry, Gatherer: registry, Log: log, Clock: time, Replica: cfg.Name,
	})
	if err != nil {
		return nil, err
	}
	r := &replica{fleet: workers, router: router, gateway: front, grace: cfg.Grace, log: log}
	if r.data, err = net.Listen("tcp", cfg.Gateway.Listen); err != nil {
		return nil, fmt.Errorf("open the data port: %w", err)
	}
	if r.admin, err = net.Listen("tcp", cfg.Gateway.Admin.Listen); err != nil {
		r.data.Close()
		return nil, fmt.Errorf("open the admin port: %w", err)
	}
	return r, nil
}

// run serves until ctx ends and everything it started has returned. The front
// door closes first, so that running requests still find the rest of the house
// alive; the admin port and the fleet close when it is done.
func (r *replica) run(ctx context.Context) error {
	house, closeHouse := context.WithCancel(context.WithoutCancel(ctx))
	defer closeHouse()
	var wg sync.WaitGroup
	var adminErr error
	wg.Go(func() { r.fleet.Run(house) })
	wg.Go(func() {
		if adminErr = gateway.Serve(house, r.admin, r.gateway.Admin(), r.grace, r.log); adminErr != nil {
			r.log.Error("admin port", "err", adminErr)
		}
	})
	r.log.Info("serving", "data", "http://"+r.data.Addr().String(), "admin", "http://"+r.admin.Addr().String())
	context.AfterFunc(ctx, func() {
		r.log.Info("ending: no new requests", "grace", r.grace)
		r.gateway.Drain()
	})
	err := gateway.Serve(ctx, r.data, r.gateway, r.grace, r.log)
	closeHouse()
	wg.Wait()
	return errors.Join(err, adminErr)
}

// classOf returns the constants to assume for a worker: those of the preset it
// names, or generic ones whose scale is learned.
func classOf(spec engine.Spec) (cost.Class, error) {
	class := cost.Generic()
	if spec.Preset == "" {
		return class, nil
	}
	p, err := model.PresetByName(spec.Preset)
	if err != nil {
		return class, fmt.Errorf("worker %s: %w", spec.URL, err)
	}
	class.Name = p.Name
	class.StepMicros, class.SeqMicros, class.KVTokenMicros = p.Linear.A, p.Linear.B, p.Linear.C
	class.TokenMicros, class.PairMicros = p.Linear.E, p.Linear.Q
	class.KVBytes = float64(p.KVBytesPerToken)
	class.CapacityTokens = float64(p.PoolTokens)
	return class, nil
}

// parseWorkers reads --worker lines.
func parseWorkers(lines []string) ([]engine.Spec, error) {
	var specs []engine.Spec
	var errs []error
	for _, line := range lines {
		spec, err := engine.ParseSpec(line)
		if err != nil {
			errs = append(errs, fmt.Errorf("--worker %q: %w", line, err))
			continue
		}
		specs = append(specs, spec)
	}
	return specs, errors.Join(errs...)
}

func policyNames() string {
	names := make([]string, len(route.Policies))
	for i, p := range route.Policies {
		names[i] = string(p)
	}
	return strings.Join(names, ",")
}

func presetNames() string {
	var names []string
	for _, p := range model.Presets() {
		names = append(names, p.Name)
	}
	return strings.Join(names, ",")
}
