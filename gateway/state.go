package gateway

import (
	"container/list"
	"crypto/sha256"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/crdt"
	"github.com/rhizome-router/rhizome/crdt/wire"
	"github.com/rhizome-router/rhizome/kv"
	"github.com/rhizome-router/rhizome/mesh"
	"github.com/rhizome-router/rhizome/mesh/core"
	"github.com/rhizome-router/rhizome/prompt"
)

// defaultMaxPlaces is the default of Config.MaxPlaces.
const defaultMaxPlaces = 1 << 16

// placeLife is how long a place is told to other replicas.
const placeLife = 24 * time.Hour

// place is where an engine remembers something: one target, under one model,
// for one tenant alone.
type place struct {
	id     string // see stateKey
	target kv.Target
	model  string
	named  string // what the request that made it called the model
	// process is the worker's that made it, see Deps.Process; empty: unknown.
	process string

	until clock.Instant // of one that another replica told; 0: it is our own
}

// places remembers which target holds which response or conversation: engines
// keep those in their own memory. Replicas tell each other of theirs.
type places struct {
	node *mesh.Node // nil: alone
	mu   sync.Mutex
	most int
	byID map[string]*list.Element // of place
	used list.List                // latest first
	held prometheus.Gauge         // how many; may be nil
}

// newPlaces returns places that are shared over a node, which must not run yet;
// nil for none.
func newPlaces(most int, node *mesh.Node) *places {
	s := &places{node: node, most: most, byID: make(map[string]*list.Element)}
	if node != nil {
		node.HearPage(core.Responses, s.hear)
	}
	return s
}

// put records that p.target holds p.id, and tells other replicas.
func (s *places) put(p place) {
	s.keep(p)
	if s.node == nil {
		return
	}
	w := wire.NewWriter(nil)
	w.Array(placeFields)
	w.String(core.TargetKey(p.target))
	w.String(p.model)
	w.String(p.named)
	w.String(p.process)
	s.node.Do(func(now clock.Instant, c *core.Core) { c.Put(now, core.Responses, p.id, w.Bytes(), placeLife) })
}

// What other replicas are told of a place, by its id: target, model, what the
// request called that, and the process. Later versions may append others.
const (
	placeFields   = 4
	maxPlaceBytes = 1 << 10 // of each
)

// hear takes a place that another replica told. One that it tells no more stays
// until its life ends: its worker may well outlive that replica.
func (s *places) hear(_ core.Replica, id string, value *crdt.PageItem) {
	if value == nil {
		return
	}
	r := wire.NewReader(value.Value)
	n := r.Array(1)
	if n < placeFields {
		return
	}
	target, known := core.TargetOf(r.String(maxPlaceBytes))
	p := place{id: id, target: target, model: r.String(maxPlaceBytes), named: r.String(maxPlaceBytes), process: r.String(maxPlaceBytes), until: clock.Instant(value.Until)}
	r.Skip(n - placeFields)
	if r.End() == nil && known {
		s.keep(p)
	}
}

func (s *places) keep(p place) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.count()
	if e, ok := s.byID[p.id]; ok {
		e.Value = p
		s.used.MoveToFront(e)
		return
	}
	s.byID[p.id] = s.used.PushFront(p)
	if s.used.Len() > s.most {
		last := s.used.Back()
		delete(s.byID, s.used.Remove(last).(place).id)
	}
}

// get returns where id is held.
func (s *places) get(now clock.Instant, id string) (place, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.byID[id]
	if !ok {
		return place{}, false
	}
	p := e.Value.(place)
	if p.until != 0 && p.until <= now {
		s.used.Remove(e)
		delete(s.byID, id)
		s.count()
		return place{}, false
	}
	s.used.MoveToFront(e)
	return p, true
}

// count shows how many there are. It needs mu.
func (s *places) count() {
	if s.held != nil {
		s.held.Set(float64(s.used.Len()))
	}
}

// stateID finds the id of a response or conversation in the beginning of an
// answer that made it.
var stateID = regexp.MustCompile(`"id"\s*:\s*"((?:resp|conv)_[A-Za-z0-9_-]{1,120})"`)

// stateKey names a response or conversation of a tenant: others that know its
// id don't reach it. It is a hash, so that other replicas are told no ids.
func stateKey(tenant, id string) string {
	sum := sha256.Sum256([]byte(tenant + "\x00" + id))
	return string(sum[:16])
}

// stateIDs are the ids that x's request needs a target to hold.
func (x *exchange) stateIDs() []string {
	if x.state != "" {
		return []string{x.state}
	}
	var ids []string
	for _, id := range []string{x.prompt.Previous, x.prompt.Conversation} {
		if id != "" {
			ids = append(ids, id)
		}
	}
	return ids
}

// follow sends x where the state is that it goes on from. What is not known
// here is left to the worker, unless the state is all that the request names.
func (g *Gateway) follow(x *exchange) error {
	for _, id := range x.stateIDs() {
		if p, ok := g.places.get(g.deps.Clock.Now(), stateKey(x.caller.tenant, id)); ok && g.lives(&p) {
			x.query.Pin, x.follows = p.target.String(), true
			if x.state != "" {
				x.prompt.Model, x.named = p.model, p.named
			}
			return nil
		}
	}
	if x.state != "" {
		return errStateGone
	}
	return nil
}

// lives reports whether the process that made a place may still run. Engines
// keep responses in their own memory.
func (g *Gateway) lives(p *place) bool {
	now := g.processOf(p.target)
	return p.process == "" || now == "" || p.process == now
}

func (g *Gateway) processOf(t kv.Target) string {
	if g.deps.Process == nil {
		return ""
	}
	return g.deps.Process(t)
}

// actions look like ids below /v1/responses/ but name what to do with the body,
// which names its model.
var actions = map[string]bool{"/v1/responses/compact": true, "/v1/responses/input_tokens": true}

// stateOf returns the id that a path names below /v1/responses/ or
// /v1/conversations/; "" for none.
func stateOf(path string) string {
	for _, prefix := range []string{"/v1/responses/", "/v1/conversations/"} {
		if rest, ok := strings.CutPrefix(path, prefix); ok && isPlainV1(path) {
			id, _, _ := strings.Cut(rest, "/")
			if actions[path] {
				return ""
			}
			return id
		}
	}
	return ""
}

// remembers reports whether the answer to x makes state.
func (x *exchange) remembers() bool {
	return x.path == "/v1/responses" || x.path == "/v1/conversations" || x.state != ""
}

// opaque reads nothing in a body: its request goes where its state is.
type opaque struct{}

func (opaque) Scan([]byte) error   { return nil }
func (opaque) End() error          { return nil }
func (opaque) Model([]byte) string { return modelOther }
func (opaque) Request(prompt.Kind, []byte, func(string) string) (*prompt.Request, error) {
	return &prompt.Request{Kind: prompt.Other, N: 1, Prompts: 1}, nil
}
