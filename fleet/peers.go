package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/crdt"
	"github.com/rhizome-router/rhizome/crdt/wire"
	"github.com/rhizome-router/rhizome/engine"
	"github.com/rhizome-router/rhizome/engine/discover"
	"github.com/rhizome-router/rhizome/mesh/core"
)

// peersHeard is what other replicas said of workers, as it came. It is written
// within Do of the mesh, from where the registry can't be called.
type peersHeard struct {
	mu      sync.Mutex
	workers map[core.Replica]map[string][]byte // by name
	orders  map[string][]byte                  // by worker's id
	changes uint64                             // so many, ever
	wake    chan struct{}
}

func newPeersHeard() *peersHeard {
	return &peersHeard{workers: make(map[core.Replica]map[string][]byte), orders: make(map[string][]byte), wake: make(chan struct{}, 1)}
}

// note records one change. It needs mu.
func (h *peersHeard) note() {
	h.changes++
	select {
	case h.wake <- struct{}{}:
	default: // it is awake
	}
}

// worker is called when a peer's list changed.
func (h *peersHeard) worker(writer core.Replica, key string, value *crdt.PageItem) {
	h.mu.Lock()
	defer h.mu.Unlock()
	defer h.note()
	if value != nil {
		if h.workers[writer] == nil {
			h.workers[writer] = make(map[string][]byte)
		}
		h.workers[writer][key] = value.Value
		return
	}
	delete(h.workers[writer], key)
	if len(h.workers[writer]) == 0 {
		delete(h.workers, writer)
	}
}

// order is called when somebody decided on a worker.
func (h *peersHeard) order(row crdt.Register) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.orders[row.Key] = row.Value
	h.note()
}

// Run has the registry take what other replicas list and decide, until ctx ends.
// Without a mesh it does nothing.
func (r *Registry) Run(ctx context.Context) {
	if r.heard == nil {
		return
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.heard.wake:
			r.takePeers()
		}
	}
}

// takePeers goes by all that was heard so far.
func (r *Registry) takePeers() {
	h := r.heard
	h.mu.Lock()
	changes, orders := h.changes, maps.Clone(h.orders)
	var lists [][]byte
	writers := slices.SortedFunc(maps.Keys(h.workers), func(a, b core.Replica) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Inc, b.Inc))
	})
	for _, w := range writers {
		for _, name := range slices.Sorted(maps.Keys(h.workers[w])) {
			lists = append(lists, h.workers[w][name])
		}
	}
	h.mu.Unlock()

	r.mu.Lock()
	defer r.mu.Unlock()
	log := r.fleet.deps.Log.With("source", fromPeers)
	found, refused := r.vetPeers(lists)
	for worker, why := range refused { // order-free: log lines
		if r.peers.refused[worker] != why {
			log.Warn("a worker that another replica lists can't be used", "worker", worker, "err", why)
		}
	}
	r.peers.found, r.peers.told, r.peers.at, r.peers.refused = found, true, r.fleet.deps.Clock.Now(), refused
	for _, id := range slices.Sorted(maps.Keys(orders)) {
		r.obey(id, string(orders[id]))
	}
	r.decided = r.orders() // which peers know
	if err := r.assign(); err != nil {
		log.Error("the workers of other replicas can't be taken", "err", err)
	}
	r.taken.Store(changes)
}

// vetPeers returns the workers in peers' records that can be used, each once,
// and why others can't. It needs mu.
func (r *Registry) vetPeers(records [][]byte) (good []discover.Found, refused map[string]string) {
	refused = make(map[string]string)
	at := make(map[string]int)
	for _, record := range records {
		f, err := r.readRecord(record)
		switch {
		case errors.Is(err, errElsewhere):
			continue
		case err != nil:
			if len(refused) < discover.MaxWorkers {
				refused[f.Spec.String()] = err.Error()
			}
			continue
		}
		if i, known := at[f.Spec.Name()]; known {
			good[i].Draining = good[i].Draining || f.Draining
			continue
		}
		if len(good) < discover.MaxWorkers {
			at[f.Spec.Name()] = len(good)
			good = append(good, f)
		}
	}
	return good, refused
}

// tellPeers puts on this replica's page what its configuration and its sources
// list, but not what it has from peers, and in the table what the admin API
// decided here. It needs mu.
func (r *Registry) tellPeers() {
	if r.heard == nil {
		return
	}
	own := merger{byName: make(map[string]int), byURL: make(map[string]int)}
	own.layer(fromStatic, r.static)
	for _, name := range r.order {
		own.layer(name, r.sources[name].found)
	}
	records := make(map[string]string)
	for _, w := range own.all {
		if w.Spec.Token == "" && len(w.Spec.Name()) <= crdt.MaxKeyBytes {
			records[w.Spec.Name()] = r.record(w.Found)
		}
	}
	orders := r.orders()
	r.fleet.mesh.Do(func(now clock.Instant, c *core.Core) {
		for _, name := range slices.Sorted(maps.Keys(records)) {
			if r.listed[name] != records[name] {
				c.Put(now, core.Workers, name, []byte(records[name]), 0)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(r.listed)) {
			if _, still := records[name]; !still {
				c.Delete(core.Workers, name)
			}
		}
		r.announce(now, c, orders)
	})
	r.listed = records
}

// A worker's record: its spec as a line of text, its instance, whether it
// drains, and, where it is named by a loopback address, the address of the
// replica, for that is the only host where the name means the same. A worker's
// token stays here: so does a worker that wants one.
const recordFields = 4

const (
	maxLineBytes = 16 << 10
	maxTextBytes = 256
)

func (r *Registry) record(f discover.Found) string {
	w := wire.NewWriter(nil)
	w.Array(recordFields)
	w.String(f.Spec.String())
	w.String(f.Instance[:min(len(f.Instance), maxTextBytes)])
	w.Bool(f.Draining)
	w.String(r.hostOf(f.Spec))
	return string(w.Bytes())
}

// hostOf is the host on which a spec means something; empty for all.
func (r *Registry) hostOf(spec engine.Spec) string {
	if !onLoopback(spec) {
		return ""
	}
	return r.fleet.mesh.Host().String()
}

// errElsewhere says that a worker can be reached on another host only.
var errElsewhere = errors.New("it is named by a loopback address of another host")

func (r *Registry) readRecord(record []byte) (f discover.Found, err error) {
	rd := wire.NewReader(record)
	n := rd.Array(1)
	if n < recordFields {
		return f, fmt.Errorf("a record of %d fields, want %d", n, recordFields)
	}
	line, instance, draining, host := rd.String(maxLineBytes), rd.String(maxTextBytes), rd.Bool(), rd.String(maxTextBytes)
	rd.Skip(n - recordFields)
	if err := rd.End(); err != nil {
		return f, err
	}
	if f.Spec, err = r.vetLine(line, host); err != nil {
		return f, err
	}
	f.Instance, f.Draining = instance, draining
	if draining {
		f.Why = "another replica"
	}
	return f, nil
}

// vetLine returns the spec in a peer's record, if its worker may be in the fleet:
// it is checked as any other is. On an error the spec is for messages.
func (r *Registry) vetLine(line, host string) (engine.Spec, error) {
	spec, err := engine.ParseSpec(line)
	if err != nil {
		return engine.Spec{URL: "?"}, err
	}
	if onLoopback(spec) && host != r.fleet.mesh.Host().String() {
		return spec, errElsewhere
	}
	vetted, err := r.fleet.vet(spec)
	if err != nil {
		return spec, err
	}
	return vetted, nil
}

// onLoopback reports whether a spec names a host that is another on each machine.
func onLoopback(spec engine.Spec) bool {
	for _, at := range []string{spec.URL, spec.Events, spec.Replay} {
		u, err := url.Parse(at)
		if err != nil {
			continue
		}
		host := strings.ToLower(u.Hostname())
		if addr, err := netip.ParseAddr(host); err == nil && addr.Unmap().IsLoopback() || host == "localhost" || strings.HasSuffix(host, ".localhost") {
			return true
		}
	}
	return false
}
