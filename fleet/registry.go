package fleet

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/engine"
	"github.com/rhizome-router/rhizome/engine/discover"
	"github.com/rhizome-router/rhizome/kv"
	"github.com/rhizome-router/rhizome/mesh/core"
)

// ErrNoWorker says that no worker has the id.
var ErrNoWorker = errors.New("no worker has this id")

// The names of the sources that are none of discover's.
const (
	fromAdmin  = "admin"
	fromStatic = "config"
	fromPeers  = "peers"
)

// Registry is who is to be in a fleet: it puts together what the configuration
// lists, what sources find and what the admin API decided, and assigns that to
// the fleet each time it changes. What the admin API decided goes before all
// else and lasts until it is undone, or the router ends. It is safe for
// concurrent use.
//
// In a mesh, what the admin API of any replica decided holds for all, and what
// others list comes after all that this one does: a worker is in the fleet while
// a live replica lists it. See [Registry.Run].
type Registry struct {
	fleet *Fleet

	mu      sync.Mutex
	static  []discover.Found
	order   []string // of sources
	sources map[string]*sourceState
	added   []discover.Found     // by the admin API
	removed map[kv.WorkerID]bool // by the admin API
	drained map[kv.WorkerID]bool // by the admin API
	present []Wanted             // as assigned last

	// What follows is used in a mesh only; heard is nil without one.
	heard    *peersHeard
	taken    atomic.Uint64     // changes of heard that were gone by
	caughtUp atomic.Bool       // all of heard was, once Ready was nil
	peers    sourceState       // what other replicas list
	listed   map[string]string // records as told to them, by name
	obeyed   map[string]string // orders that this replica goes by, told or heard, by key
	decided  map[string]string // what orders returned when they were last told or heard
}

// sourceState is what one source said last.
type sourceState struct {
	found    []discover.Found
	told     bool          // it has told a list, ever
	at       clock.Instant // when
	fault    string        // why it can't see now; empty: it can
	failures uint64
	refused  map[string]string // of the last list: what of it can't be used, and why
}

// NewRegistry returns the registry of a fleet, which begins with the workers
// that the fleet has as those of the configuration. In a mesh it is to be made
// before that runs.
func NewRegistry(f *Fleet) *Registry {
	r := &Registry{fleet: f, sources: make(map[string]*sourceState), removed: make(map[kv.WorkerID]bool), drained: make(map[kv.WorkerID]bool)}
	if f.deps.Mesh != nil {
		r.heard, r.obeyed = newPeersHeard(), make(map[string]string)
		f.mesh.HearPage(core.Workers, r.heard.worker)
		f.mesh.HearRows(core.Orders, r.heard.order)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, w := range f.crew.workers {
		r.static = append(r.static, w.want.Found)
	}
	r.present = r.merge()
	return r
}

// SetStatic makes specs the workers of the configuration, and names the sources
// there are from now on, in their order: what others found is forgotten. An
// error says which spec can't be used, and nothing has changed then.
func (r *Registry) SetStatic(specs []engine.Spec, sources []string) error {
	var static []discover.Found
	for _, spec := range specs {
		spec, err := r.fleet.vet(spec)
		if err != nil {
			return err
		}
		static = append(static, discover.Found{Spec: spec})
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	before, beforeOrder := r.static, r.order
	r.static, r.order = static, slices.SortedStableFunc(slices.Values(sources), func(a, b string) int { return cmp.Compare(rankOf(a), rankOf(b)) })
	for _, name := range r.order {
		if r.sources[name] == nil {
			r.sources[name] = new(sourceState)
		}
	}
	if err := r.assign(); err != nil {
		r.static, r.order = before, beforeOrder
		return err
	}
	for name := range r.sources { // order-free: each by itself
		if !slices.Contains(r.order, name) {
			delete(r.sources, name)
		}
	}
	return nil
}

// rankOf says which kind of source goes before which.
func rankOf(name string) int {
	kind, _, _ := strings.Cut(name, ":")
	return slices.Index([]string{"file", "kubernetes", "dns"}, kind)
}

// Sink returns where the source of a name reports to. One that SetStatic didn't
// name, or no more, reports to nobody.
func (r *Registry) Sink(name string) discover.Sink { return sink{r, name} }

type sink struct {
	registry *Registry
	name     string
}

// Found takes a source's list. What of it can't be used is left out, and logged
// once.
func (s sink) Found(all []discover.Found) {
	r := s.registry
	refused := make(map[string]string)
	good := make([]discover.Found, 0, len(all))
	for _, f := range all[:min(len(all), discover.MaxWorkers)] {
		spec, err := r.fleet.vet(f.Spec)
		if err != nil {
			refused[f.Spec.String()] = err.Error()
			continue
		}
		f.Spec = spec
		good = append(good, f)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	state := r.sources[s.name]
	if state == nil {
		return
	}
	log := r.fleet.deps.Log.With("source", s.name)
	for worker, why := range refused { // order-free: log lines
		if state.refused[worker] != why {
			log.Warn("a worker that was found can't be used", "worker", worker, "err", why)
		}
	}
	if state.fault != "" {
		log.Info("discovery sees again", "workers", len(good))
	}
	state.found, state.told, state.at, state.fault, state.refused = good, true, r.fleet.deps.Clock.Now(), "", refused
	if err := r.assign(); err != nil {
		log.Error("the workers found can't be taken", "err", err)
	}
}

// Failed takes note of a source that can't see.
func (s sink) Failed(err error) {
	r := s.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	state := r.sources[s.name]
	if state == nil {
		return
	}
	state.failures++
	if text := err.Error(); text != state.fault {
		state.fault = text
		r.fleet.deps.Log.Warn("discovery can't see: the list before stays in force", "source", s.name, "workers", len(state.found), "err", err)
	}
}

// vet returns a spec in canonical form, if its worker may be in the fleet.
func (f *Fleet) vet(spec engine.Spec) (engine.Spec, error) {
	spec, err := spec.Canonical()
	if err != nil {
		return spec, fmt.Errorf("worker: %w", err)
	}
	if err := f.cfg.Guard.CheckSpec(spec); err != nil {
		return spec, err
	}
	_, err = f.class(spec)
	return spec, err
}

// assign puts all together and has the fleet go by it. It needs mu.
func (r *Registry) assign() error {
	present := r.merge()
	if err := r.fleet.Assign(present, r.missing() == ""); err != nil {
		return err
	}
	r.present = present
	r.tellPeers()
	return nil
}

// missing names a source that has told nothing yet. It needs mu.
func (r *Registry) missing() string {
	for _, name := range r.order {
		if !r.sources[name].told {
			return name
		}
	}
	return ""
}

// merge puts all layers together. What a layer further up says of a worker
// holds; whether it drains, and which instance it is, the others may know
// better. It needs mu.
func (r *Registry) merge() []Wanted {
	m := merger{byName: make(map[string]int), byURL: make(map[string]int)}
	m.layer(fromAdmin, r.added)
	m.layer(fromStatic, r.static)
	for _, name := range r.order {
		m.layer(name, r.sources[name].found)
	}
	m.layer(fromPeers, r.peers.found)
	all := m.all[:0]
	for _, w := range m.all {
		id := r.fleet.idOf(w.Spec)
		if r.removed[id] {
			continue
		}
		if r.drained[id] {
			w.Draining, w.Why = true, fromAdmin
		}
		all = append(all, w)
	}
	return all
}

// merger joins what is the same worker by its name or by its URL.
type merger struct {
	all           []Wanted
	byName, byURL map[string]int
}

func (m *merger) layer(source string, found []discover.Found) {
	for _, f := range found {
		i, known := m.byName[f.Spec.Name()]
		if !known {
			i, known = m.byURL[f.Spec.URL]
		}
		if !known {
			m.byName[f.Spec.Name()], m.byURL[f.Spec.URL] = len(m.all), len(m.all)
			m.all = append(m.all, Wanted{f, []string{source}})
			continue
		}
		w := &m.all[i]
		w.Sources = append(w.Sources, source)
		if f.Spec.URL == w.Spec.URL { // else it is that of another address
			w.Instance = cmp.Or(w.Instance, f.Instance)
		}
		if f.Draining && !w.Draining {
			w.Draining, w.Why = true, f.Why
		}
	}
}

// idOf is the worker id of a spec.
func (f *Fleet) idOf(spec engine.Spec) kv.WorkerID {
	return kv.WorkerIDOf(f.cfg.Cluster, spec.Name())
}

// Ready says why a replica on this fleet should get no traffic yet: besides
// what Fleet.Ready says, while a source has not told its list and the time to
// warm up is not over. No worker at all is no reason where all have told that.
func (r *Registry) Ready() error {
	if r.heard != nil && !r.caughtUp.Load() {
		r.heard.mu.Lock()
		behind := r.heard.changes != r.taken.Load()
		r.heard.mu.Unlock()
		if behind {
			return errors.New("still taking in the workers that other replicas list")
		}
	}
	if err := r.ready(); err != nil {
		return err
	}
	r.caughtUp.Store(true)
	return nil
}

func (r *Registry) ready() error {
	r.mu.Lock()
	missing, none := r.missing(), len(r.present) == 0
	r.mu.Unlock()
	late := r.fleet.deps.Clock.Now().Sub(r.fleet.began) > r.fleet.cfg.WarmUp
	switch {
	case missing != "" && !late && !r.fleet.warm.Load():
		return fmt.Errorf("still waiting for the list of workers of %s", missing)
	case missing == "" && none:
		return nil
	}
	return r.fleet.Ready()
}

// SourceState is how one source stands, as the admin API shows it.
type SourceState struct {
	Name    string `json:"name"`
	Workers int    `json:"workers"`
	// AgeSeconds is the age of its last list, -1 before the first.
	AgeSeconds float64           `json:"age_seconds"`
	Fault      string            `json:"fault,omitempty"` // why it can't see now
	Failures   uint64            `json:"failures"`
	Refused    map[string]string `json:"refused,omitempty"` // what of its list can't be used, and why
}

// DiscoveryState is how all sources stand, and what the admin API decided.
type DiscoveryState struct {
	Sources []SourceState `json:"sources"`
	Added   []string      `json:"added"`
	Removed []string      `json:"removed"`
	Drained []string      `json:"drained"`
}

// Describe returns the state of the sources.
func (r *Registry) Describe() DiscoveryState {
	r.mu.Lock()
	defer r.mu.Unlock()
	d := DiscoveryState{Sources: []SourceState{{Name: fromStatic, Workers: len(r.static)}}, Added: []string{}, Removed: ids(r.removed), Drained: ids(r.drained)}
	for _, name := range r.order {
		s := r.sources[name]
		d.Sources = append(d.Sources, SourceState{Name: name, Workers: len(s.found), AgeSeconds: r.age(s).Seconds(), Fault: s.fault, Failures: s.failures, Refused: s.refused})
	}
	if r.heard != nil {
		p := &r.peers
		d.Sources = append(d.Sources, SourceState{Name: fromPeers, Workers: len(p.found), AgeSeconds: r.age(p).Seconds(), Refused: p.refused})
	}
	for _, f := range r.added {
		d.Added = append(d.Added, r.fleet.idOf(f.Spec).String())
	}
	return d
}

// age is how old a source's list is; -1 s before the first. It needs mu.
func (r *Registry) age(s *sourceState) time.Duration {
	if !s.told {
		return -time.Second
	}
	return r.fleet.deps.Clock.Now().Sub(s.at)
}

func ids(set map[kv.WorkerID]bool) []string {
	list := make([]string, 0, len(set))
	for id := range set { // order-free: sorted below
		list = append(list, id.String())
	}
	slices.Sort(list)
	return list
}
