package testkit

import (
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

const (
	linkPieceBytes    = 64 << 10 // more than any datagram has
	linkPieces        = 256      // that are under way at most, one way of one connection
	maxLinkSenders    = 256      // of one UDP proxy
	linkConnectBefore = 5 * time.Second
)

// piece is what was read at once; nil bytes: the sender's side has ended.
type piece struct {
	bytes []byte
	due   time.Time
}

// TCP returns the address of a proxy: who connects to it is connected to an
// address at the link's other end. It ends with the test.
func (l *Link) TCP(t testing.TB, to string) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("listen for a link to %s: %v", to, err)
	}
	t.Cleanup(func() { ln.Close() })
	l.wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			l.wg.Go(func() { l.carryTCP(c.(*net.TCPConn), to) })
		}
	})
	return ln.Addr().String()
}

// carryTCP connects a near connection with the far end, once there is a way.
func (l *Link) carryTCP(near *net.TCPConn, to string) {
	forget, ok := l.keep(near)
	if !ok {
		return
	}
	defer forget()
	if !l.pass(There, l.due(There)) || !l.pass(Back, l.due(Back)) {
		return
	}
	d := net.Dialer{Timeout: linkConnectBefore}
	c, err := d.DialContext(l.ctx, "tcp", l.target(to))
	if err != nil {
		_ = near.SetLinger(0)
		return
	}
	far := c.(*net.TCPConn)
	forgetFar, ok := l.keep(far)
	if !ok {
		return
	}
	defer forgetFar()
	var wg sync.WaitGroup
	wg.Go(func() { l.pump(There, near, far) })
	wg.Go(func() { l.pump(Back, far, near) })
	wg.Wait()
}

// pump carries bytes one way, and their end; a reset ends both sides by one.
func (l *Link) pump(w Way, from, to *net.TCPConn) {
	pieces := make(chan piece, linkPieces)
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		broken := false
		for p := range pieces {
			switch {
			case broken || !l.pass(w, p.due):
				broken = true
			case p.bytes == nil:
				_ = to.CloseWrite()
			default:
				if _, err := to.Write(p.bytes); err != nil {
					broken = true
				}
			}
		}
		if broken {
			reset(from, to)
		}
	})
	defer close(pieces)
	for {
		b := make([]byte, linkPieceBytes)
		n, err := from.Read(b)
		if n > 0 {
			pieces <- piece{b[:n], l.due(w)}
		}
		switch {
		case err == nil:
		case errors.Is(err, io.EOF):
			pieces <- piece{nil, l.due(w)}
			return
		default:
			reset(from, to)
			return
		}
	}
}

// reset ends connections so that their peers see a reset.
func reset(conns ...*net.TCPConn) {
	for _, c := range conns {
		_ = c.SetLinger(0)
		c.Close()
	}
}

// UDP returns the address of a proxy for datagrams to an address at the link's
// other end, which sees every sender under an address of its own. It ends with
// the test.
func (l *Link) UDP(t testing.TB, to string) string {
	t.Helper()
	near, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatalf("listen for a link to %s: %v", to, err)
	}
	t.Cleanup(func() { near.Close() })
	l.wg.Go(func() { l.carryUDP(near, to) })
	return near.LocalAddr().String()
}

// carryUDP sends on what comes from each sender through a socket of its own.
func (l *Link) carryUDP(near *net.UDPConn, to string) {
	senders := make(map[string]chan piece)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer func() {
		for _, queue := range senders { // order-free: each by itself
			close(queue)
		}
	}()
	for {
		b := make([]byte, linkPieceBytes)
		n, from, err := near.ReadFromUDP(b)
		if err != nil {
			return
		}
		if !l.carries(There, b[:n]) {
			continue
		}
		queue := senders[from.String()]
		if queue == nil && len(senders) < maxLinkSenders {
			queue = make(chan piece, linkPieces)
			senders[from.String()] = queue
			wg.Go(func() { l.carrySender(near, from, to, queue) })
		}
		select {
		case queue <- piece{b[:n], l.due(There)}:
		default: // full, as a router's queue is
		}
	}
}

// carrySender sends one sender's datagrams on, and the answers back. A socket
// that Rebind closed is replaced by the next datagram.
func (l *Link) carrySender(near *net.UDPConn, from *net.UDPAddr, to string, queue <-chan piece) {
	var answers sync.WaitGroup
	defer answers.Wait()
	var far net.Conn
	forget := func() {}
	defer func() { forget() }()
	for p := range queue {
		if !l.pass(There, p.due) {
			continue
		}
		if far != nil {
			if _, err := far.Write(p.bytes); err == nil || !errors.Is(err, net.ErrClosed) {
				continue // refused, perhaps: then it is lost
			}
			forget()
		}
		c, err := net.Dial("udp", l.target(to))
		if err != nil {
			continue
		}
		f, ok := l.keep(c)
		if !ok {
			continue
		}
		far, forget = c, f
		answers.Go(func() { l.answer(near, from, c) })
		_, _ = c.Write(p.bytes)
	}
}

// answer sends back what comes for a sender, until its socket is closed.
func (l *Link) answer(near *net.UDPConn, to *net.UDPAddr, far net.Conn) {
	back := make(chan piece, linkPieces)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer close(back)
	wg.Go(func() {
		for p := range back {
			if l.pass(Back, p.due) {
				_, _ = near.WriteToUDP(p.bytes, to)
			}
		}
	})
	for {
		b := make([]byte, linkPieceBytes)
		n, err := far.Read(b)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil || !l.carries(Back, b[:n]) {
			continue // nobody listened there just now
		}
		select {
		case back <- piece{b[:n], l.due(Back)}:
		default:
		}
	}
}
