package testkit

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"
)

// Way is a direction over a [Link].
type Way int

// The ways: from the party that dials, and to it.
const (
	There Way = iota
	Back
)

// Both are all ways.
var Both = []Way{There, Back}

// Link is the network between two parties in one process: proxies on loopback
// that one dials to reach the other, with faults that a test switches on and
// off. Nothing of it is random: what is lost a test says, datagram by datagram
// if it wants.
//
// A link that is cut is silent, as a broken network is: nothing is reset,
// connections stay, and what is sent on them waits (datagrams are lost).
type Link struct {
	ctx  context.Context
	wg   sync.WaitGroup
	stop context.CancelFunc

	mu      sync.Mutex
	changed chan struct{} // closed when what follows has changed
	ways    [2]way
	to      map[string]string // where proxies lead instead, by their own target
	conns   map[net.Conn]bool // of TCP proxies, and sockets of UDP proxies towards the target
}

// way is the state of one direction.
type way struct {
	cut      bool
	delay    time.Duration
	mtuBytes int // 0: no limit
	lose     func(n int, datagram []byte) bool
	seen     int // datagrams that came
	lost     int // and those that went no further
}

// NewLink returns a link without faults. It ends with the test.
func NewLink(t testing.TB) *Link {
	l := &Link{changed: make(chan struct{}), to: make(map[string]string), conns: make(map[net.Conn]bool)}
	l.ctx, l.stop = context.WithCancel(context.Background())
	t.Cleanup(l.close)
	return l
}

func (l *Link) close() {
	l.stop()
	l.Break()
	l.wg.Wait()
}

// change changes the link's state and wakes up who waits for a change.
func (l *Link) change(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
	close(l.changed)
	l.changed = make(chan struct{})
}

// Cut makes the given ways silent, until Heal.
func (l *Link) Cut(ways ...Way) { l.each(ways, func(w *way) { w.cut = true }) }

// Heal undoes Cut.
func (l *Link) Heal(ways ...Way) { l.each(ways, func(w *way) { w.cut = false }) }

// Delay makes all that is sent from now on arrive later by d, in its order.
func (l *Link) Delay(d time.Duration, ways ...Way) { l.each(ways, func(w *way) { w.delay = d }) }

// LimitBytes loses datagrams of more than so many bytes, as a tunnel with a low
// MTU does that tells nobody; 0 is no limit. TCP finds its way by itself.
func (l *Link) LimitBytes(mtuBytes int, ways ...Way) {
	l.each(ways, func(w *way) { w.mtuBytes = mtuBytes })
}

// Lose loses the datagrams that f says, of which it gets the number, from 0
// since the link was made, and the content; nil: none.
func (l *Link) Lose(f func(n int, datagram []byte) bool, ways ...Way) {
	l.each(ways, func(w *way) { w.lose = f })
}

// Lost returns how many datagrams one way has lost so far.
func (l *Link) Lost(w Way) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ways[w].lost
}

// Move makes new connections, and datagrams of new senders, that would go to one
// address go to another: the address now belongs to somebody else.
func (l *Link) Move(from, to string) {
	l.change(func() { l.to[from] = to })
	l.Rebind()
}

// Rebind gives datagrams another source address from now on, as a NAT that
// forgot its mapping does, or a host whose address changed.
func (l *Link) Rebind() { l.drop(func(c net.Conn) bool { _, ok := c.(*net.UDPConn); return ok }) }

// Break resets all connections. New ones can be made.
func (l *Link) Break() { l.drop(func(net.Conn) bool { return true }) }

func (l *Link) drop(which func(net.Conn) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		if which(c) {
			if tcp, ok := c.(*net.TCPConn); ok {
				_ = tcp.SetLinger(0)
			}
			c.Close()
		}
	}
}

func (l *Link) each(ways []Way, f func(*way)) {
	l.change(func() {
		for _, w := range ways {
			f(&l.ways[w])
		}
	})
}

// keep remembers a connection until the function that it returns is called;
// false when the link has ended.
func (l *Link) keep(c net.Conn) (forget func(), ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx.Err() != nil {
		c.Close()
		return nil, false
	}
	l.conns[c] = true
	return func() {
		c.Close()
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.conns, c)
	}, true
}

// target returns where what was to go to an address goes now.
func (l *Link) target(addr string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if to, ok := l.to[addr]; ok {
		return to
	}
	return addr
}

// due returns when what is sent now arrives.
func (l *Link) due(w Way) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Now().Add(l.ways[w].delay)
}

// pass waits until what was due at a time may go on; false when the link ends.
func (l *Link) pass(w Way, due time.Time) bool {
	if d := time.Until(due); d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-l.ctx.Done():
			return false
		}
	}
	for {
		l.mu.Lock()
		cut, changed := l.ways[w].cut, l.changed
		l.mu.Unlock()
		if !cut {
			return l.ctx.Err() == nil
		}
		select {
		case <-changed:
		case <-l.ctx.Done():
			return false
		}
	}
}

// carries reports whether a datagram gets through, and counts it.
func (l *Link) carries(w Way, datagram []byte) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := &l.ways[w]
	n := s.seen
	s.seen++
	if s.cut || s.mtuBytes > 0 && len(datagram) > s.mtuBytes || s.lose != nil && s.lose(n, datagram) {
		s.lost++
		return false
	}
	return true
}
