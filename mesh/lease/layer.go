package lease

import (
	"encoding/binary"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// port is the raft plane shared by the clusters that this replica is in, one
// after another. Each stream begins with the cluster that it is of, so that
// what is left of one can't speak into another.
type port struct {
	plane raft.StreamLayer
	// where finds a server's replica, if it lives and is connected.
	where func(server string) (raft.ServerAddress, bool)

	mu  sync.Mutex
	now *layer // that takes streams; nil: nobody
}

const clusterBytes = 8

// helloTimeout bounds how long a stream may take to say which cluster it is of.
const helloTimeout = 2 * time.Second

// accept hands streams out until the plane is closed.
func (p *port) accept() {
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		c, err := p.plane.Accept()
		if err != nil {
			return
		}
		wg.Go(func() { p.sort(c) })
	}
}

func (p *port) sort(c net.Conn) {
	var b [clusterBytes]byte
	_ = c.SetReadDeadline(time.Now().Add(helloTimeout))
	if _, err := readFull(c, b[:]); err != nil {
		c.Close()
		return
	}
	_ = c.SetReadDeadline(time.Time{})
	p.mu.Lock()
	l := p.now
	p.mu.Unlock()
	if l == nil || uint64(l.cluster) != binary.BigEndian.Uint64(b[:]) {
		c.Close()
		return
	}
	select {
	case l.streams <- c:
	case <-l.done:
		c.Close()
	}
}

func readFull(c net.Conn, b []byte) (n int, err error) {
	for n < len(b) && err == nil {
		var m int
		m, err = c.Read(b[n:])
		n += m
	}
	if n == len(b) {
		err = nil
	}
	return n, err
}

// open returns the stream layer of a cluster, which takes all streams from now
// on.
func (p *port) open(cluster Cluster) *layer {
	l := &layer{port: p, cluster: cluster, streams: make(chan net.Conn), done: make(chan struct{})}
	p.mu.Lock()
	p.now = l
	p.mu.Unlock()
	return l
}

// layer is the stream layer of one cluster.
type layer struct {
	port    *port
	cluster Cluster
	streams chan net.Conn
	once    sync.Once
	done    chan struct{}
}

var _ raft.StreamLayer = (*layer)(nil)

// absentWait bounds how long a dial waits for a replica that is not here.
const (
	absentWait = 5 * time.Second
	absentLook = 50 * time.Millisecond
)

// nominal is what stands for a server's address in Raft's configuration: where it
// is now is found when it is dialled. Raft refuses two servers with one address,
// which one that died and the replica that is there now may have.
func nominal(server string) raft.ServerAddress { return raft.ServerAddress(server) }

// await waits for a server whose replica is not here to come back, and returns its
// address. Raft waits twice as long after each attempt that failed, up to 10 s
// (raft 1.8.0, backoff), and nothing wakes it when the peer is back; so few
// attempts should fail.
func (l *layer) await(server string) (raft.ServerAddress, error) {
	for end := time.Now().Add(absentWait); ; {
		if at, ok := l.port.where(server); ok {
			return at, nil
		}
		if !time.Now().Before(end) {
			return "", fmt.Errorf("dial Raft's server %s: no replica that is connected runs it", server)
		}
		select {
		case <-l.done:
			return "", net.ErrClosed
		case <-time.After(absentLook):
		}
	}
}

// Dial is part of raft.StreamLayer; the address is a [nominal] one.
func (l *layer) Dial(addr raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	at, err := l.await(string(addr))
	if err != nil {
		return nil, err
	}
	c, err := l.port.plane.Dial(at, timeout)
	if err != nil {
		return nil, err
	}
	if timeout > 0 {
		_ = c.SetWriteDeadline(time.Now().Add(timeout))
	}
	if _, err := c.Write(binary.BigEndian.AppendUint64(nil, uint64(l.cluster))); err != nil {
		c.Close()
		return nil, fmt.Errorf("say which cluster a stream to %s at %s is of: %w", addr, at, err)
	}
	_ = c.SetWriteDeadline(time.Time{})
	return c, nil
}

// Accept is part of raft.StreamLayer.
func (l *layer) Accept() (net.Conn, error) {
	select {
	case c := <-l.streams:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// Close is part of raft.StreamLayer.
func (l *layer) Close() error {
	l.once.Do(func() {
		close(l.done)
		l.port.mu.Lock()
		if l.port.now == l {
			l.port.now = nil
		}
		l.port.mu.Unlock()
	})
	return nil
}

// Addr is part of raft.StreamLayer.
func (l *layer) Addr() net.Addr { return l.port.plane.Addr() }
