package transport

import (
	"context"
	"io"
	"os"
	"sync"
	"time"

	"github.com/quic-go/quic-go"
)

// memoryPipe is one direction of a stream in a Network: a writer at one end of
// a link, a reader at the other, and segments on their way, in order.
type memoryPipe struct {
	from     *memoryLink // the writer's end
	announce func()      // tells the other end of the stream, when the first segment arrives
	over     func()      // both the writer and the reader are done

	mu        sync.Mutex
	way       []*segment // on their way, in the order of the stream
	wayBytes  int
	here      []byte // arrived, not read
	known     bool   // announced
	finished  bool   // the writer closed
	ended     bool   // and the reader was told
	broken    error  // the writer cancelled; what the reader gets
	refused   error  // the reader cancelled; what the writer gets
	closedOut bool
	closedIn  bool
	writing   deadline
	reading   deadline
	room      chan struct{} // signals the writer
	data      chan struct{} // signals the reader
}

// segment is what one write sent, or the end, or the writer's cancelling.
type segment struct {
	b      []byte
	end    bool
	abort  error
	landed bool // arrived, perhaps before one that comes first
}

func newMemoryPipe(from *memoryLink, over func()) *memoryPipe {
	return &memoryPipe{from: from, over: over, announce: func() {}, room: make(chan struct{}, 1), data: make(chan struct{}, 1),
		writing: newDeadline(), reading: newDeadline()}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// queue puts a segment on its way. The caller holds the lock.
func (p *memoryPipe) queue(s *segment) {
	p.way = append(p.way, s)
	p.wayBytes += len(s.b)
	n := p.from.carrier.network
	alive := func() bool { return p.from.ctx.Err() == nil && !p.from.carrier.gone() }
	n.surely(p.from.carrier.at, p.from.to, alive, func() { p.land(s) })
}

// land notes that a segment arrived and hands on what is in order by now.
func (p *memoryPipe) land(s *segment) {
	if p.from.ctx.Err() != nil || !p.from.other.arrives() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.known {
		p.known = true
		p.announce()
	}
	s.landed = true
	for len(p.way) > 0 && p.way[0].landed {
		s := p.way[0]
		p.way = p.way[1:]
		p.here = append(p.here, s.b...)
		p.wayBytes -= len(s.b)
		p.ended = p.ended || s.end
		if s.abort != nil {
			p.broken = s.abort
		}
	}
	signal(p.data)
}

// used is how much of the window is taken. The caller holds the lock.
func (p *memoryPipe) used() int { return p.wayBytes + len(p.here) }

// done notes that a side is done with the pipe. The caller holds the lock.
func (p *memoryPipe) done(side *bool) {
	was := p.closedIn && p.closedOut
	*side = true
	if !was && p.closedIn && p.closedOut {
		p.over()
	}
}

// pipeWriter is the writer's side.
type pipeWriter struct{ p *memoryPipe }

// state returns why nothing can be written. The caller holds the lock.
func (w pipeWriter) state() error {
	p := w.p
	switch {
	case p.from.ctx.Err() != nil:
		return context.Cause(p.from.ctx)
	case p.refused != nil:
		return p.refused
	case p.finished:
		return errStreamClosed
	case p.writing.passed():
		return os.ErrDeadlineExceeded
	}
	return nil
}

func (w pipeWriter) Write(b []byte) (int, error) {
	p, n := w.p, 0
	for {
		p.mu.Lock()
		if err := w.state(); err != nil {
			p.mu.Unlock()
			return n, err
		}
		if free := streamWindowBytes - p.used(); free > 0 && n < len(b) {
			k := min(free, len(b)-n)
			p.queue(&segment{b: append([]byte(nil), b[n:n+k]...)})
			n += k
		}
		passed := p.writing.wait()
		p.mu.Unlock()
		if n == len(b) {
			return n, nil
		}
		select {
		case <-p.room:
		case <-passed:
		case <-p.from.ctx.Done():
		}
	}
}

func (w pipeWriter) TryWriteAll(b []byte) error {
	p := w.p
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := w.state(); err != nil {
		return err
	}
	if p.used()+len(b) > streamWindowBytes {
		return quic.ErrWouldBlock
	}
	p.queue(&segment{b: append([]byte(nil), b...)})
	return nil
}

func (w pipeWriter) SetPriority(int8, bool) {}

func (w pipeWriter) SetWriteDeadline(t time.Time) error {
	w.p.mu.Lock()
	defer w.p.mu.Unlock()
	w.p.writing.set(t)
	signal(w.p.room)
	return nil
}

func (w pipeWriter) Close() error {
	p := w.p
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.finished {
		p.finished = true
		p.writing.set(time.Time{})
		p.queue(&segment{end: true})
		p.done(&p.closedOut)
	}
	return nil
}

func (w pipeWriter) CancelWrite(code quic.StreamErrorCode) {
	p := w.p
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.finished {
		p.finished = true
		p.writing.set(time.Time{})
		p.queue(&segment{abort: &quic.StreamError{ErrorCode: code, Remote: true}})
		p.done(&p.closedOut)
		signal(p.room)
	}
}

// pipeReader is the reader's side.
type pipeReader struct{ p *memoryPipe }

func (r pipeReader) Read(b []byte) (int, error) {
	p := r.p
	there := p.from.other
	for {
		p.mu.Lock()
		passed := p.reading.wait()
		switch {
		case p.closedIn:
			p.mu.Unlock()
			return 0, &quic.StreamError{}
		case p.reading.passed():
			p.mu.Unlock()
			return 0, os.ErrDeadlineExceeded
		case p.broken != nil:
			p.mu.Unlock()
			return 0, p.broken
		case len(p.here) > 0:
			n := copy(b, p.here)
			if p.here = p.here[n:]; len(p.here) == 0 {
				p.here = nil
			}
			p.mu.Unlock()
			signal(p.room)
			return n, nil
		case p.ended:
			p.mu.Unlock()
			return 0, io.EOF
		case there.ctx.Err() != nil:
			p.mu.Unlock()
			return 0, context.Cause(there.ctx)
		}
		p.mu.Unlock()
		select {
		case <-p.data:
		case <-passed:
		case <-there.ctx.Done():
		}
	}
}

func (r pipeReader) SetReadDeadline(t time.Time) error {
	r.p.mu.Lock()
	defer r.p.mu.Unlock()
	r.p.reading.set(t)
	signal(r.p.data)
	return nil
}

// CancelRead makes the writer's next write fail.
func (r pipeReader) CancelRead(code quic.StreamErrorCode) {
	p := r.p
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closedIn {
		return
	}
	p.reading.set(time.Time{})
	p.done(&p.closedIn)
	p.here = nil
	signal(p.data)
	if p.ended {
		return
	}
	back := p.from.other
	if back.carrier == nil || back.carrier.gone() {
		return
	}
	back.carrier.network.surely(back.carrier.at, back.to, func() bool { return back.ctx.Err() == nil && !back.carrier.gone() }, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.refused = &quic.StreamError{ErrorCode: code, Remote: true}
		signal(p.room)
	})
}

// SetDeadline sets both sides' deadlines.
func (s *memoryStream) SetDeadline(t time.Time) error {
	_ = s.SetReadDeadline(t)
	return s.SetWriteDeadline(t)
}

// deadline is a time after which a blocked call returns. Its owner locks.
type deadline struct {
	at    time.Time
	timer *time.Timer
	c     chan struct{} // closed when the time comes
}

func newDeadline() deadline { return deadline{c: make(chan struct{})} }

func (d *deadline) set(t time.Time) {
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	d.at, d.c = t, make(chan struct{})
	if !t.IsZero() {
		c := d.c
		d.timer = time.AfterFunc(time.Until(t), func() { close(c) })
	}
}

func (d *deadline) passed() bool { return !d.at.IsZero() && !time.Now().Before(d.at) }

func (d *deadline) wait() <-chan struct{} { return d.c }
