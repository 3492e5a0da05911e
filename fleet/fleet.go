package fleet

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/cost"
	"github.com/rhizome-router/rhizome/engine"
	"github.com/rhizome-router/rhizome/engine/discover"
	"github.com/rhizome-router/rhizome/index"
	"github.com/rhizome-router/rhizome/kv"
	"github.com/rhizome-router/rhizome/mesh"
	"github.com/rhizome-router/rhizome/mesh/core"
)

// Deps are what a Fleet works on.
type Deps struct {
	Index  *index.Index
	Approx *index.Approx
	Clock  clock.Clock
	Log    *slog.Logger
	// Resolver looks up the names of workers; nil: the system's.
	Resolver discover.Resolver
	// Mesh is what replicas share, on the same Clock; nil for a replica that is
	// alone. The fleet is to be made before it runs.
	Mesh *mesh.Node
	// Heard is called when a member's metrics were read; may be nil.
	Heard func(*Member)
	// Tell is called every few milliseconds while Run runs, where there is a
	// Mesh: to put on its pages what peers should know; may be nil.
	Tell func()
}

// Fleet watches the workers.
type Fleet struct {
	cfg  Config
	deps Deps
	view atomic.Pointer[View]
	mesh *mesh.Node
	// What follows is used within Do of the mesh only.
	core      *core.Core
	followers map[kv.Target]*follower
	told      map[kv.Target]map[core.Replica][]byte // what readers found out: see hearCache
	boots     uint64                                // made up here

	shares sharePages

	readers bell // rings when other replicas may read which events

	class func(engine.Spec) (cost.Class, error)

	changing sync.Mutex // held by SetWorkers; taken before mu
	mu       sync.Mutex // guards what View is made from
	crew     crew

	began clock.Instant
	warm  atomic.Bool // Ready was nil once
}

// New returns a fleet of the given workers, all unhealthy until Run has asked
// them. class tells the constants to assume for a worker.
func New(cfg Config, deps Deps, specs []engine.Spec, class func(engine.Spec) (cost.Class, error)) (*Fleet, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("fleet: %w", err)
	}
	if deps.Resolver == nil {
		deps.Resolver = net.DefaultResolver
	}
	f := &Fleet{cfg: cfg.WithDefaults(), deps: deps, class: class, began: deps.Clock.Now()}
	f.crew.leaving = make(map[kv.WorkerID]<-chan struct{})
	if err := f.enter(deps.Mesh); err != nil {
		return nil, err
	}
	if err := f.SetWorkers(specs); err != nil {
		return nil, err
	}
	return f, nil
}

// newMembers makes one member a rank, or a single one where there is but one.
func (f *Fleet) newMembers(w *engine.Worker, class cost.Class, id engine.Identity) []*Member {
	var members []*Member
	ranks := max(1, id.Ranks)
	for rank := range ranks {
		t := kv.Target{Worker: w.ID, Rank: int16(rank)}
		if ranks == 1 {
			t.Rank = kv.NoRank
		}
		members = append(members, NewMember(t, w, class, f.deps.Index.Open(ruleOf(id))))
		members[rank].Circuit = members[0].Circuit
	}
	return members
}

// Process names the process that a target's worker runs: see Member.Process. It
// is empty for a target that is not in the fleet.
func (f *Fleet) Process(t kv.Target) string {
	for _, m := range f.View().Members {
		if m.Target == t {
			return m.Process()
		}
	}
	return ""
}

// View returns the present picture. It never changes; ask again for a newer.
func (f *Fleet) View() *View { return f.view.Load() }

// publish makes a new View of what the workers said. It needs mu.
func (f *Fleet) publish() {
	var members []*Member
	var served []Served
	for _, w := range f.crew.workers {
		if w.twin != nil {
			continue
		}
		members = append(members, w.members...)
		for _, m := range w.models {
			served = append(served, Served{m, w.members})
		}
	}
	v := NewView(members, served)
	v.pending = !f.crew.whole || slices.ContainsFunc(f.crew.workers, func(w *worker) bool { return w.models == nil && w.twin == nil })
	f.view.Store(v)
	if f.deps.Mesh != nil {
		f.shares.show(members)
	}
}

// supervise asks one worker for its models until ctx ends. Once it has named
// them and said what it is, it is scraped and its events are followed.
func (f *Fleet) supervise(ctx context.Context, w *worker) {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { f.watchName(ctx, w) })
	following, told, answered := false, false, false
	events := make(eventsWatch)
	for {
		heard := w.Heard()
		models, err := f.probe(ctx, w)
		if err != nil && answered && lives(w.Worker, heard, err) {
			models, err = w.models, nil
		}
		healthy := err == nil && len(models) > 0
		if !healthy {
			w.setHealthy(false)
		}
		switch {
		case told && answered == healthy: // nothing new
		case healthy:
			f.deps.Log.Info("worker answers", "worker", w.Spec.URL)
		case ctx.Err() == nil:
			f.deps.Log.Warn("worker does not answer", "worker", w.Spec.URL, "err", err)
		}
		told, answered = true, healthy
		if healthy && !following {
			if id, ok := f.identify(ctx, w); ok {
				following = true
				var inlets []*Inlet
				for _, m := range w.members {
					in := f.inlet(m, id)
					inlets = append(inlets, in)
					wg.Go(func() { f.follow(ctx, w, in, id, models[0].ID) })
				}
				wg.Go(func() { f.scrape(ctx, w, inlets) })
			}
		}
		if healthy && !slices.Equal(models, w.models) {
			f.mu.Lock()
			w.models = models // never empty
			f.publish()
			f.mu.Unlock()
		}
		if healthy {
			events.look(f.deps.Clock.Now(), f.cfg.WarmUp, w.members, f.deps.Log)
		}
		if healthy { // what it serves is known by now
			w.setHealthy(true)
		}
		pause := f.cfg.ProbeInterval
		if !healthy || !following && !f.hasTwin(w) {
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

// identify asks a worker what it is. A worker that turns out to have several
// data-parallel ranks, which nobody configured, gets a member for each.
func (f *Fleet) identify(ctx context.Context, w *worker) (engine.Identity, bool) {
	id, err := w.Detect(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return id, false
		}
		f.deps.Log.Warn("worker does not say what it is; asking again", "worker", w.Spec.URL, "err", err)
		return id, false
	}
	if f.isTwin(w) {
		return id, false
	}
	f.deps.Log.Info("worker identified", "worker", w.Spec.URL, "engine", id.Engine, "version", id.Version, "ranks", id.Ranks,
		"block_tokens", id.BlockTokens, "events", id.Events, "guessed", id.Guessed)
	if id.ApproximateReason != "" {
		f.deps.Log.Warn("worker's cache is guessed from what is sent to it", "worker", w.Spec.URL, "why", id.ApproximateReason)
	}
	if id.Guessed && f.claimed(w, id.Events) {
		f.deps.Log.Warn("the events found at the default port are another worker's; name this one's with events=", "worker", w.Spec.URL, "events", id.Events)
		id.Events, id.Replay = "", ""
	}
	if w.Spec.Ranks > 1 && id.Ranks > 0 && id.Ranks != w.Spec.Ranks {
		f.deps.Log.Warn("worker has another number of data-parallel ranks than its dp= says", "worker", w.Spec.URL, "dp", w.Spec.Ranks, "ranks", id.Ranks)
	}
	if len(w.members) == 1 && id.Ranks > 1 {
		single := w.members[0]
		f.mu.Lock()
		w.members = f.newMembers(w.Worker, single.Class, id)
		for _, m := range w.members {
			m.Circuit = single.Circuit // whether it drains, and what is in flight, stays
			m.SetHealthy(true)
		}
		f.publish()
		f.mu.Unlock()
		f.deps.Index.Drop(single.Cache().Slot)
		return id, true
	}
	for _, m := range w.members {
		if rule := ruleOf(id); rule != index.HBMThenOneTier {
			c := m.Cache()
			f.newSlot(m, &c, rule)
		}
	}
	return id, true
}

// claimed reports whether another worker has these events: by its
// specification, or because it was asked before.
func (f *Fleet) claimed(w *worker, events string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.ContainsFunc(f.crew.workers, func(o *worker) bool {
		id, _ := o.Identity()
		return o != w && (o.Spec.Events == events || id.Events == events)
	})
}

// scrape reads one worker's metrics until ctx ends. A failed scrape keeps the
// old values, which age.
func (f *Fleet) scrape(ctx context.Context, w *worker, inlets []*Inlet) {
	var boot bootWatch
	told := false
	for {
		scrapeCtx, cancel := context.WithTimeout(ctx, f.cfg.ProbeTimeout)
		t, err := w.Scrape(scrapeCtx)
		cancel()
		now := f.deps.Clock.Now()
		if err != nil {
			f.deps.Log.Debug("scrape failed", "worker", w.Spec.URL, "err", err)
		} else {
			restarted, before := boot.observe(now, t.ProcessStartSeconds)
			if boot.several && !told {
				told = true
				f.deps.Log.Warn("several engines answer under one address, as behind a Service or a balancer: their caches can't be told apart; "+
					"name each worker, or find them by discovery", "worker", w.Spec.URL)
			}
			process := t.ProcessStartSeconds
			if boot.several {
				process = engine.Value{} // any of them may answer next
			}
			for _, in := range inlets {
				in.Member.SetProcess(process)
				if restarted {
					f.restarted(in.Member, before)
				}
				if in.follower != nil {
					in.follower.scraped(t.ProcessStartSeconds)
				}
				in.Scraped(now, t.Rank(int(in.Member.Target.Rank)))
			}
		}
		if f.deps.Clock.Sleep(ctx, f.cfg.ScrapeInterval) != nil {
			return
		}
	}
}

// bootWatch notices a new process behind a worker's address.
type bootWatch struct {
	started engine.Value
	at      clock.Instant // last seen with that start
	// several says that a process older than the one before answered: that is no
	// restart, there is more than one.
	several bool
}

// observe reports whether the process is another one than last time, and when
// the former one was seen last.
func (b *bootWatch) observe(now clock.Instant, started engine.Value) (restarted bool, before clock.Instant) {
	restarted, before = b.started.Known && started.Known && b.started != started, b.at
	if started.Known {
		b.several = b.several || restarted && started.Value < b.started.Value
		b.started, b.at = started, now
	}
	return restarted, before
}

// restarted empties a member whose process is a new one, unless its feed has
// noticed that by itself since the former process was seen last. Where events
// are followed the feed will reset the cache in its own time; until then what
// is known of it is not to be used.
func (f *Fleet) restarted(m *Member, before clock.Instant) {
	c := m.Cache()
	if c.Known == ByEvents {
		if c.FreshAt < before {
			m.SetOutdated(true)
		}
		return
	}
	f.deps.Log.Info("worker restarted", "worker", m.Worker.Spec.URL)
	f.newSlot(m, &c, index.HBMThenOneTier)
}
