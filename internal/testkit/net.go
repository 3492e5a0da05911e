package testkit

import (
	"context"
	"fmt"
	"net"
	"sync"
)

// Net is a network in memory, made of net.Pipe: every write arrives as its own
// read, and a goroutine that waits for it is durably blocked, so that tests in
// a testing/synctest bubble see virtual time pass.
type Net struct {
	mu        sync.Mutex
	listeners map[string]*memListener
}

// NewNet returns a network on which nobody listens yet.
func NewNet() *Net { return &Net{listeners: make(map[string]*memListener)} }

// Listen starts to accept connections for addr, any text of the form
// host:port. A second listener on one address is a programming error.
func (n *Net) Listen(addr string) net.Listener {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.listeners[addr] != nil {
		panic("testkit: two listeners on " + addr)
	}
	l := &memListener{net: n, addr: memAddr(addr), conns: make(chan net.Conn), closed: make(chan struct{})}
	n.listeners[addr] = l
	return l
}

// Dial connects to addr; it has the shape of http.Transport.DialContext. Where
// nobody listens the connection is refused at once.
func (n *Net) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	n.mu.Lock()
	l := n.listeners[addr]
	n.mu.Unlock()
	refused := &net.OpError{Op: "dial", Net: network, Addr: memAddr(addr), Err: fmt.Errorf("connection refused")}
	if l == nil {
		return nil, refused
	}
	here, there := net.Pipe()
	select {
	case l.conns <- there:
		return here, nil
	case <-l.closed:
		return nil, refused
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

type memListener struct {
	net    *Net
	addr   memAddr
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (l *memListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *memListener) Close() error {
	l.once.Do(func() {
		l.net.mu.Lock()
		delete(l.net.listeners, string(l.addr))
		l.net.mu.Unlock()
		close(l.closed)
	})
	return nil
}

func (l *memListener) Addr() net.Addr { return l.addr }

type memAddr string

func (a memAddr) Network() string { return "mem" }
func (a memAddr) String() string  { return string(a) }
