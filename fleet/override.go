package fleet

import (
	"errors"
	"fmt"
	"slices"

	"github.com/rhizome-router/rhizome/engine"
	"github.com/rhizome-router/rhizome/engine/discover"
	"github.com/rhizome-router/rhizome/kv"
)

// ErrTooManyDecisions says that the admin API decided on too many workers.
var ErrTooManyDecisions = errors.New("too many workers were added, removed and drained: take some back (POST /workers, DELETE /workers/{id}/drain)")

// Add has a worker be in the fleet, whatever the configuration and the sources
// say, and undoes its removal. It takes the place of one of the same name that
// was added before. One that was removed, is still listed and of which spec says
// nothing but where it is, is again as it is listed. The error says what can't
// be used of the spec.
func (r *Registry) Add(spec engine.Spec) (kv.WorkerID, error) {
	spec, err := r.fleet.vet(spec)
	if err != nil {
		return 0, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if id, ok := r.restore(spec); ok {
		return id, r.assign()
	}
	if r.decisions() >= discover.MaxWorkers {
		return 0, ErrTooManyDecisions
	}
	before := r.added
	r.added = slices.DeleteFunc(slices.Clone(r.added), func(f discover.Found) bool { return f.Spec.Name() == spec.Name() || f.Spec.URL == spec.URL })
	r.added = append(r.added, discover.Found{Spec: spec})
	id := r.fleet.idOf(spec)
	was := r.removed[id]
	delete(r.removed, id)
	if err := r.assign(); err != nil {
		r.added = before
		if was {
			r.removed[id] = true
		}
		return 0, err
	}
	r.fleet.deps.Log.Info("worker added by the admin API", "worker", spec.URL, "id", id)
	return id, nil
}

// restore undoes the removal of a listed worker at the URL of a spec that says
// nothing else. It needs mu.
func (r *Registry) restore(spec engine.Spec) (kv.WorkerID, bool) {
	if spec != (engine.Spec{URL: spec.URL, Ranks: 1}) {
		return 0, false
	}
	layers := [][]discover.Found{r.static}
	for _, name := range r.order {
		layers = append(layers, r.sources[name].found)
	}
	layers = append(layers, r.peers.found)
	var first kv.WorkerID
	found := false
	for _, f := range slices.Concat(layers...) {
		id := r.fleet.idOf(f.Spec)
		if f.Spec.URL != spec.URL || !r.removed[id] {
			continue
		}
		delete(r.removed, id)
		if !found {
			first, found = id, true
			r.fleet.deps.Log.Info("worker taken back by the admin API", "worker", spec.URL, "id", id)
		}
	}
	return first, found
}

// Remove has a worker leave: it gets nothing new from now on, what it has in
// flight ends as it would have, and what is known of it is forgotten. It stays
// away though the configuration or a source lists it, until it is added again.
func (r *Registry) Remove(id kv.WorkerID) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.IndexFunc(r.present, func(w Wanted) bool { return r.fleet.idOf(w.Spec) == id })
	if i < 0 {
		return ErrNoWorker
	}
	gone := r.present[i]
	ours := func(f discover.Found) bool { return f.Spec.Name() == gone.Spec.Name() }
	if !slices.Equal(gone.Sources, []string{fromAdmin}) {
		if r.decisions() >= discover.MaxWorkers {
			return ErrTooManyDecisions
		}
		r.removed[id] = true
	}
	r.added = slices.DeleteFunc(r.added, ours)
	delete(r.drained, id)
	// A source may know it by another name: that one must not take its place.
	for _, w := range r.merge() {
		if w.Spec.URL == gone.Spec.URL {
			r.removed[r.fleet.idOf(w.Spec)] = true
		}
	}
	r.fleet.deps.Log.Info("worker removed by the admin API", "worker", gone.Spec.URL, "id", id)
	return r.assign()
}

// SetDraining has a worker get nothing new, or get it again unless its source
// says that it drains.
func (r *Registry) SetDraining(id kv.WorkerID, draining bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.ContainsFunc(r.present, func(w Wanted) bool { return r.fleet.idOf(w.Spec) == id }) {
		return ErrNoWorker
	}
	if !draining {
		delete(r.drained, id)
	} else if !r.drained[id] {
		if r.decisions() >= discover.MaxWorkers {
			return ErrTooManyDecisions
		}
		r.drained[id] = true
	}
	if err := r.assign(); err != nil {
		return fmt.Errorf("drain a worker: %w", err)
	}
	return nil
}

// decisions counts what the admin API decided. It needs mu.
func (r *Registry) decisions() int { return len(r.added) + len(r.removed) + len(r.drained) }
