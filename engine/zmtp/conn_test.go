package zmtp

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"
)

// rawPeer dials addr and does its half of the handshake by hand, with the
// given greeting and READY.
func rawPeer(t *testing.T, addr string, hello []byte) (net.Conn, *bufio.Reader) {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	nc.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := nc.Write(hello); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(nc)
	if _, err := r.Discard(greetingBytes); err != nil {
		t.Fatal(err)
	}
	if _, _, err := readFrame(r, maxHandshakeBody); err != nil {
		t.Fatal(err)
	}
	return nc, r
}

// fakeServer accepts one connection and writes hello to it.
func fakeServer(t *testing.T, hello []byte) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		nc, err := ln.Accept()
		if err != nil {
			return
		}
		defer nc.Close()
		nc.Write(hello)
		io.Copy(io.Discard, nc)
	}()
	t.Cleanup(func() { ln.Close(); <-done })
	return "tcp://" + ln.Addr().String()
}

func TestHandshakeRefusals(t *testing.T) {
	curve, old := greeting(), greeting()
	copy(curve[12:], "CURVE")
	old[10] = 2
	for want, hello := range map[string][]byte{
		"is this a ZeroMQ port?":    []byte("HTTP/1.1 400 Bad Request\r\n\r\n"),
		"NULL is supported":         curve,
		"need 3 or later":           old,
		`peer is a "SUB" socket`:    append(greeting(), ready(SUB)...),
		`peer refuses: "go away"`:   appendCommand(greeting(), "ERROR", []byte("\x07go away")),
		`command "HELLO" in place`:  appendCommand(greeting(), "HELLO", nil),
		"message before READY":      appendFrame(greeting(), 0, nil),
		"READY property cut short":  appendCommand(greeting(), "READY", []byte("\x0bSocket-Type\x00\x00\x00\x09PUB")),
		"i/o timeout":               nil,
		"frame of 1099511627776 by": append(greeting(), flagCommand|flagLong, 0, 0, 1, 0, 0, 0, 0, 0),
	} {
		timeout := 10 * time.Second
		if hello == nil {
			timeout = 20 * time.Millisecond
		}
		_, err := Dial(t.Context(), fakeServer(t, hello), Options{Type: SUB, HandshakeTimeout: timeout})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestDialEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := Dial(ctx, fakeServer(t, nil), Options{Type: SUB, HandshakeTimeout: time.Hour})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v, want the context's error", err)
	}
}

func TestDialBadArguments(t *testing.T) {
	for _, endpoint := range []string{"", "127.0.0.1:5557", "ipc:///tmp/x", "tcp://host", "tcp://host:"} {
		if _, err := Dial(t.Context(), endpoint, Options{Type: SUB}); err == nil || !strings.Contains(err.Error(), "want tcp://host:port") {
			t.Errorf("%q: %v", endpoint, err)
		}
	}
	if _, err := Dial(t.Context(), "tcp://127.0.0.1:1", Options{}); err == nil {
		t.Error("a socket without type")
	}
}

func TestRecvDeadlineAndClose(t *testing.T) {
	pub, err := ListenPub("127.0.0.1:0", PubOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer pub.Close()
	c, err := Dial(t.Context(), "tcp://"+pub.Addr().String(), Options{Type: SUB})
	if err != nil {
		t.Fatal(err)
	}
	c.SetRecvDeadline(time.Now().Add(time.Millisecond))
	if _, err := c.Recv(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%v, want a deadline error", err)
	}
	c.SetRecvDeadline(time.Time{})
	got := make(chan error)
	go func() {
		_, err := c.Recv()
		got <- err
	}()
	c.Close()
	if err := <-got; !errors.Is(err, net.ErrClosed) {
		t.Errorf("%v, want net.ErrClosed", err)
	}
}

func TestConnAnswersPing(t *testing.T) {
	ln, err := Listen(t.Context(), "tcp://127.0.0.1:0", Options{Type: DEALER})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	accepted := make(chan *Conn, 1)
	go func() {
		c, err := ln.Accept(t.Context())
		if err != nil {
			t.Error(err)
		}
		accepted <- c
	}()
	nc, r := rawPeer(t, ln.Addr().String(), append(greeting(), ready(ROUTER)...))
	nc.Write(appendCommand(nil, "PING", []byte{0, 9, 'h', 'i'}))
	nc.Write(appendCommand(nil, "NOVEL", nil))
	nc.Write(encodeMessage([][]byte{{1}}))
	c := <-accepted
	if c == nil {
		t.FailNow()
	}
	defer c.Close()
	if m, err := c.Recv(); err != nil || len(m) != 1 {
		t.Fatalf("%v, %v", m, err)
	}
	flags, body, err := readFrame(r, 100)
	if err != nil || flags != flagCommand || string(body) != "\x04PONGhi" {
		t.Errorf("PING was answered by %x %q, %v", flags, body, err)
	}
	nc.Write(appendCommand(nil, "ERROR", []byte("\x03bad")))
	if _, err := c.Recv(); err == nil || !strings.Contains(err.Error(), `"bad"`) {
		t.Errorf("%v, want the peer's reason", err)
	}
}
