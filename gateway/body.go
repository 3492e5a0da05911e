package gateway

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// Sizes of the first piece of memory a body gets, however long it says it is.
// It doubles as bytes arrive.
const (
	firstBodyBytes   = 16 << 10
	firstSizedBytes  = 256 << 10 // when the length is announced
	nextDecodedBytes = 64 << 10
)

// readBody reads the body into x.body as it is on the wire.
func (g *Gateway) readBody(x *exchange) error {
	first := int64(firstBodyBytes)
	if n := x.r.ContentLength; n >= 0 {
		first = min(n+1, firstSizedBytes) // one more, to see the end without growing
	}
	control := http.NewResponseController(x.w)
	limit := func() {
		if g.cfg.UploadTimeout > 0 {
			// Not every ResponseWriter has deadlines; without one there is no limit.
			_ = control.SetReadDeadline(time.Now().Add(g.cfg.UploadTimeout))
		}
	}
	if x.r.ContentLength > g.cfg.MaxBodyBytes {
		limit() // the server waits a while for the rest, to be polite
		return g.tooLarge(x)
	}
	body, err := g.readAll(x, x.r.Body, first, limit)
	x.body = body
	switch {
	case err == nil:
		_ = control.SetReadDeadline(time.Time{})
		return nil
	case errors.Is(err, errBufferBudget):
		return err
	case errors.Is(err, errBodyTooLarge):
		return g.tooLarge(x)
	case isTimeout(err):
		return errBodySlow
	default:
		return errClientGone
	}
}

func (g *Gateway) tooLarge(x *exchange) error {
	x.w.Header().Set("Connection", "close") // the rest is not read
	return fmt.Errorf("%w: the limit is %d bytes", errBodyTooLarge, g.cfg.MaxBodyBytes)
}

func isTimeout(err error) bool {
	t, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](err)
	return ok && t.Timeout()
}

// readAll reads r to its end within the limits of one body and of all bodies
// together. The memory counts as x's until release.
func (g *Gateway) readAll(x *exchange, r io.Reader, firstBytes int64, beforeRead func()) ([]byte, error) {
	var b []byte
	for {
		if len(b) == cap(b) {
			n := max(int64(cap(b)), firstBytes)
			if g.buffered.Add(n) > g.cfg.BufferBudgetBytes {
				g.buffered.Add(-n)
				return b, errBufferBudget
			}
			x.reserved += n
			g.metrics.bufferedBytes.Add(float64(n))
			b = append(make([]byte, 0, int64(cap(b))+n), b...)
		}
		beforeRead()
		n, err := r.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		switch {
		case int64(len(b)) > g.cfg.MaxBodyBytes:
			return b, errBodyTooLarge
		case errors.Is(err, io.EOF):
			return b, nil
		case err != nil:
			return b, err
		}
	}
}

// release gives the memory of x's bodies back to the budget.
func (g *Gateway) release(x *exchange) {
	g.buffered.Add(-x.reserved)
	g.metrics.bufferedBytes.Sub(float64(x.reserved))
	x.reserved = 0
}

// decoded returns the body without its Content-Encoding, for reading only:
// workers get the body as it came.
func (g *Gateway) decoded(x *exchange) ([]byte, error) {
	body := x.body
	codings := strings.Split(strings.ToLower(strings.Join(x.r.Header.Values("Content-Encoding"), ",")), ",")
	for i := len(codings) - 1; i >= 0; i-- { // the last one was applied last
		coding := strings.TrimSpace(codings[i])
		if coding == "" || coding == "identity" {
			continue
		}
		r, err := decoderOf(coding, body)
		if err != nil {
			return nil, err
		}
		body, err = g.readAll(x, r, nextDecodedBytes, func() {})
		switch {
		case errors.Is(err, errBodyTooLarge):
			return nil, fmt.Errorf("%w: the limit is %d bytes after decoding", errBodyTooLarge, g.cfg.MaxBodyBytes)
		case errors.Is(err, errBufferBudget):
			return nil, err
		case err != nil:
			return nil, fmt.Errorf("%w (%s)", errBodyCorrupt, coding)
		}
	}
	return body, nil
}

func decoderOf(coding string, body []byte) (io.Reader, error) {
	switch coding {
	case "gzip", "x-gzip":
		r, err := gzip.NewReader(bytes.NewReader(body))
		if err != nil {
			return nil, fmt.Errorf("%w (gzip)", errBodyCorrupt)
		}
		return r, nil
	case "deflate":
		if r, err := zlib.NewReader(bytes.NewReader(body)); err == nil {
			return r, nil
		}
		return flate.NewReader(bytes.NewReader(body)), nil // some clients leave out the zlib frame
	}
	return nil, fmt.Errorf("%w: %s (supported: gzip, deflate)", errBodyEncoding, shorten(coding))
}
