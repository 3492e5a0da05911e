package transport

import (
	"net"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// raftQueue bounds the streams that wait for Accept.
const raftQueue = 64

// Raft is Raft's stream layer on the raft plane: each stream is a net.Conn.
// Addresses are ip:port.
type Raft struct {
	endpoint *Endpoint
	streams  chan net.Conn
	once     sync.Once
	done     chan struct{}
}

var _ raft.StreamLayer = (*Raft)(nil)

func newRaft(e *Endpoint) *Raft {
	return &Raft{endpoint: e, streams: make(chan net.Conn, raftQueue), done: make(chan struct{})}
}

// Dial opens a stream to a peer.
func (r *Raft) Dial(addr raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	select {
	case <-r.done:
		return nil, net.ErrClosed
	default:
	}
	if timeout <= 0 {
		timeout = dialTimeout
	}
	return r.endpoint.dialStream(RaftPlane, string(addr), timeout)
}

// Accept returns the next stream that a peer opened; net.ErrClosed after Close.
func (r *Raft) Accept() (net.Conn, error) {
	select {
	case c := <-r.streams:
		return c, nil
	case <-r.done:
	case <-r.endpoint.ctx.Done():
	}
	return nil, net.ErrClosed
}

// take queues a peer's stream for Accept, if there is one to come.
func (r *Raft) take(c net.Conn) bool {
	select {
	case <-r.done:
		return false
	default:
	}
	select {
	case r.streams <- c:
		return true
	default:
		return false
	}
}

// Close closes the raft plane. The rest of the endpoint goes on.
func (r *Raft) Close() error {
	r.once.Do(func() {
		close(r.done)
		r.endpoint.closeSessions("closing", func(s *session) bool { return s.plane() == RaftPlane })
	})
	return nil
}

// Addr returns the address that this replica advertises.
func (r *Raft) Addr() net.Addr { return net.TCPAddrFromAddrPort(r.endpoint.advertise) }
