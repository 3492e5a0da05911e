package gateway

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"
)

// A client that has sent its request may end its own side of the connection and
// still read (shutdown(2), `nc -N`): it is not gone. net/http takes the end of
// what it reads for the end of the client and cancels the request. clientConn
// keeps that end from it, and finds out by other means whether somebody is there:
// it says something once, which a client that is gone answers with a reset.
//
// What is said is nothing to the client: an interim response (RFC 9110, section
// 15.2) before the head of the answer, a comment between the events of a stream.
// Where neither fits, and later on, TCP's keep-alives ask, which takes some
// seconds.

// interim is what is said before the head, chunkedComment between two events.
const (
	interim        = "HTTP/1.1 102 Processing\r\n\r\n"
	chunkedComment = "3\r\n:\n\n\r\n"
)

// sayPatience is how long a client may take to accept what is said.
const sayPatience = time.Second

// clientConn is a client's TCP connection. Only what reads one byte is told to
// wait: net/http's watch for the client's end, between a request's last byte and
// the end of its answer.
type clientConn struct {
	*net.TCPConn

	mu     sync.Mutex
	ask    string // what may be said at this moment; empty for nothing
	halved bool   // the client's side has ended
	asked  bool   // and something was said
}

// clientListener accepts clientConns.
type clientListener struct{ net.Listener }

// Accept returns the next connection, as a clientConn if it can be one.
func (l clientListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if tcp, ok := c.(*net.TCPConn); ok && err == nil && canWatchHalves {
		return &clientConn{TCPConn: tcp}, nil
	}
	return c, err
}

// Read is that of the connection, but for the end of the client's side while an
// answer is due: then it waits until the client is gone, or its caller has it
// end by a deadline.
func (c *clientConn) Read(p []byte) (int, error) {
	n, err := c.TCPConn.Read(p)
	if n > 0 || len(p) != 1 || !errors.Is(err, io.EOF) {
		return n, err
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, io.EOF
	}
	c.mu.Lock()
	if !c.halved {
		c.halved = true
		askOften(raw)
	}
	c.say()
	c.mu.Unlock()
	if err := waitForReset(raw); err != nil {
		return 0, err // a deadline, or closed here
	}
	return 0, syscall.ECONNRESET
}

// say says what may be said now, if the client's side has ended and nothing was
// said since. It needs mu.
func (c *clientConn) say() {
	if !c.halved || c.asked || c.ask == "" {
		return
	}
	c.asked = true
	// Nothing else is being written, and what is has its own limit.
	_ = c.SetWriteDeadline(time.Now().Add(sayPatience))
	if _, err := c.TCPConn.Write([]byte(c.ask)); err != nil {
		_ = c.Close() // half of it may have been said
	}
	_ = c.SetWriteDeadline(time.Time{})
}

// Write is that of the connection, one at a time with what is asked.
func (c *clientConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.TCPConn.Write(p)
}

// mayAsk says what may be said to a client from now on; empty: nothing. Before
// an answer goes on it must have been called with nothing.
func (c *clientConn) mayAsk(ask string) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ask = ask
	c.say()
}

type clientConnKey struct{}

// withClientConn lets handlers find their connection.
func withClientConn(ctx context.Context, c net.Conn) context.Context {
	if client, ok := c.(*clientConn); ok {
		return context.WithValue(ctx, clientConnKey{}, client)
	}
	return ctx
}

// clientConnOf returns the connection of a request that can be asked whether
// its client is there; nil where nobody may write to it but the server.
func clientConnOf(r *http.Request) *clientConn {
	if r.ProtoMajor != 1 || r.ProtoMinor < 1 {
		return nil
	}
	c, _ := r.Context().Value(clientConnKey{}).(*clientConn)
	return c
}

// mayAsk lets x's client be asked whether it is there, while a worker is waited
// for: everything of the answer that has begun, if any has, is on its way.
func (x *exchange) mayAsk() {
	switch {
	case x.client == nil:
	case x.status == 0:
		x.client.mayAsk(interim)
	case x.status == http.StatusOK && x.events && endsEvent(x.tail):
		x.client.mayAsk(chunkedComment)
	}
}
