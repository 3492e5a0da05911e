package gateway

import (
	"fmt"
	"sync"
	"time"

	"github.com/rhizome-router/rhizome/route"
)

const (
	// maxReservations bounds how many decisions are reserved at one time, and
	// maxReservedBytes the bodies that they were made for together: what is kept
	// of a prompt is about as large.
	maxReservations  = 1024
	maxReservedBytes = 256 << 20
	// defaultReserve is how long a reservation lasts unless said otherwise, and
	// maxReserve how long one may.
	defaultReserve = 30 * time.Second
	maxReserve     = 5 * time.Minute
)

// reservations are decisions that are booked for requests which others send.
// Each ends once: released, expired, or closed with the gateway.
type reservations struct {
	decider Decider
	metrics *metrics

	mu     sync.Mutex
	open   map[string]*reservation
	bytes  int
	closed bool
}

type reservation struct {
	decision *route.Decision
	bytes    int
	timer    *time.Timer
}

func newReservations(d Decider, m *metrics) *reservations {
	return &reservations{decider: d, metrics: m, open: make(map[string]*reservation)}
}

// reserve books q's decision, for a body of that many bytes, and releases it
// after a while at the latest. The decision's ID names the reservation.
func (s *reservations) reserve(q route.Query, bytes int, last time.Duration) (*route.Decision, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return nil, errShuttingDown
	case len(s.open) >= maxReservations:
		return nil, fmt.Errorf("%w: %d reservations are open", errReservations, len(s.open))
	case s.bytes+bytes > maxReservedBytes:
		return nil, fmt.Errorf("%w: %d bytes of prompts are", errReservations, s.bytes)
	}
	d, err := s.decider.Decide(q)
	if err != nil {
		return nil, err
	}
	r := &reservation{decision: d, bytes: bytes}
	r.timer = time.AfterFunc(last, func() { s.expire(d.ID, r) })
	s.open[d.ID] = r
	s.bytes += bytes
	s.metrics.reservations.Inc()
	return d, nil
}

// release ends a reservation; false when there is none of that id.
func (s *reservations) release(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.open[id]
	if ok {
		s.end(id, r, "released")
	}
	return ok
}

// expire ends r if nothing else has.
func (s *reservations) expire(id string, r *reservation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[id] == r {
		s.end(id, r, "expired")
	}
}

// end needs s.mu: who holds it and finds r is the only one that ends it. What
// became of the request is not known here, so nothing is learned from it.
func (s *reservations) end(id string, r *reservation, how string) {
	delete(s.open, id)
	s.bytes -= r.bytes
	r.timer.Stop()
	s.decider.Done(r.decision, route.Outcome{Result: route.Cancelled})
	s.metrics.reservations.Dec()
	s.metrics.unreserved.WithLabelValues(how).Inc()
}

// close releases all there are, and lets no more in.
func (s *reservations) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for id, r := range s.open {
		s.end(id, r, "closed")
	}
}
