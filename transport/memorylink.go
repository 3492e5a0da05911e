package transport

import (
	"context"
	"errors"
	"net/netip"
	"sync"

	"github.com/quic-go/quic-go"
)

// memoryLink is one end of a connection in a Network.
type memoryLink struct {
	of      Plane
	carrier *memoryCarrier // whose end this is; for the dialled end, set when it is offered
	to      netip.AddrPort
	other   *memoryLink
	ctx     context.Context
	end     context.CancelCauseFunc

	datagrams chan []byte
	bidi      chan *memoryStream
	uni       chan *memoryPipe
	credit    [2]chan struct{} // one per stream that may yet be opened: two-way, one-way
}

// newMemoryLinks returns the two ends of a connection, the dialler's first.
func newMemoryLinks(c *memoryCarrier, p Plane, to netip.AddrPort) (mine, theirs *memoryLink) {
	half := func() *memoryLink {
		l := &memoryLink{of: p, datagrams: make(chan []byte, 128), bidi: make(chan *memoryStream, maxBidiStreams),
			uni: make(chan *memoryPipe, maxUniStreams)}
		l.credit = [2]chan struct{}{make(chan struct{}, maxBidiStreams), make(chan struct{}, maxUniStreams)}
		for _, credit := range l.credit {
			for range cap(credit) {
				credit <- struct{}{}
			}
		}
		l.ctx, l.end = context.WithCancelCause(context.Background())
		return l
	}
	mine, theirs = half(), half()
	mine.carrier, mine.to, mine.other = c, to, theirs
	theirs.to, theirs.other = c.at, mine
	return mine, theirs
}

func (l *memoryLink) plane() Plane             { return l.of }
func (l *memoryLink) remote() netip.AddrPort   { return l.to }
func (l *memoryLink) boot() string             { return "" }
func (l *memoryLink) Context() context.Context { return l.ctx }

// fail ends this end.
func (l *memoryLink) fail(err error) { l.end(err) }

func (l *memoryLink) close(why string) {
	l.fail(&quic.ApplicationError{ErrorMessage: why})
	if l.carrier.gone() {
		return // crashed: nobody hears of it
	}
	other := l.other
	l.carrier.network.packet(l.carrier.at, l.to, func() {
		other.fail(&quic.ApplicationError{Remote: true, ErrorMessage: why})
	})
}

// arrives says whether what comes for this end finds it. If another endpoint
// has its address by now, that one answers with a reset.
func (l *memoryLink) arrives() bool {
	if l.carrier == nil {
		return false
	}
	if !l.carrier.gone() {
		return l.ctx.Err() == nil
	}
	if n := l.carrier.network; n.node(l.carrier.at) != nil {
		n.packet(l.carrier.at, l.to, func() { l.other.fail(&quic.StatelessResetError{}) })
	}
	return false
}

func (l *memoryLink) SendDatagram(b []byte) error {
	if l.ctx.Err() != nil {
		return context.Cause(l.ctx)
	}
	if len(b) > maxDatagramBytes {
		return &quic.DatagramTooLargeError{MaxDatagramPayloadSize: maxDatagramBytes}
	}
	other := l.other
	l.carrier.network.packet(l.carrier.at, l.to, func() {
		if other.arrives() {
			select {
			case other.datagrams <- append([]byte(nil), b...):
			default: // the reader is too slow
			}
		}
	})
	return nil
}

func (l *memoryLink) ReceiveDatagram(ctx context.Context) ([]byte, error) {
	select {
	case b := <-l.datagrams:
		return b, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-l.ctx.Done():
		return nil, context.Cause(l.ctx)
	}
}

// take waits for the right to open a stream.
func (l *memoryLink) take(ctx context.Context, kind int) error {
	if l.ctx.Err() != nil {
		return context.Cause(l.ctx)
	}
	select {
	case <-l.credit[kind]:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-l.ctx.Done():
		return context.Cause(l.ctx)
	}
}

// giveBack is called when a stream that this end opened is over.
func (l *memoryLink) giveBack(kind int) func() {
	return sync.OnceFunc(func() { l.credit[kind] <- struct{}{} })
}

func (l *memoryLink) openUni(ctx context.Context) (sendStream, error) {
	if err := l.take(ctx, 1); err != nil {
		return nil, err
	}
	p := newMemoryPipe(l, l.giveBack(1))
	other := l.other
	p.announce = func() {
		select {
		case other.uni <- p:
		default: // can't be: credit bounds them
		}
	}
	return pipeWriter{p}, nil
}

func (l *memoryLink) acceptUni(ctx context.Context) (receiveStream, error) {
	select {
	case p := <-l.uni:
		return pipeReader{p}, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-l.ctx.Done():
		return nil, context.Cause(l.ctx)
	}
}

func (l *memoryLink) openStream(ctx context.Context) (bidiStream, error) {
	if err := l.take(ctx, 0); err != nil {
		return nil, err
	}
	back := l.giveBack(0)
	var mu sync.Mutex
	open := 2
	over := func() { // when both directions are
		mu.Lock()
		defer mu.Unlock()
		if open--; open == 0 {
			back()
		}
	}
	there, here := newMemoryPipe(l, over), newMemoryPipe(l.other, over)
	other := l.other
	there.announce = func() {
		select {
		case other.bidi <- &memoryStream{pipeWriter{here}, pipeReader{there}}:
		default: // can't be: credit bounds them
		}
	}
	return &memoryStream{pipeWriter{there}, pipeReader{here}}, nil
}

func (l *memoryLink) acceptStream(ctx context.Context) (bidiStream, error) {
	select {
	case s := <-l.bidi:
		return s, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-l.ctx.Done():
		return nil, context.Cause(l.ctx)
	}
}

// memoryStream is two pipes.
type memoryStream struct {
	pipeWriter
	pipeReader
}

var errStreamClosed = errors.New("write on a stream that is closed")
