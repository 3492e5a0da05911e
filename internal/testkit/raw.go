package testkit

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Raw is a client that is nothing but a connection: it sends any bytes and
// shows what came back, also where no HTTP client would go on.
type Raw struct {
	*net.TCPConn
	t  testing.TB
	br *bufio.Reader
}

// rawPatience is how long a Raw waits for the other side before it calls the
// test hung.
const rawPatience = 20 * time.Second

// DialRaw connects to the host of a URL. The connection ends with the test.
func DialRaw(t testing.TB, base string) *Raw {
	t.Helper()
	u, err := url.Parse(base)
	if err != nil {
		t.Fatalf("dial %s: %v", base, err)
	}
	c, err := net.Dial("tcp", u.Host)
	if err != nil {
		t.Fatalf("dial %s: %v", base, err)
	}
	r := &Raw{TCPConn: c.(*net.TCPConn), t: t, br: bufio.NewReader(c)}
	t.Cleanup(func() { c.Close() })
	return r
}

// Send writes each piece with one write of its own. The peer may have hung up
// already: what it said before that can still be read.
func (r *Raw) Send(pieces ...string) {
	r.t.Helper()
	for _, p := range pieces {
		r.SetWriteDeadline(time.Now().Add(rawPatience))
		_, err := io.WriteString(r.TCPConn, p)
		if err != nil && !errors.Is(err, syscall.EPIPE) && !errors.Is(err, syscall.ECONNRESET) {
			r.t.Fatalf("send %d bytes: %v", len(p), err)
		}
	}
}

// HalfClose ends the client's side; answers can still be read.
func (r *Raw) HalfClose() { r.CloseWrite() }

// Reset ends the connection so that the peer sees a reset.
func (r *Raw) Reset() {
	r.SetLinger(0)
	r.Close()
}

// ReadUntil returns what arrives up to and with the text end.
func (r *Raw) ReadUntil(end string) string {
	r.t.Helper()
	r.SetReadDeadline(time.Now().Add(rawPatience))
	var got []byte
	for !bytes.HasSuffix(got, []byte(end)) {
		b, err := r.br.ReadByte()
		if err != nil {
			r.t.Fatalf("read up to %q: %v after %q", end, err, got)
		}
		got = append(got, b)
	}
	return string(got)
}

// ReadAll returns everything until the peer closes, and how it closed: nil for
// a normal end.
func (r *Raw) ReadAll() (string, error) {
	r.t.Helper()
	r.SetReadDeadline(time.Now().Add(rawPatience))
	b, err := io.ReadAll(r.br)
	if n, ok := errors.AsType[net.Error](err); ok && n.Timeout() {
		r.t.Fatalf("the peer neither sent nor closed for %v, after %q", rawPatience, b)
	}
	return string(b), err
}

// Answer is one response as it was on the wire, taken apart only as far as
// HTTP/1.1 frames it.
type Answer struct {
	Informational []string // status lines of 1xx responses before it
	StatusLine    string
	Status        int
	Header        http.Header
	Chunked       bool
	Body          string
	Trailer       http.Header
	// Broken says how the body ended early; empty when it is whole.
	Broken string
}

// Answer reads one response. method is that of the request, since an answer
// to HEAD has no body.
func (r *Raw) Answer(method string) Answer {
	r.t.Helper()
	r.SetReadDeadline(time.Now().Add(rawPatience))
	var resp Answer
	tp := textproto.NewReader(r.br)
	for {
		line, err := tp.ReadLine()
		if err != nil {
			r.t.Fatalf("read a status line: %v", err)
		}
		words := strings.SplitN(line, " ", 3)
		if len(words) < 2 {
			r.t.Fatalf("no status line: %q", line)
		}
		if resp.Status, err = strconv.Atoi(words[1]); err != nil {
			r.t.Fatalf("no status line: %q", line)
		}
		header, err := tp.ReadMIMEHeader()
		if err != nil {
			r.t.Fatalf("read the header after %q: %v", line, err)
		}
		if resp.Status < 200 {
			resp.Informational = append(resp.Informational, line)
			continue
		}
		resp.StatusLine, resp.Header = line, http.Header(header)
		break
	}
	if method != http.MethodHead && resp.Status != http.StatusNoContent && resp.Status != http.StatusNotModified {
		if err := r.readBody(&resp, tp); err != nil {
			resp.Broken = brokenBy(err)
		}
	}
	return resp
}

func (r *Raw) readBody(resp *Answer, tp *textproto.Reader) error {
	var body []byte
	var err error
	defer func() { resp.Body = string(body) }()
	if strings.EqualFold(resp.Header.Get("Transfer-Encoding"), "chunked") {
		resp.Chunked = true
		if body, err = io.ReadAll(httputil.NewChunkedReader(r.br)); err != nil {
			return err
		}
		trailer, err := tp.ReadMIMEHeader()
		resp.Trailer = http.Header(trailer)
		return err
	}
	if length := resp.Header.Get("Content-Length"); length != "" {
		n, err := strconv.ParseInt(length, 10, 64)
		if err != nil {
			return fmt.Errorf("Content-Length %q", length)
		}
		body, err = io.ReadAll(io.LimitReader(r.br, n))
		if err == nil && int64(len(body)) < n {
			err = io.ErrUnexpectedEOF
		}
		return err
	}
	body, err = io.ReadAll(r.br)
	return err
}

// brokenBy names the way a body ended early, the same for all that a client
// can't tell apart.
func brokenBy(err error) string {
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET):
		return "cut short"
	}
	return err.Error()
}
