package zmtp

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"
)

// Options says what a client connection is. The zero value of each limit takes
// its default.
type Options struct {
	Type SocketType // SUB or DEALER

	// Subscribe is the topic prefix of a SUB; empty takes every message.
	Subscribe []byte

	// MaxMessageBytes bounds one message, all frames together. Default 64 MiB.
	MaxMessageBytes int
	// MaxParts bounds the frames of one message. Default 64.
	MaxParts int
	// HandshakeTimeout bounds greeting and READY after the TCP connection
	// stands. Default 5 s.
	HandshakeTimeout time.Duration
	// WriteTimeout bounds each Send and each answer to a PING. Default 10 s.
	WriteTimeout time.Duration
	// Dialer is what Dial connects with. Default: a plain one.
	Dialer *net.Dialer
}

func (o Options) withDefaults() (Options, error) {
	if o.Type != SUB && o.Type != DEALER {
		return o, fmt.Errorf("socket type %q: want SUB or DEALER", o.Type)
	}
	o.MaxMessageBytes = orDefault(o.MaxMessageBytes, defaultMessageBytes)
	o.MaxParts = orDefault(o.MaxParts, defaultParts)
	o.HandshakeTimeout = orDefault(o.HandshakeTimeout, defaultHandshakeTimeout)
	o.WriteTimeout = orDefault(o.WriteTimeout, defaultWriteTimeout)
	return o, nil
}

const (
	defaultMessageBytes = 64 << 20
	defaultParts        = 64
	defaultWriteTimeout = 10 * time.Second
)

func orDefault[T int | time.Duration](v, otherwise T) T {
	if v <= 0 {
		return otherwise
	}
	return v
}

// Conn is a connection to one peer, made by [Dial] or a [Listener]. One
// goroutine may Recv while others Send; Close may be called from anywhere and
// unblocks both. After an error of Recv the connection is of no use any more.
type Conn struct {
	nc  net.Conn
	in  receiver
	opt Options

	wmu sync.Mutex // serialises writes
	w   []byte     // scratch of writes
}

// ParseEndpoint returns the host:port of an endpoint "tcp://host:port". The
// host "*" stands for every address (for listening).
func ParseEndpoint(endpoint string) (string, error) {
	addr, ok := strings.CutPrefix(endpoint, "tcp://")
	if !ok {
		return "", fmt.Errorf("endpoint %q: want tcp://host:port", endpoint)
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil || port == "" {
		return "", fmt.Errorf("endpoint %q: want tcp://host:port", endpoint)
	}
	if host == "*" {
		host = ""
	}
	return net.JoinHostPort(host, port), nil
}

// Dial connects to endpoint "tcp://host:port", shakes hands and, as a SUB,
// subscribes. ctx bounds Dial only, not the connection.
func Dial(ctx context.Context, endpoint string, opt Options) (*Conn, error) {
	addr, err := ParseEndpoint(endpoint)
	if err != nil {
		return nil, fmt.Errorf("zmtp: %w", err)
	}
	opt, err = opt.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("zmtp: dial %s: %w", endpoint, err)
	}
	d := cmp.Or(opt.Dialer, new(net.Dialer))
	nc, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("zmtp: dial %s: %w", endpoint, err)
	}
	c, err := newConn(ctx, nc, opt)
	if err != nil {
		return nil, fmt.Errorf("zmtp: dial %s: %w", endpoint, err)
	}
	return c, nil
}

// newConn shakes hands on nc and subscribes. It closes nc when it fails.
func newConn(ctx context.Context, nc net.Conn, opt Options) (*Conn, error) {
	tune(nc)
	r := bufio.NewReaderSize(nc, readBuffer)
	c := &Conn{nc: nc, opt: opt}
	c.in = receiver{r: r, maxBytes: opt.MaxMessageBytes, maxParts: opt.MaxParts, command: c.command}
	_, err := handshake(ctx, nc, r, opt.Type, opt.HandshakeTimeout)
	if err == nil && opt.Type == SUB {
		err = c.Send(append([]byte{1}, opt.Subscribe...))
	}
	if err != nil {
		nc.Close()
		return nil, err
	}
	return c, nil
}

// Recv returns the next message's frames, which are the caller's to keep; an
// empty frame is nil. It answers PINGs while it waits, so somebody must be in
// Recv for a peer with heartbeats to stay. It returns io.EOF when the peer
// closed the connection between messages.
func (c *Conn) Recv() ([][]byte, error) { return c.in.message() }

func (c *Conn) command(name string, data []byte) error {
	if name != "PING" {
		return nil // what a later minor version may add
	}
	answer, err := pong(data)
	if err != nil {
		return err
	}
	return c.write(func(b []byte) []byte { return append(b, answer...) })
}

// Send writes one message and returns when the kernel has it.
func (c *Conn) Send(frames ...[]byte) error {
	if len(frames) == 0 {
		return errors.New("zmtp: a message needs at least one frame")
	}
	return c.write(func(b []byte) []byte { return appendMessage(b, frames) })
}

func (c *Conn) write(encode func([]byte) []byte) error {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	c.w = encode(c.w[:0])
	if err := c.nc.SetWriteDeadline(time.Now().Add(c.opt.WriteTimeout)); err != nil {
		return err
	}
	_, err := c.nc.Write(c.w)
	return err
}

// SetRecvDeadline makes a Recv that waits at t or later fail with
// os.ErrDeadlineExceeded; the zero time means to wait for ever.
func (c *Conn) SetRecvDeadline(t time.Time) error { return c.nc.SetReadDeadline(t) }

// RemoteAddr returns the peer's address.
func (c *Conn) RemoteAddr() net.Addr { return c.nc.RemoteAddr() }

// Close ends the connection.
func (c *Conn) Close() error { return c.nc.Close() }
