package gateway

import (
	"container/list"
	"regexp"
	"strings"
	"sync"

	"github.com/rhizome-router/rhizome/kv"
	"github.com/rhizome-router/rhizome/prompt"
)

// maxPlaces bounds how many responses and conversations are remembered; the
// one that was used longest ago is forgotten first.
const maxPlaces = 1 << 16

// place is where an engine remembers something: one target, under one model,
// for one tenant alone.
type place struct {
	id     string // see stateKey
	target kv.Target
	model  string
	named  string // what the request that made it called the model
}

// places remembers which target holds which response or conversation: engines
// keep those in their own memory.
type places struct {
	mu   sync.Mutex
	most int
	byID map[string]*list.Element // of place
	used list.List                // latest first
}

func newPlaces(most int) *places {
	return &places{most: most, byID: make(map[string]*list.Element)}
}

// put records that p.target holds p.id.
func (s *places) put(p place) {
	s.mu.Lock()
	defer s.mu.Unlock()
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
func (s *places) get(id string) (place, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.byID[id]
	if !ok {
		return place{}, false
	}
	s.used.MoveToFront(e)
	return e.Value.(place), true
}

// stateID finds the id of a response or conversation in the beginning of an
// answer that made it.
var stateID = regexp.MustCompile(`"id"\s*:\s*"((?:resp|conv)_[A-Za-z0-9_-]{1,120})"`)

// stateKey names a response or conversation of a tenant: others that know its
// id don't reach it.
func stateKey(tenant, id string) string { return tenant + "\x00" + id }

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
		if p, ok := g.places.get(stateKey(x.caller.tenant, id)); ok {
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
