package transport

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"
)

// session is a link whose peer said hello, so that both ends know that the
// other takes them. It belongs to the goroutine that runs it (run), which ends
// when the link does.
type session struct {
	link
	endpoint *Endpoint
	peer     Peer
	at       netip.AddrPort // the address it is found under: dialled, or advertised
	dialled  bool           // by us
	control  *control

	streams atomic.Int64 // open ones
	used    atomic.Int64 // when it was last used, in ns since began
	began   time.Time
	ended   atomic.Pointer[string] // why we closed it
}

// touch notes that the session is of use.
func (s *session) touch() { s.used.Store(int64(time.Since(s.began))) }

// unused returns how long the session has had neither streams nor datagrams.
func (s *session) unused() time.Duration {
	if s.streams.Load() > 0 {
		return 0
	}
	return time.Since(s.began) - time.Duration(s.used.Load())
}

func (s *session) alive() bool { return s.Context().Err() == nil }

// end closes the session; the first reason counts.
func (s *session) end(why string) {
	if s.ended.CompareAndSwap(nil, &why) {
		s.close(why)
	}
}

// welcome takes a peer's connection: it exchanges hellos and runs the session.
func (e *Endpoint) welcome(l link) {
	ctx, cancel := context.WithTimeout(e.ctx, dialTimeout)
	s, err := e.greet(ctx, l, false, netip.AddrPort{})
	cancel()
	if err != nil {
		l.close(err.Error())
		var r *refusal
		if errors.As(err, &r) {
			e.refusals.add(l.remote().String(), r)
		}
		return
	}
	e.run(s)
}

// greet exchanges hellos. at is the address that was dialled, if it was.
func (e *Endpoint) greet(ctx context.Context, l link, dialled bool, at netip.AddrPort) (*session, error) {
	c, theirs, err := openControl(ctx, l, hello{Boot: e.boot, Addr: e.advertise})
	if err != nil {
		return nil, err
	}
	if b := l.boot(); b != "" && b != theirs.Boot {
		return nil, &refusal{refusedHello, fmt.Sprintf("it says it is %q and its certificate %q", theirs.Boot, b)}
	}
	s := &session{link: l, endpoint: e, peer: Peer{Addr: theirs.Addr, Boot: theirs.Boot}, at: at,
		dialled: dialled, control: c, began: time.Now()}
	if !dialled {
		s.at = theirs.Addr
	}
	return s, e.enter(s)
}

// enter makes a session known, and the one to use if it should be.
func (e *Endpoint) enter(s *session) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return net.ErrClosed
	}
	if len(e.live) >= int(planes)*maxPeers {
		return &refusal{refusedCapacity, fmt.Sprintf("there are %d connections already, the most there may be", len(e.live))}
	}
	e.live[s] = true
	e.metrics.connections.WithLabelValues(s.plane().String()).Inc()
	key := slotKey{s.plane(), s.at}
	sl := e.slots[key]
	if sl == nil {
		sl = &slot{}
		e.slots[key] = sl
	}
	old := sl.current
	switch {
	case old == nil || !old.alive():
		sl.current = s
	case old.peer.Boot != s.peer.Boot:
		// The peer restarted, or two have one address. The old one gets its end
		// at once.
		sl.current = s
		e.log.Info("a peer's address has a new owner", "plane", s.plane(), "addr", s.at, "was", old.peer.Boot, "is", s.peer.Boot)
		e.work.Go(func() { old.end("replaced by a newer start of the peer") })
	case !s.dialled && !old.dialled:
		// The peer dials only when it has given up the old one.
		sl.current = s
		e.work.Go(func() { old.end("replaced by a newer connection") })
	case e.preferred(s) && !e.preferred(old):
		sl.current = s // both dialled at once; the old one ends when unused
	}
	return nil
}

// preferred says whether a session is the one that stays when both ends dialled
// at once: that of the lower boot. Both ends decide alike.
func (e *Endpoint) preferred(s *session) bool { return s.dialled == (e.boot < s.peer.Boot) }

// leave forgets a session.
func (e *Endpoint) leave(s *session) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.live, s)
	e.metrics.connections.WithLabelValues(s.plane().String()).Dec()
	key := slotKey{s.plane(), s.at}
	sl := e.slots[key]
	if sl == nil || sl.current != s {
		return
	}
	sl.current = nil
	for other := range e.live { // order-free: whichever is alive will do
		if other.at == s.at && other.plane() == s.plane() && other.alive() {
			sl.current = other
			return
		}
	}
	if sl.dialling == nil {
		delete(e.slots, key)
	}
}

// run serves a session until its link ends.
func (e *Endpoint) run(s *session) {
	defer e.leave(s)
	e.log.Debug("peer connected", "plane", s.plane(), "peer", s.peer.Boot, "addr", s.at, "dialled", s.dialled)
	e.work.Go(func() { s.control.beat(s) })
	e.work.Go(func() { s.control.listen(s) })
	switch s.plane() {
	case GossipPlane:
		e.work.Go(func() { e.gossip.receive(s) })
		e.acceptStreams(s, e.gossip.take)
	case RaftPlane:
		e.acceptStreams(s, e.raft.take)
	case DeltaPlane:
		e.delta.receive(s)
	}
	<-s.Context().Done()
	why := kindOf(s)
	e.metrics.closed.WithLabelValues(s.plane().String(), why).Inc()
	e.log.Debug("peer disconnected", "plane", s.plane(), "peer", s.peer.Boot, "addr", s.at, "why", why, "error", context.Cause(s.Context()))
}

// connect returns the session with a peer's plane, and dials if there is none.
// Dials to one peer are made one at a time and shared by who waits.
func (e *Endpoint) connect(ctx context.Context, p Plane, at netip.AddrPort) (*session, error) {
	key := slotKey{p, at}
	for waited := false; ; {
		e.mu.Lock()
		if e.closed {
			e.mu.Unlock()
			return nil, net.ErrClosed
		}
		sl := e.slots[key]
		if sl == nil {
			if len(e.slots) >= int(planes)*maxPeers {
				e.forgetFailed()
			}
			if len(e.slots) >= int(planes)*maxPeers {
				e.mu.Unlock()
				return nil, fmt.Errorf("dial %s %s: there are %d peers already, the most there may be", p, at, maxPeers)
			}
			sl = &slot{}
			e.slots[key] = sl
		}
		if sl.current != nil && sl.current.alive() {
			s := sl.current
			e.mu.Unlock()
			s.touch()
			return s, nil
		}
		if sl.dialling == nil {
			if err := sl.failed; err != nil && (waited || time.Since(sl.failedAt) < redialAfter) {
				e.mu.Unlock()
				return nil, err
			}
			if waited {
				e.mu.Unlock()
				return nil, fmt.Errorf("dial %s %s: the connection ended at once", p, at)
			}
			sl.dialling = make(chan struct{})
			e.work.Go(func() { e.dial(key, sl) })
		}
		done := sl.dialling
		e.mu.Unlock()
		select {
		case <-done:
			waited = true
		case <-ctx.Done():
			return nil, fmt.Errorf("dial %s %s: %w", p, at, context.Cause(ctx))
		}
	}
}

var errNoAnswer = fmt.Errorf("no answer within %v: is it running, and does UDP get there and back?", dialTimeout)

// dial makes a session and runs it.
func (e *Endpoint) dial(key slotKey, sl *slot) {
	ctx, cancel := context.WithTimeoutCause(e.ctx, dialTimeout, errNoAnswer)
	l, err := e.carrier.dial(ctx, key.plane, key.addr)
	var s *session
	if err == nil {
		if s, err = e.greet(ctx, l, true, key.addr); err != nil {
			l.close("no hello")
			s, err = nil, explain(l, err)
		}
	}
	cancel()
	if err != nil {
		err = fmt.Errorf("dial %s %s: %w", key.plane, key.addr, err)
		e.metrics.dials.WithLabelValues(key.plane.String(), "failed").Inc()
		if e.ctx.Err() == nil {
			e.refusals.dialFailed(key.addr.String(), err)
		}
	} else {
		e.metrics.dials.WithLabelValues(key.plane.String(), "ok").Inc()
	}
	e.mu.Lock()
	close(sl.dialling)
	sl.dialling, sl.failed, sl.failedAt = nil, err, time.Now()
	e.mu.Unlock()
	if s != nil {
		e.run(s)
	}
}

// forgetFailed drops the slots of peers that are neither connected nor being
// dialled. The caller holds the lock.
func (e *Endpoint) forgetFailed() {
	for k, sl := range e.slots { // order-free: each is judged on its own
		if sl.current == nil && sl.dialling == nil {
			delete(e.slots, k)
		}
	}
}

// kindOf says what ended a session, as a label.
func kindOf(s *session) string {
	if why := s.ended.Load(); why != nil {
		switch *why {
		case "silent", "unused", "broken", "dropped", "closing":
			return *why
		}
		return "replaced"
	}
	why := context.Cause(s.Context())
	var reset *quic.StatelessResetError
	var idle *quic.IdleTimeoutError
	var app *quic.ApplicationError
	switch {
	case errors.As(why, &reset):
		return "reset"
	case errors.As(why, &idle):
		return "silent"
	case errors.As(why, &app) && app.Remote:
		return "peer"
	}
	return "failed"
}
