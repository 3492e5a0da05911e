package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.opentelemetry.io/otel/trace"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/config"
	"github.com/rhizome-router/rhizome/cost"
	"github.com/rhizome-router/rhizome/engine"
	"github.com/rhizome-router/rhizome/engine/discover"
	"github.com/rhizome-router/rhizome/engine/model"
	"github.com/rhizome-router/rhizome/fleet"
	"github.com/rhizome-router/rhizome/gateway"
	"github.com/rhizome-router/rhizome/gateway/otlp"
	"github.com/rhizome-router/rhizome/index"
	"github.com/rhizome-router/rhizome/mesh"
	"github.com/rhizome-router/rhizome/mesh/lease"
	"github.com/rhizome-router/rhizome/prompt"
	"github.com/rhizome-router/rhizome/route"
	"github.com/rhizome-router/rhizome/state"
	"github.com/rhizome-router/rhizome/transport"
)

// replica is one router: its parts in the order of the house, and its two
// listeners, which are open before run is called.
type replica struct {
	// endpoint is the mesh's port and node this replica's part in it; nil where
	// it is alone.
	endpoint *transport.Endpoint
	node     *mesh.Node
	leases   *lease.Group // what replicas agree on; nil where this one is alone
	before   restored     // what an earlier process kept
	fleet    *fleet.Fleet
	// registry is who is in the fleet, by the configuration, what discovery finds
	// and what the admin API decided.
	registry  *fleet.Registry
	discovery *discover.Runner
	learner   *prompt.Learner // nil: nothing is learned of prompts
	router    *route.Router
	keeper    *keeper        // nil: nothing outlives the process
	traces    *otlp.Exporter // nil: none
	front     atomic.Pointer[front]
	data      net.Listener
	admin     net.Listener
	grace     time.Duration
	log       *slog.Logger
	level     *slog.LevelVar

	inForce atomic.Pointer[inForce]
}

// front is what serves requests that come now: a gateway and its admin side.
type front struct {
	gateway *gateway.Gateway
	admin   http.Handler
}

// newReplica puts a replica together and opens its listeners.
func newReplica(loaded *config.Loaded, sh *shell) (*replica, error) {
	if len(loaded.Config.Workers) == 0 && !loaded.Config.Discovery.Any() {
		return nil, errors.New("no workers: name at least one with --worker or in the configuration file, or where to find them (discovery), or try rhizome demo")
	}
	r := &replica{grace: loaded.Config.Grace, log: sh.log, level: sh.level}
	r.inForce.Store(&inForce{running: loaded, since: time.Now(), succeeded: true})
	if err := r.build(loaded.Config); err != nil {
		r.abandon()
		return nil, err
	}
	return r, nil
}

// build makes the parts, in the order of the house, and opens the listeners.
func (r *replica) build(cfg config.Config) (err error) {
	time, seed := clock.Real(), cmp.Or(cfg.Seed, uint64(time.Now().UnixNano()))
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), timeOfDay())

	cfg.Index.Seed, cfg.Approx.Seed, cfg.Route.Seed = seed, seed, seed
	prefixes, sent := index.New(cfg.Index), index.NewApprox(cfg.Approx)
	keep := &keeper{dir: state.Dir{Path: cfg.State.Dir, MaxBytes: cfg.State.MaxBytes}, log: r.log}
	if cfg.State.Dir != "" {
		r.before = keep.load()
	}
	if err := r.enterMesh(cfg, time, seed, registry); err != nil {
		return err
	}
	cfg.Fleet.Guard.Own = r.listensAt
	r.fleet, err = fleet.New(cfg.Fleet, fleet.Deps{Index: prefixes, Approx: sent, Clock: time, Log: r.log, Mesh: r.node,
		Heard: func(m *fleet.Member) { r.router.Examine(m) }, Tell: func() { r.router.Tell() }}, cfg.Workers, classOf)
	if err != nil {
		return err
	}
	r.registry = fleet.NewRegistry(r.fleet)
	r.discovery = &discover.Runner{Sink: r.registry.Sink}
	if err := r.discover(cfg); err != nil {
		return err
	}
	deps := route.Deps{Fleet: r.fleet, Index: prefixes, Approx: sent, Clock: time, Mesh: r.node}
	registry.MustRegister(newConfigMetrics(&r.inForce), r.fleet.Collector(), r.registry.Collector())
	if cfg.Prompt.Learn == prompt.On || cfg.Prompt.Tokenize == prompt.TokenizeEngine {
		deps.Learned = prompt.NewLearned(cfg.Prompt.MaxBytes)
		r.learner = prompt.NewLearner(cfg.Prompt, deps.Learned, prompt.LearnerDeps{Fleet: r.fleet, Clock: time, Log: r.log})
		registry.MustRegister(r.learner.Collector())
	}
	if cfg.State.Dir != "" {
		r.keeper, keep.learned, keep.leases = keep, deps.Learned, r.leases
		keep.beforeRouter(r.before, &cfg)
	}
	if r.leases != nil {
		deps.Leases = r.leases
	}
	r.router = route.New(cfg.Route, deps)
	if r.keeper != nil {
		keep.router = r.router
		keep.afterRouter(r.before, len(cfg.Route.Fits))
	}
	registry.MustRegister(r.router.Collector())
	host, _ := os.Hostname()
	name := cmp.Or(cfg.Name, host, "rhizome")
	var tracer trace.Tracer
	if cfg.Gateway.Trace.Endpoint != "" {
		if r.traces, err = otlp.New(context.Background(), cfg.Gateway.Trace, name, r.log); err != nil {
			return err
		}
		tracer = r.traces.Tracer()
	}
	door, err := gateway.New(cfg.Gateway, gateway.Deps{
		Decider: r.router, Queue: r.router, Models: func() []engine.Model { return r.fleet.View().Models() }, Ready: r.ready,
		Workers: func() any { return r.fleet.Describe() },
		Index:   func() any { return r.fleet.DescribeIndex() }, Discovery: func() any { return r.registry.Describe() },
		Node:    r.node,
		Process: r.fleet.Process,
		Mesh:    func() any { return r.node.State() },
		Streams: func() any { return r.node.Streams() },
		Leases:  func(limit int, after string, byKey bool) any { return r.leases.Describe(limit, after, byKey) },
		Config:  func() any { return r.inForce.Load().describe() },
		Explain: func(id string) (any, bool) { return r.router.Explain(id) }, Recent: func(n int) any { return r.router.Recent(n) }, Preview: r.router.Preview, Registry: r.registry,
		Told:    func(d *route.Decision, p *prompt.Request, ids []uint32) { r.learner.Told(p, d.RenderClass, ids) },
		Prepare: r.learner.Prepare, Placed: func(d *route.Decision, p *prompt.Request, path string, body []byte, again bool) {
			r.learner.Placed(p, d.Target.Worker, d.RenderClass, path, body, again)
		},
		Registerer: registry, Gatherer: registry, Log: r.log, Clock: time, Replica: name, Tracer: tracer,
	})
	if err != nil {
		return err
	}
	r.setFront(door)
	if r.data, err = net.Listen("tcp", cfg.Gateway.Listen); err != nil {
		return fmt.Errorf("open the data port: %w", err)
	}
	if r.admin, err = net.Listen("tcp", cfg.Gateway.Admin.Listen); err != nil {
		return fmt.Errorf("open the admin port: %w", err)
	}
	return nil
}

// abandon lets go of what build made before it failed.
func (r *replica) abandon() {
	if r.data != nil {
		r.data.Close()
	}
	if r.traces != nil {
		r.traces.Close()
	}
	if r.endpoint != nil {
		if err := r.endpoint.Close(); err != nil {
			r.log.Warn("close the mesh's port", "err", err)
		}
	}
}

// ready says why this replica should get no traffic yet.
func (r *replica) ready() error {
	if err := r.node.Ready(); err != nil {
		return err
	}
	return r.registry.Ready()
}

// setFront has g serve the requests that come from now on.
func (r *replica) setFront(g *gateway.Gateway) { r.front.Store(&front{g, g.Admin()}) }

// run serves until ctx ends and everything it started has returned. The front
// door closes first, so that running requests still find the rest of the house
// alive; the admin port and the fleet close when it is done. The mesh is left
// last: until then peers hear of everything this replica does, and have what it
// read by the time that others take over its reading.
func (r *replica) run(ctx context.Context) error {
	inMesh, leaveMesh := context.WithCancel(context.WithoutCancel(ctx))
	defer leaveMesh()
	member := make(chan error, 1)
	go func() {
		err := r.node.Run(inMesh)
		if err != nil {
			r.log.Error("not in the mesh", "err", err)
		}
		member <- err
	}()
	house, closeHouse := context.WithCancel(context.WithoutCancel(ctx))
	defer closeHouse()
	var wg sync.WaitGroup
	var adminErr error
	wg.Go(func() { r.fleet.Run(house) })
	if r.leases != nil {
		wg.Go(func() {
			if err := r.leases.Run(house); err != nil {
				r.log.Warn("leases ended badly", "err", err)
			}
		})
	}
	wg.Go(func() { r.registry.Run(house) })
	wg.Go(func() { r.discovery.Run(house) })
	if r.learner != nil {
		wg.Go(func() { r.learner.Run(house) })
	}
	if r.keeper != nil {
		wg.Go(func() { r.keeper.run(house) })
	}
	wg.Go(func() {
		admin := http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) { r.front.Load().admin.ServeHTTP(w, q) })
		if adminErr = gateway.Serve(house, r.admin, admin, r.grace, r.log); adminErr != nil {
			r.log.Error("admin port", "err", adminErr)
		}
	})
	settings := r.inForce.Load().running.Config.Gateway
	scheme := "http://"
	if settings.TLS.Cert != "" {
		scheme = "https://"
	}
	r.log.Info("serving", "data", scheme+r.data.Addr().String(), "admin", "http://"+r.admin.Addr().String())
	context.AfterFunc(ctx, func() {
		r.log.Info("ending: no new requests", "grace", r.grace)
		r.front.Load().gateway.Drain()
	})
	data := http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) { r.front.Load().gateway.ServeHTTP(w, q) })
	err := settings.Serve(ctx, r.data, data, r.grace, r.log)
	if errors.Is(err, gateway.ErrCutOff) {
		r.log.Warn("ended as asked", "err", err)
		err = nil // a supervisor must not take it for a crash
	}
	r.front.Load().gateway.Close()
	closeHouse()
	wg.Wait()
	if r.traces != nil {
		r.traces.Close()
	}
	leaveMesh()
	return errors.Join(err, adminErr, <-member)
}

// classOf returns the constants to assume for a worker: those of the preset it
// names, or generic ones whose scale is learned.
func classOf(spec engine.Spec) (cost.Class, error) {
	class := cost.Generic()
	var err error
	if spec.Admit != "" {
		if class.Admit, err = cost.ParseAdmission(spec.Admit); err != nil {
			return class, fmt.Errorf("worker %s: admit: %w", spec.URL, err)
		}
	}
	if spec.Load != "" {
		if class.LoadPolicy, class.LoadLeastTokens, err = cost.ParseLoadPolicy(spec.Load); err != nil {
			return class, fmt.Errorf("worker %s: load: %w", spec.URL, err)
		}
	}
	class.TokensPerStep = max(1, spec.TokensPerStep)
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
