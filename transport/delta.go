package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"

	"github.com/quic-go/quic-go"
)

// Class says what kind of frames a stream carries; what it means is the
// sender's and the receiver's affair. Streams of different classes don't hold
// each other up. A peer lets 16 streams be open at a time: enough for eight
// classes, with old streams and new ones.
type Class uint8

// deltaQueue bounds the streams that wait for Accept.
const deltaQueue = 256

// maxTryBytes is the largest frame that TrySend can take: what fits a window.
const maxTryBytes = streamWindowBytes - frameHeaderBytes

// Delta is the plane of deltas: frames on one-way streams.
type Delta struct {
	endpoint *Endpoint
	inbound  chan *Inbound
}

func newDelta(e *Endpoint) *Delta {
	return &Delta{endpoint: e, inbound: make(chan *Inbound, deltaQueue)}
}

// Open returns the connection with a peer, ip:port, and makes it if need be.
func (d *Delta) Open(ctx context.Context, addr string) (*Channel, error) {
	at, err := parsePeer(addr)
	if err != nil {
		return nil, err
	}
	s, err := d.endpoint.connect(ctx, DeltaPlane, at)
	if err != nil {
		return nil, err
	}
	return &Channel{session: s}, nil
}

// Accept returns the next stream that a peer opened; net.ErrClosed when the
// endpoint is closed.
func (d *Delta) Accept(ctx context.Context) (*Inbound, error) {
	select {
	case in := <-d.inbound:
		return in, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-d.endpoint.ctx.Done():
		return nil, net.ErrClosed
	}
}

// receive hands on the streams that the peer of a session opens.
func (d *Delta) receive(s *session) {
	for {
		st, err := s.acceptUni(s.Context())
		if err != nil {
			return
		}
		s.streams.Add(1)
		in := &Inbound{session: s, stream: st, frames: newFrameReader(st, MaxFrameBytes)}
		select {
		case d.inbound <- in:
		default:
			d.endpoint.metrics.dropped.WithLabelValues("streams").Inc()
			in.end(codeFull)
		}
	}
}

// Channel is a connection with a peer on the delta plane.
type Channel struct{ session *session }

// Peer returns who is at the other end.
func (c *Channel) Peer() Peer { return c.session.peer }

// Done is closed when the connection ends. Its streams end with it; Open makes
// another.
func (c *Channel) Done() <-chan struct{} { return c.session.Context().Done() }

// Stream opens a stream for frames of one class. It waits while the peer lets no
// more be open. The stream belongs to one goroutine.
func (c *Channel) Stream(ctx context.Context, class Class) (*Outbound, error) {
	st, err := c.session.openUni(ctx)
	if err != nil {
		return nil, fmt.Errorf("open a stream to %s: %w", c.session.peer, err)
	}
	c.session.streams.Add(1)
	o := &Outbound{session: c.session, stream: st}
	if _, err := st.Write([]byte{byte(class)}); err != nil {
		o.Close()
		return nil, fmt.Errorf("open a stream to %s: %w", c.session.peer, err)
	}
	return o, nil
}

// Outbound is a stream of frames to a peer. It belongs to one goroutine.
type Outbound struct {
	session *session
	stream  sendStream
	buffer  []byte
	once    sync.Once
}

// keepBytes is how large a buffer a stream keeps between frames.
const keepBytes = 256 << 10

// frame returns payload as a frame, until the next call.
func (o *Outbound) frame(payload []byte) []byte {
	if cap(o.buffer) > keepBytes {
		o.buffer = nil
	}
	o.buffer = appendFrame(slices.Grow(o.buffer[:0], frameHeaderBytes+len(payload)), payload)
	return o.buffer
}

// Send sends a frame of at most MaxFrameBytes and waits until the peer's window
// takes it or ctx ends, after which the stream is of no more use.
func (o *Outbound) Send(ctx context.Context, payload []byte) error {
	if len(payload) > MaxFrameBytes {
		return fmt.Errorf("send a frame of %d bytes to %s: at most %d", len(payload), o.session.peer, MaxFrameBytes)
	}
	stop := context.AfterFunc(ctx, func() { o.stream.CancelWrite(codeDone) })
	defer stop()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	n, err := o.stream.Write(o.frame(payload))
	o.session.endpoint.metrics.wrote(DeltaPlane, n)
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return fmt.Errorf("send a frame to %s: %w", o.session.peer, err)
	}
	return nil
}

// TrySend queues a frame without waiting. ErrFull means that nothing was
// queued, because the peer doesn't keep up or the frame doesn't fit its window
// (2 MiB); the stream goes on. Any other error ends it.
func (o *Outbound) TrySend(payload []byte) error {
	if len(payload) > maxTryBytes {
		return ErrFull
	}
	switch err := o.stream.TryWriteAll(o.frame(payload)); {
	case errors.Is(err, quic.ErrWouldBlock):
		return ErrFull
	case err != nil:
		return fmt.Errorf("send a frame to %s: %w", o.session.peer, err)
	}
	o.session.endpoint.metrics.wrote(DeltaPlane, len(o.buffer))
	return nil
}

// Close ends the stream after what was sent.
func (o *Outbound) Close() {
	o.once.Do(func() {
		_ = o.stream.Close() // fails for a stream that ended before
		o.session.touch()
		o.session.streams.Add(-1)
	})
}

// Inbound is a stream of frames from a peer. It belongs to one goroutine.
type Inbound struct {
	session *session
	stream  receiveStream
	frames  *frameReader
	once    sync.Once
}

// Peer returns who sends.
func (in *Inbound) Peer() Peer { return in.session.peer }

// Class returns what the sender opened the stream for. It waits for the
// stream's first byte and must be called once, before Receive.
func (in *Inbound) Class() (Class, error) {
	var b [1]byte
	if _, err := io.ReadFull(in.stream, b[:]); err != nil {
		in.end(codeDone)
		return 0, fmt.Errorf("receive from %s: %w", in.session.peer, err)
	}
	return Class(b[0]), nil
}

// Receive returns the next frame's payload, which is the caller's to keep. The
// error is io.EOF after the last one; any other one also ends the stream.
func (in *Inbound) Receive() ([]byte, error) {
	b, err := in.frames.next()
	if err == nil {
		in.session.endpoint.metrics.read(DeltaPlane, frameHeaderBytes+len(b))
		return b, nil
	}
	if err == io.EOF {
		in.end(codeDone)
		return nil, io.EOF
	}
	var bad *FrameError
	if errors.As(err, &bad) {
		in.session.endpoint.refusals.badFrame(in.session.peer, bad)
		in.end(codeBadFrame)
	} else {
		in.end(codeDone)
	}
	return nil, fmt.Errorf("receive from %s: %w", in.session.peer, err)
}

// Close tells the sender that nobody reads any more. Any goroutine may call it;
// a Receive that waits fails.
func (in *Inbound) Close() { in.end(codeDone) }

func (in *Inbound) end(code quic.StreamErrorCode) {
	in.once.Do(func() {
		in.stream.CancelRead(code)
		in.session.touch()
		in.session.streams.Add(-1)
	})
}
