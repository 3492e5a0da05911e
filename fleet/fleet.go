package fleet

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/cost"
	"github.com/rhizome-router/rhizome/engine"
	"github.com/rhizome-router/rhizome/index"
	"github.com/rhizome-router/rhizome/kv"
)

// Config says how often the fleet looks at its workers. The zero value takes
// the defaults.
type Config struct {
	// Cluster is part of every worker's global id. Default "default".
	Cluster string
	// ScrapeInterval is the time between two looks at a worker's metrics.
	// Default 1 s.
	ScrapeInterval time.Duration
	// ProbeInterval is the time between two questions for a worker's models,
	// while it answers. Default 2 s.
	ProbeInterval time.Duration
	// RetryInterval is the same while it doesn't. Default 500 ms.
	RetryInterval time.Duration
	// ProbeTimeout bounds one question. Default 2 s.
	ProbeTimeout time.Duration
}

func (c Config) withDefaults() Config {
	c.Cluster = cmp.Or(c.Cluster, "default")
	c.ScrapeInterval = cmp.Or(c.ScrapeInterval, time.Second)
	c.ProbeInterval = cmp.Or(c.ProbeInterval, 2*time.Second)
	c.RetryInterval = cmp.Or(c.RetryInterval, 500*time.Millisecond)
	c.ProbeTimeout = cmp.Or(c.ProbeTimeout, 2*time.Second)
	return c
}

// Deps are what a Fleet works on.
type Deps struct {
	Index  *index.Index
	Approx *index.Approx
	Clock  clock.Clock
	Log    *slog.Logger
}

// Fleet watches the workers.
type Fleet struct {
	cfg  Config
	deps Deps
	view atomic.Pointer[View]

	mu      sync.Mutex // guards what View is made from
	workers []*worker
}

// worker is one worker's supervision: its members and what it last said.
type worker struct {
	*engine.Worker
	members []*Member
	models  []engine.Model // as last listed; kept while it is down
}

// New returns a fleet of the given workers, all unhealthy until Run has asked
// them. class tells the constants to assume for a worker.
func New(cfg Config, deps Deps, specs []engine.Spec, class func(engine.Spec) (cost.Class, error)) (*Fleet, error) {
	f := &Fleet{cfg: cfg.withDefaults(), deps: deps}
	seen := make(map[kv.WorkerID]bool)
	for _, spec := range specs {
		w, err := engine.NewWorker(f.cfg.Cluster, spec)
		if err != nil {
			return nil, err
		}
		if seen[w.ID] {
			continue // named twice is one worker
		}
		seen[w.ID] = true
		constants, err := class(spec)
		if err != nil {
			return nil, err
		}
		f.workers = append(f.workers, &worker{Worker: w, members: f.newMembers(w, constants)})
	}
	f.publish()
	return f, nil
}

// newMembers makes one member a rank, or a single one where ranks can't be
// told apart.
func (f *Fleet) newMembers(w *engine.Worker, class cost.Class) []*Member {
	var members []*Member
	ranks := max(1, w.Spec.Ranks)
	for rank := range ranks {
		t := kv.Target{Worker: w.ID, Rank: int16(rank)}
		if ranks == 1 {
			t.Rank = kv.NoRank
		}
		members = append(members, NewMember(t, w, class, f.deps.Index.Open(index.HBMThenOneTier)))
	}
	return members
}

// View returns the present picture. It never changes; ask again for a newer.
func (f *Fleet) View() *View { return f.view.Load() }

// publish makes a new View of what the workers said.
func (f *Fleet) publish() {
	var members []*Member
	var served []Served
	for _, w := range f.workers {
		members = append(members, w.members...)
		for _, m := range w.models {
			served = append(served, Served{m, w.members})
		}
	}
	f.view.Store(NewView(members, served))
}

// Run watches the workers until ctx ends and every goroutine has returned.
func (f *Fleet) Run(ctx context.Context) {
	var wg sync.WaitGroup
	for _, w := range f.workers {
		wg.Go(func() { f.supervise(ctx, w) })
	}
	wg.Wait()
}

// supervise asks one worker for its models until ctx ends. Once it has named
// them, it is scraped and its events are followed.
func (f *Fleet) supervise(ctx context.Context, w *worker) {
	var wg sync.WaitGroup
	defer wg.Wait()
	following := false
	for {
		models, err := f.probe(ctx, w)
		healthy := err == nil && len(models) > 0
		for _, m := range w.members {
			if m.SetHealthy(healthy) {
				f.deps.Log.Info("worker health", "worker", w.Spec.URL, "healthy", healthy, "err", err)
			}
		}
		if healthy && !slices.Equal(models, w.models) {
			f.mu.Lock()
			w.models = models
			f.publish()
			f.mu.Unlock()
		}
		if healthy && !following {
			following = true
			wg.Go(func() { f.scrape(ctx, w) })
			for _, m := range w.members {
				wg.Go(func() { f.follow(ctx, w, m, models[0].ID) })
			}
		}
		pause := f.cfg.ProbeInterval
		if !healthy || !w.members[0].Healthy() {
			pause = f.cfg.RetryInterval
		}
		if f.deps.Clock.Sleep(ctx, pause) != nil {
			return
		}
	}
}

func (f *Fleet) probe(ctx context.Context, w *worker) ([]engine.Model, error) {
	ctx, cancel := context.WithTimeout(ctx, f.cfg.ProbeTimeout)
	defer cancel()
	return w.Models(ctx)
}

// scrape reads one worker's metrics until ctx ends. A failed scrape keeps the
// old values.
func (f *Fleet) scrape(ctx context.Context, w *worker) {
	for {
		scrapeCtx, cancel := context.WithTimeout(ctx, f.cfg.ProbeTimeout)
		t, err := w.Scrape(scrapeCtx)
		cancel()
		if err != nil {
			f.deps.Log.Debug("scrape failed", "worker", w.Spec.URL, "err", err)
		} else {
			for _, m := range w.members {
				m.signals.Store(&t)
			}
		}
		if f.deps.Clock.Sleep(ctx, f.cfg.ScrapeInterval) != nil {
			return
		}
	}
}
