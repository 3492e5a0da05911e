package transport

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/quic-go/quic-go"
)

// streamConn is a two-way stream as memberlist and Raft want it.
type streamConn struct {
	bidiStream
	session *session
	local   netip.AddrPort
	once    chan struct{} // filled by the first Close
	writing sync.Mutex    // held by Write; a QUIC stream must not be closed during one
}

func newStreamConn(s *session, st bidiStream) *streamConn {
	s.streams.Add(1)
	return &streamConn{bidiStream: st, session: s, local: s.endpoint.advertise, once: make(chan struct{}, 1)}
}

// Close ends both directions. What was written still arrives, but a Write that
// is under way fails. A stream that ended before is closed without an error.
func (c *streamConn) Close() error {
	if !c.first() {
		return nil
	}
	c.CancelRead(codeDone)
	if !c.writing.TryLock() {
		c.CancelWrite(codeDone)
		return nil
	}
	defer c.writing.Unlock()
	_ = c.bidiStream.Close()
	return nil
}

// abort ends both directions; what was written may be lost.
func (c *streamConn) abort(code quic.StreamErrorCode) {
	if c.first() {
		c.CancelRead(code)
		c.CancelWrite(code)
	}
}

func (c *streamConn) first() bool {
	select {
	case c.once <- struct{}{}:
		c.session.touch()
		c.session.streams.Add(-1)
		return true
	default:
		return false
	}
}

func (c *streamConn) LocalAddr() net.Addr  { return net.TCPAddrFromAddrPort(c.local) }
func (c *streamConn) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(c.session.peer.Addr) }

func (c *streamConn) Read(b []byte) (int, error) {
	n, err := c.bidiStream.Read(b)
	c.session.endpoint.metrics.read(c.session.plane(), n)
	return n, err
}

func (c *streamConn) Write(b []byte) (int, error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	n, err := c.bidiStream.Write(b)
	c.session.endpoint.metrics.wrote(c.session.plane(), n)
	return n, err
}

var _ net.Conn = (*streamConn)(nil)

// dialStream opens a two-way stream on a plane of a peer. The peer learns of it
// when something was written.
func (e *Endpoint) dialStream(p Plane, addr string, timeout time.Duration) (net.Conn, error) {
	at, err := parsePeer(addr)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(e.ctx, timeout)
	defer cancel()
	s, err := e.connect(ctx, p, at)
	if err != nil {
		return nil, err
	}
	st, err := s.openStream(ctx)
	if err != nil {
		return nil, err
	}
	return newStreamConn(s, st), nil
}

// acceptStreams hands a peer's streams to take, and turns away those that it
// doesn't take.
func (e *Endpoint) acceptStreams(s *session, take func(net.Conn) bool) {
	for {
		st, err := s.acceptStream(s.Context())
		if err != nil {
			return
		}
		c := newStreamConn(s, st)
		if !take(c) {
			e.metrics.dropped.WithLabelValues("streams").Inc()
			c.abort(codeFull)
		}
	}
}
