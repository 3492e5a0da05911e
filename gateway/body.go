package gateway

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rhizome-router/rhizome/prompt"
)

// Sizes of the first piece of memory a body gets, however long it says it is.
// It grows as bytes arrive.
const (
	firstBodyBytes  = 16 << 10
	firstSizedBytes = 64 << 10 // when the length is announced
)

// maxSizedGrowth is how many times what has arrived of a body of announced
// length it may take in memory.
const maxSizedGrowth = 16

// smallBodyBytes is the size up to which a body may use the last eighth of the
// budget, so that a few large ones don't keep all others out.
const smallBodyBytes = 1 << 20

// body is a request's body: what is held of it in memory, and what follows.
type body struct {
	received []byte // as received; all of it when rest is nil
	plain    []byte // received without its Content-Encoding; the same when it has none
	rest     *rest  // what has not been read yet; nil when nothing is left
	reserved int64  // bytes of memory taken from the budget
	pooled   [][]byte
}

// bodyReader finds in a body what routing needs, while it arrives.
// *prompt.Scanner is the one for JSON.
type bodyReader interface {
	// Scan reads what is new in body, which holds all that it was given before.
	Scan(body []byte) error
	// End tells that the body is whole.
	End() error
	// Model returns the model named so far.
	Model(body []byte) string
	Request(kind prompt.Kind, body []byte, rename func(string) string) (*prompt.Request, error)
}

// readBody reads the body as it is on the wire, and lets look read it as it
// comes. A long body is read until its model is known and no further than what
// is kept for a second attempt: the rest then goes straight to the worker.
func (g *Gateway) readBody(x *exchange, look bodyReader) error {
	upload := &rest{
		body: x.r.Body, control: http.NewResponseController(x.w), idle: g.cfg.UploadTimeout, rate: g.cfg.UploadMinBytesPerSecond,
		left: g.cfg.MaxBodyBytes, tooLarge: fmt.Errorf("%w: the limit is %d bytes", errBodyTooLarge, g.cfg.MaxBodyBytes),
	}
	if x.r.ContentLength > g.cfg.MaxBodyBytes {
		upload.limit() // the server waits a while for the rest, to be polite
		x.w.Header().Set("Connection", "close")
		return upload.tooLarge
	}
	first := int64(firstBodyBytes)
	if n := x.r.ContentLength; n >= 0 {
		first = min(n+1, firstSizedBytes) // one more, to see the end without growing
	}
	coding := x.r.Header.Values("Content-Encoding")
	if encoded(coding) {
		err := g.readAll(x, &x.body.received, upload, first, nil, 0)
		if err == nil {
			err = g.decode(x, coding, look)
		}
		return g.uploadFailed(x, err)
	}
	enough := g.cfg.ReplayBytes
	if len(x.caller.models) > 0 || x.whole {
		enough = 0 // of two models that a body names the last counts: it has to be seen
	}
	err := g.readAll(x, &x.body.received, upload, first, look, enough)
	x.body.plain = x.body.received
	if err == nil && !upload.ended.Load() {
		x.body.rest = upload
		return nil
	}
	if err == nil {
		err = look.End()
	}
	return g.uploadFailed(x, err)
}

// uploadFailed makes sure that what is left of a body that can't be used is
// not taken for the connection's next request.
func (g *Gateway) uploadFailed(x *exchange, err error) error {
	if errors.Is(err, errBodyTooLarge) {
		x.w.Header().Set("Connection", "close") // the rest is not read
	}
	return err
}

// readAll reads r into dst: to its end, or where enough is above 0 until dst
// has that many bytes and look has found the model in them. The memory counts
// as x's until release.
func (g *Gateway) readAll(x *exchange, dst *[]byte, r io.Reader, firstBytes int64, look bodyReader, enough int64) error {
	b := *dst
	defer func() { *dst = b }()
	for {
		if len(b) == cap(b) {
			if enough > 0 && int64(len(b)) >= enough && look.Model(b) != "" {
				return nil
			}
			size := max(firstBytes, 2*int64(cap(b)))
			if n := x.r.ContentLength; enough > 0 && n >= int64(cap(b)) {
				size = min(max(size, maxSizedGrowth*int64(cap(b))), n+1)
			}
			if enough > 0 && int64(cap(b)) < enough {
				size = min(size, enough)
			}
			grown, err := g.grow(x, b, min(size, g.cfg.MaxBodyBytes+1))
			if err != nil {
				return err
			}
			b = grown
		}
		n, err := r.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		if look != nil && n > 0 {
			if err := look.Scan(b); err != nil {
				return err
			}
		}
		switch {
		case int64(len(b)) > g.cfg.MaxBodyBytes:
			return errBodyTooLarge
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

// release gives the memory of x's bodies back. No attempt uses it any more.
func (g *Gateway) release(x *exchange) {
	for _, b := range x.body.pooled {
		g.memory.put(b)
	}
	g.buffered.Add(-x.body.reserved)
	g.metrics.bufferedBytes.Sub(float64(x.body.reserved))
	x.body = body{}
}

// grow returns b in memory of size bytes, more than it had, taken from the budget of
// all bodies; b's own memory goes back to the pool.
func (g *Gateway) grow(x *exchange, b []byte, size int64) ([]byte, error) {
	n := size - int64(cap(b))
	budget := g.cfg.BufferBudgetBytes
	if size > smallBodyBytes {
		budget -= budget / 8 // large bodies leave room for small ones
	}
	if g.buffered.Add(n) > budget {
		g.buffered.Add(-n)
		return b, errBufferBudget
	}
	x.body.reserved += n
	g.metrics.bufferedBytes.Add(float64(n))
	whole := g.memory.get(size)
	grown := append(whole[:0:size], b...)
	for i, old := range x.body.pooled {
		if cap(b) > 0 && &old[:1][0] == &b[:1][0] {
			g.memory.put(old)
			x.body.pooled[i] = whole
			return grown, nil
		}
	}
	x.body.pooled = append(x.body.pooled, whole)
	return grown, nil
}

// memory is a pool of buffers in powers of two.
type memory struct{ classes [10]sync.Pool }

const leastPooledBytes = 16 << 10

// get returns an empty buffer of at least size bytes.
func (m *memory) get(size int64) []byte {
	for i := range m.classes {
		if class := int64(leastPooledBytes) << i; size <= class {
			if b, ok := m.classes[i].Get().(*[]byte); ok {
				return (*b)[:0]
			}
			return make([]byte, 0, class)
		}
	}
	return make([]byte, 0, size) // too large to be kept
}

// put takes a buffer back that get gave.
func (m *memory) put(b []byte) {
	for i := range m.classes {
		if cap(b) == leastPooledBytes<<i {
			b = b[:0]
			m.classes[i].Put(&b)
		}
	}
}

// rest is what a client is still sending of a body.
type rest struct {
	body     io.Reader
	control  *http.ResponseController
	idle     time.Duration // how long the client may pause; none where it isn't positive
	rate     int64         // bytes per second that must come on the whole; none where it isn't positive
	late     time.Duration // by how much the client is behind that rate
	left     int64         // bytes that may still come
	tooLarge error

	ended atomic.Bool // everything has been read
	begun atomic.Bool // a worker has been sent some of it
	given atomic.Bool // up: see abandon
	mu    sync.Mutex  // guards err, and the deadline of what is still to come
	err   error       // why it can't be read on, for whoever asks later
}

// Read returns what comes next, or which of the limits was reached.
func (r *rest) Read(p []byte) (int, error) {
	r.limit()
	begun := time.Now()
	n, err := r.body.Read(p)
	r.left -= int64(n)
	if r.rate > 0 { // what passed between two reads is the worker's time
		r.late += time.Since(begun) - time.Duration(float64(n)/float64(r.rate)*float64(time.Second))
		r.late = max(r.late, 0) // a fast start buys no pause later
	}
	switch {
	case r.left < 0:
		err = r.tooLarge
	case err == nil:
		return n, nil
	case errors.Is(err, io.EOF):
		r.mu.Lock()
		defer r.mu.Unlock()
		r.ended.Store(true)
		_ = r.control.SetReadDeadline(time.Time{})
		return n, io.EOF
	case isTimeout(err):
		err = errBodySlow
	default:
		err = errClientGone
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		r.err = err
	}
	return n, r.err
}

// uploadGrace is how far behind its rate a body may be.
const uploadGrace = 30 * time.Second

// limit gives the client some time for what comes next.
func (r *rest) limit() {
	patience := r.idle
	if r.rate > 0 {
		if left := max(uploadGrace-r.late, 0); r.idle <= 0 || left < r.idle {
			patience = left
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if (r.idle > 0 || r.rate > 0) && !r.given.Load() {
		// Not every ResponseWriter has deadlines; without one there is no limit.
		_ = r.control.SetReadDeadline(time.Now().Add(patience))
	}
}

// abandon gives what is still to come so much time, and whatever waits for it
// ends then. net/http takes that for the end of the client and cancels the
// request's context: see attempt.watch.
func (r *rest) abandon(patience time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.ended.Load() {
		r.given.Store(true)
		_ = r.control.SetReadDeadline(time.Now().Add(patience))
	}
}

// drain reads what the client still sends until abandon's time is over, if it is
// not much: a connection that is closed with something unread takes the answer
// with it.
func (r *rest) drain() {
	const most = 256 << 10 // as net/http has it
	_, _ = io.CopyN(io.Discard, r.body, most)
}

// fault returns why the body could not be read on; nil when it could.
func (r *rest) fault() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

func isTimeout(err error) bool {
	t, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](err)
	return ok && t.Timeout()
}
