package fleet

import (
	"context"
	"math"
	"reflect"
	"slices"
	"sync"

	"github.com/rhizome-router/rhizome/cost"
	"github.com/rhizome-router/rhizome/crdt"
	"github.com/rhizome-router/rhizome/engine"
	"github.com/rhizome-router/rhizome/kv"
)

// worker is one worker's supervision: its members and what it last said.
type worker struct {
	*engine.Worker
	members []*Member
	models  []engine.Model // as last listed; kept while it is down

	stop context.CancelFunc // ends its supervision; nil while that doesn't run
	// after is closed when the worker that had this one's name before it is
	// gone, with all that was known of it; nil where there was none.
	after <-chan struct{}
	gone  chan struct{} // closed when this one is
}

// crew is who is in the fleet and what runs for them, guarded by Fleet.mu.
type crew struct {
	workers []*worker
	run     context.Context // of Run; nil while it doesn't run
	wg      sync.WaitGroup  // supervisions
	leaving map[kv.WorkerID]<-chan struct{}
}

// SetWorkers makes specs the workers of the fleet. A worker whose spec is the
// same as before, but for its token, stays as it is and goes on with the new
// token. One that is no more in specs, or is with a different spec, leaves the
// view at once, so that nothing new is sent there; requests in flight end as
// they would have, on the old member. What was known of it is forgotten once
// its goroutines have ended. One that comes back, or has changed, starts anew:
// unhealthy, without bookings, its cache unknown.
//
// An error says which spec can't be used, and nothing has changed then.
// SetWorkers may be called before, while and after Run runs.
func (f *Fleet) SetWorkers(specs []engine.Spec) error {
	f.changing.Lock()
	defer f.changing.Unlock()
	f.mu.Lock()
	old := f.crew.workers
	f.mu.Unlock()
	next, err := f.hire(old, specs)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.crew.workers = next
	f.publish()
	was, is := setOf(old), setOf(next)
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
	return nil
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
	<-ctx.Done()
	f.mu.Lock()
	f.crew.run = nil // nobody is started any more
	f.mu.Unlock()
	f.crew.wg.Wait()
}

// hire returns the workers of specs: those of old that fit, and new ones. A
// worker named twice is one.
func (f *Fleet) hire(old []*worker, specs []engine.Spec) ([]*worker, error) {
	before := make(map[kv.WorkerID]*worker, len(old))
	for _, w := range old {
		before[w.ID] = w
	}
	seen := make(map[kv.WorkerID]bool, len(specs))
	var next, fresh []*worker
	tokens := make(map[*worker]string, len(old))
	var classes []cost.Class // of fresh
	for _, spec := range specs {
		w, err := f.cfg.Guard.NewWorker(f.cfg.Cluster, spec)
		if err != nil {
			return nil, err
		}
		if seen[w.ID] {
			continue
		}
		seen[w.ID] = true
		if b := before[w.ID]; b != nil && reflect.DeepEqual(b.Spec, w.Spec) {
			next, tokens[b] = append(next, b), spec.Token
			continue
		}
		class, err := f.class(w.Spec)
		if err != nil {
			return nil, err
		}
		n := &worker{Worker: w, gone: make(chan struct{})}
		next, fresh, classes = append(next, n), append(fresh, n), append(classes, class)
	}
	// Nothing can fail any more.
	for w, token := range tokens { // order-free: each by itself
		w.SetToken(token)
	}
	for i, w := range fresh {
		w.members = f.newMembers(w.Worker, classes[i], engine.Identity{Ranks: w.Spec.Ranks})
	}
	return next, nil
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
	f.logs.mu.Lock()
	for _, m := range w.members {
		id := crdt.StreamID{Target: m.Target, Source: crdt.Engine}
		f.logs.log.Close(id)
		delete(f.logs.slots, id)
	}
	f.logs.mu.Unlock()
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
