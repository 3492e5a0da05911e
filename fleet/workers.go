package fleet

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/rhizome-router/rhizome/engine"
	"github.com/rhizome-router/rhizome/engine/discover"
	"github.com/rhizome-router/rhizome/kv"
)

// worker is one worker's supervision: its members and what it last said.
type worker struct {
	*engine.Worker
	members []*Member
	models  []engine.Model // as last listed; kept while it is down
	// twin is the worker that turned out to be this one under another name and
	// goes before it, so that this one is left out of the view; mostly nil.
	twin *worker
	// want is how the worker came to be here; guarded by Fleet.mu.
	want Wanted

	stop context.CancelFunc // ends its supervision; nil while that doesn't run
	// after is closed when the worker that had this one's name before it is
	// gone, with all that was known of it; nil where there was none.
	after <-chan struct{}
	gone  chan struct{} // closed when this one is
}

func (w *worker) setHealthy(healthy bool) {
	for _, m := range w.members {
		m.SetHealthy(healthy)
	}
}

// crew is who is in the fleet and what runs for them, guarded by Fleet.mu.
type crew struct {
	workers []*worker
	whole   bool            // nobody has still to tell of others
	run     context.Context // of Run; nil while it doesn't run
	wg      sync.WaitGroup  // supervisions
	leaving map[kv.WorkerID]<-chan struct{}
}

// Wanted is one worker that is to be in the fleet.
type Wanted struct {
	discover.Found
	// Sources are the names of those who found it.
	Sources []string
}

// SetWorkers makes specs the workers of the fleet; see Assign.
func (f *Fleet) SetWorkers(specs []engine.Spec) error {
	wanted := make([]Wanted, len(specs))
	for i, s := range specs {
		wanted[i].Spec = s
	}
	return f.Assign(wanted, true)
}

// Assign makes wanted the workers of the fleet. whole says that there are no
// others that somebody may not have told of yet: until then a model that nobody
// serves may still exist.
//
// A worker whose spec and instance are the same as before, but for its token,
// stays as it is and goes on with the new token. One that is no more wanted, or
// is with a different spec or instance, leaves the view at once, so that nothing
// new is sent there; requests in flight end as they would have, on the old
// member. What was known of it is forgotten once its goroutines have ended. One
// that comes back, or has changed, starts anew: unhealthy, without bookings, its
// cache unknown. One that is draining stays known, and gets nothing new.
//
// An error says which spec can't be used, and nothing has changed then.
// Assign may be called before, while and after Run runs.
func (f *Fleet) Assign(wanted []Wanted, whole bool) error {
	f.changing.Lock()
	defer f.changing.Unlock()
	f.mu.Lock()
	old := f.crew.workers
	f.mu.Unlock()
	next, err := f.hire(old, wanted)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.crew.whole = whole
	f.swap(next)
	return nil
}

// swap makes next the workers, publishes that, ends those that are no more
// among them and has the new ones watched. It needs changing and mu.
func (f *Fleet) swap(next []*worker) {
	old := f.crew.workers
	f.crew.workers = next
	was, is := setOf(old), setOf(next)
	for _, w := range next {
		if w.twin != nil && !is[w.twin] {
			w.twin = nil // it is itself again once it was asked
		}
	}
	f.publish()
	for _, w := range old {
		if !is[w] {
			f.dismiss(w)
		}
	}
	for _, w := range next {
		if !was[w] {
			w.after = f.crew.leaving[w.ID]
			f.start(w)
		}
	}
}

// renew has a worker start anew, as one whose instance has changed does. It
// does nothing to one that is no more in the fleet.
func (f *Fleet) renew(w *worker) {
	f.changing.Lock()
	defer f.changing.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	i := slices.Index(f.crew.workers, w)
	if i < 0 {
		return
	}
	fresh, err := f.newWorker(w.want)
	if err != nil { // it was made of the same before
		f.deps.Log.Error("worker can't start anew", "worker", w.Spec.URL, "err", err)
		return
	}
	next := slices.Clone(f.crew.workers)
	next[i] = fresh
	f.swap(next)
}

func setOf(workers []*worker) map[*worker]bool {
	set := make(map[*worker]bool, len(workers))
	for _, w := range workers {
		set[w] = true
	}
	return set
}

// Run watches the workers until ctx ends and every goroutine has returned.
func (f *Fleet) Run(ctx context.Context) {
	f.mu.Lock()
	f.crew.run = ctx
	for _, w := range f.crew.workers {
		f.start(w)
	}
	f.mu.Unlock()
	if f.deps.Mesh != nil {
		f.exchange(ctx)
	} else {
		f.keepLogs(ctx)
	}
	f.mu.Lock()
	f.crew.run = nil // nobody is started any more
	f.mu.Unlock()
	f.crew.wg.Wait()
}

// hire returns the workers of wanted: those of old that fit, and new ones. A
// worker named twice is one.
func (f *Fleet) hire(old []*worker, wanted []Wanted) ([]*worker, error) {
	before := make(map[kv.WorkerID]*worker, len(old))
	for _, w := range old {
		before[w.ID] = w
	}
	seen := make(map[kv.WorkerID]bool, len(wanted))
	var next []*worker
	stay := make(map[*worker]Wanted, len(old))
	var hired []*worker
	for _, want := range wanted {
		var err error
		if want.Spec, err = want.Spec.Canonical(); err != nil {
			f.fire(hired)
			return nil, fmt.Errorf("worker: %w", err)
		}
		id := kv.WorkerIDOf(f.cfg.Cluster, want.Spec.Name())
		if seen[id] {
			continue
		}
		seen[id] = true
		if b := before[id]; b != nil && b.is(want) {
			next, stay[b] = append(next, b), want
			continue
		}
		w, err := f.newWorker(want)
		if err != nil {
			f.fire(hired)
			return nil, err
		}
		next, hired = append(next, w), append(hired, w)
	}
	// Nothing can fail any more.
	f.mu.Lock()
	defer f.mu.Unlock()
	for w, want := range stay { // order-free: each by itself
		if want.Instance == "" {
			want.Instance = w.want.Instance
		}
		w.want = want
		w.SetToken(want.Spec.Token)
		w.members[0].Circuit.SetDraining(want.Draining)
	}
	return next, nil
}

// is reports whether w is what is wanted, but for its token. An instance that
// the source can't tell says nothing.
func (w *worker) is(want Wanted) bool {
	token := want.Spec.Token
	want.Spec.Token = ""
	same := w.Spec == want.Spec
	want.Spec.Token = token
	return same && (w.want.Instance == "" || want.Instance == "" || w.want.Instance == want.Instance)
}

// newWorker makes a worker that nobody watches yet.
func (f *Fleet) newWorker(want Wanted) (*worker, error) {
	w, err := f.cfg.Guard.NewWorker(f.cfg.Cluster, want.Spec)
	if err != nil {
		return nil, err
	}
	class, err := f.class(w.Spec)
	if err != nil {
		return nil, err
	}
	n := &worker{Worker: w, want: want, gone: make(chan struct{})}
	n.members = f.newMembers(w, class, engine.Identity{Ranks: w.Spec.Ranks})
	n.members[0].Circuit.SetDraining(want.Draining)
	return n, nil
}

// fire gives back what workers that were never in the fleet hold of the index.
func (f *Fleet) fire(hired []*worker) {
	for _, w := range hired {
		for _, m := range w.members {
			f.deps.Index.Drop(m.Cache().Slot)
		}
	}
}

// start has a worker watched, if Run runs; else Run will. It needs mu.
func (f *Fleet) start(w *worker) {
	if f.crew.run == nil {
		return
	}
	ctx, stop := context.WithCancel(f.crew.run)
	w.stop = stop
	f.crew.wg.Go(func() {
		defer stop()
		if w.after != nil { // two must not follow the same events at once
			<-w.after
		}
		f.supervise(ctx, w)
		if f.ended(w) {
			f.deps.Index.Sweep(math.MaxInt) // nothing else may come by for long
		}
	})
}

// ended takes note of the end of a worker's supervision. It reports whether the
// worker had been taken out, and was forgotten with that.
func (f *Fleet) ended(w *worker) (forgotten bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	w.stop = nil
	if slices.Contains(f.crew.workers, w) {
		return false
	}
	f.forget(w)
	return true
}

// dismiss ends a worker that is in the view no more, and sees to it that what
// was known of it is forgotten when its goroutines have ended. It needs mu.
func (f *Fleet) dismiss(w *worker) {
	f.crew.leaving[w.ID] = w.gone
	if w.stop == nil { // nobody watched it
		f.forget(w)
		return
	}
	w.stop()
}

// forget drops what the index and the logs hold of a worker whose goroutines
// have ended. It needs mu.
func (f *Fleet) forget(w *worker) {
	for _, m := range w.members {
		f.leaveStream(m.Target)
	}
	for _, m := range w.members {
		slot := m.Cache().Slot
		f.deps.Index.Drop(slot)
		f.deps.Approx.Drop(slot)
	}
	w.Close()
	close(w.gone)
	if f.crew.leaving[w.ID] == w.gone {
		delete(f.crew.leaving, w.ID)
	}
}
