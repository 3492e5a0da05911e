package testkit

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// Worker is a scripted worker: a raw HTTP/1.1 server that does with each
// request exactly what its script says, down to the bytes, and remembers what
// it was sent. Scripts are used up in the order they were given; when none is
// left the fallback answers.
type Worker struct {
	ln       net.Listener
	url      string
	closed   chan struct{}
	wg       sync.WaitGroup
	requests chan Request

	mu       sync.Mutex
	scripts  []Script
	fallback Script
	fixed    map[string]Script
	choose   func(Request) Script
	conns    map[net.Conn]bool
	count    int
}

// Request is one request as a worker received it.
type Request struct {
	Raw      string // head and body as they were on the wire
	Proto    string // HTTP/1.1
	Method   string
	Target   string // the request line's second word
	Host     string
	Header   http.Header // without Host, framing and trailers
	Trailer  http.Header
	Length   int64 // Content-Length; -1 when chunked
	Body     string
	PeerGone <-chan struct{} // closed when the peer closes this connection before its next request
}

// maxRequests bounds how many requests a worker remembers for Next.
const maxRequests = 1 << 14

// NewWorker starts a worker on a loopback TCP port. It ends with the test.
func NewWorker(t testing.TB, scripts ...Script) *Worker {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("listen for a scripted worker: %v", err)
	}
	return NewWorkerOn(t, ln, scripts...)
}

// NewWorkerOn starts a worker that accepts from ln, which it closes in the end.
func NewWorkerOn(t testing.TB, ln net.Listener, scripts ...Script) *Worker {
	w := &Worker{
		ln:       ln,
		url:      "http://" + ln.Addr().String(),
		closed:   make(chan struct{}),
		requests: make(chan Request, maxRequests),
		scripts:  scripts,
		fallback: Script{Send(JSON(500, `{"error":{"message":"no script left"}}`))},
		conns:    make(map[net.Conn]bool),
	}
	w.wg.Go(w.accept)
	t.Cleanup(w.Close)
	return w
}

// URL returns the worker's base URL, http://host:port.
func (w *Worker) URL() string { return w.url }

// Add appends scripts to those still to be used.
func (w *Worker) Add(scripts ...Script) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.scripts = append(w.scripts, scripts...)
}

// Always sets the script that answers when no other is left.
func (w *Worker) Always(steps ...Step) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fallback = steps
}

// Choose lets f pick the script for each request that none given in advance is
// left for; a nil script means the fallback.
func (w *Worker) Choose(f func(Request) Script) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.choose = f
}

// On sets what answers requests to one path, such as a health probe: always the
// same, and such requests are neither counted nor remembered.
func (w *Worker) On(path string, steps ...Step) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fixed == nil {
		w.fixed = make(map[string]Script)
	}
	w.fixed[path] = steps
}

// Count returns how many requests have arrived so far, those to paths of On
// left out.
func (w *Worker) Count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.count
}

// Next waits for the next request that was not yet taken.
func (w *Worker) Next(t testing.TB) Request {
	t.Helper()
	select {
	case r := <-w.requests:
		return r
	case <-w.closed:
		t.Fatal("the scripted worker was closed before another request arrived")
	case <-t.Context().Done():
		t.Fatal("the test ended before another request arrived")
	}
	return Request{}
}

// Close ends the listener and all connections and waits for them.
func (w *Worker) Close() {
	w.mu.Lock()
	select {
	case <-w.closed:
	default:
		close(w.closed)
		w.ln.Close()
		for c := range w.conns {
			c.Close()
		}
	}
	w.mu.Unlock()
	w.wg.Wait()
}

func (w *Worker) accept() {
	for {
		c, err := w.ln.Accept()
		if err != nil {
			return
		}
		w.mu.Lock()
		select {
		case <-w.closed:
			c.Close()
		default:
			w.conns[c] = true
			w.wg.Go(func() { w.serve(c) })
		}
		w.mu.Unlock()
	}
}

// serve reads requests from one connection and plays a script on each.
func (w *Worker) serve(c net.Conn) {
	defer func() {
		c.Close()
		w.mu.Lock()
		delete(w.conns, c)
		w.mu.Unlock()
	}()
	var wire bytes.Buffer
	br := bufio.NewReader(io.TeeReader(c, &wire))
	for {
		req, err := readRequest(br, &wire, c)
		if err != nil {
			return
		}
		// While the script runs, one goroutine waits for what comes next: the
		// peer's next request or its end.
		next := make(chan struct{})
		gone := make(chan struct{})
		w.wg.Go(func() {
			defer close(next)
			if _, err := br.Peek(1); err != nil {
				close(gone)
			}
		})
		req.PeerGone = gone
		script := w.take(req)
		conn := &Conn{Conn: c, gone: gone, closed: w.closed}
		for _, step := range script {
			if err = step(conn); err != nil {
				break
			}
		}
		if err != nil {
			c.Close()
		}
		<-next
		if err != nil {
			return
		}
	}
}

// dropScripts forgets the scripts still to be used.
func (w *Worker) dropScripts() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.scripts = nil
}

// take records a request and returns the script that answers it.
func (w *Worker) take(req Request) Script {
	w.mu.Lock()
	defer w.mu.Unlock()
	path, _, _ := strings.Cut(req.Target, "?")
	if s, ok := w.fixed[path]; ok {
		return s
	}
	w.count++
	select {
	case w.requests <- req:
	default: // nobody reads them: the count is enough
	}
	if len(w.scripts) == 0 {
		if w.choose != nil {
			if s := w.choose(req); s != nil {
				return s
			}
		}
		return w.fallback
	}
	s := w.scripts[0]
	w.scripts = w.scripts[1:]
	return s
}

// readRequest reads one request and cuts its exact bytes out of wire, which
// also holds what the reader has read ahead. A peer that asks for leave to send
// its body gets it through w.
func readRequest(br *bufio.Reader, wire *bytes.Buffer, w io.Writer) (Request, error) {
	r, err := http.ReadRequest(br)
	if err != nil {
		return Request{}, fmt.Errorf("read a request: %w", err)
	}
	if strings.EqualFold(r.Header.Get("Expect"), "100-continue") {
		if _, err := io.WriteString(w, "HTTP/1.1 100 Continue\r\n\r\n"); err != nil {
			return Request{}, fmt.Errorf("let the peer continue: %w", err)
		}
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return Request{}, fmt.Errorf("read a request's body: %w", err)
	}
	raw := wire.Next(wire.Len() - br.Buffered())
	return Request{
		Raw:     string(raw),
		Proto:   r.Proto,
		Method:  r.Method,
		Target:  r.RequestURI,
		Header:  r.Header,
		Length:  r.ContentLength,
		Body:    string(body),
		Host:    r.Host,
		Trailer: r.Trailer,
	}, nil
}
