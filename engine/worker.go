package engine

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/rhizome-router/rhizome/kv"
)

// ErrConnect is wrapped by errors of requests for which no connection came
// about, so that the worker saw nothing of them.
var ErrConnect = errors.New("can't connect")

const (
	connectTimeout = 5 * time.Second
	// idleTimeout is below the 5 s after which an engine's server (uvicorn)
	// hangs up on an idle connection: we never send into a closing one.
	idleTimeout    = 4 * time.Second
	maxModelsBytes = 4 << 20
	maxModels      = 4096
	// A connection of HTTP/2 that is silent for pingAfter is asked whether it
	// lives, and is dead after pingTimeout without an answer.
	pingAfter   = 15 * time.Second
	pingTimeout = 10 * time.Second
)

// Worker is one worker: its identity and the way to talk to it. It is safe for
// concurrent use.
type Worker struct {
	// ID is the worker's name in every replica.
	ID kv.WorkerID
	// Spec is canonical, and without its Token, which is kept apart: it may change
	// (SetToken), and nobody who shows a Spec shows it.
	Spec Spec

	base       *url.URL
	guard      Guard
	transport  *http.Transport
	eventsPort int                      // to try where nobody names one
	identity   atomic.Pointer[Identity] // as Detect found it last
	heard      atomic.Uint64
	absent     absences               // endpoints that Render needn't ask
	bearer     atomic.Pointer[string] // the header Authorization; nil: what the request has
	peer       atomic.Pointer[netip.AddrPort]
}

// NewWorker returns the worker that a spec describes, in a cluster.
func NewWorker(cluster string, spec Spec) (*Worker, error) { return Guard{}.NewWorker(cluster, spec) }

// NewWorker returns the worker that a spec describes, if the guard lets it be
// one, and watches over where it connects to.
func (g Guard) NewWorker(cluster string, spec Spec) (*Worker, error) {
	spec, err := spec.Canonical()
	if err != nil {
		return nil, fmt.Errorf("worker: %w", err)
	}
	if err := g.CheckSpec(spec); err != nil {
		return nil, err
	}
	base, err := url.Parse(spec.URL)
	if err != nil {
		return nil, fmt.Errorf("worker: %w", err)
	}
	token := spec.Token
	spec.Token = ""
	w := &Worker{ID: kv.WorkerIDOf(cluster, spec.Name()), Spec: spec, base: base, guard: g, eventsPort: defaultEventsPort}
	w.transport = newTransport(g.dialer(base.Hostname()), &w.peer)
	if spec.H2C {
		w.transport.Protocols = new(http.Protocols)
		w.transport.Protocols.SetUnencryptedHTTP2(true)
		// A connection that died without a word would swallow all requests on it.
		w.transport.HTTP2 = &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout}
	}
	w.SetToken(token)
	return w, nil
}

// SetToken changes what is sent as a bearer token with every request from now
// on, in place of what the request says; empty: the request's own goes.
func (w *Worker) SetToken(token string) {
	if token == "" {
		w.bearer.Store(nil)
		return
	}
	bearer := "Bearer " + token
	w.bearer.Store(&bearer)
}

// newTransport returns a transport that adds nothing to a request and changes
// nothing in a response: no compression of its own, no HTTP/2, no proxy, no
// total time-out (a response may stream for an hour), no wait for "100
// Continue".
//
// peer is told where each connection leads.
func newTransport(d *net.Dialer, peer *atomic.Pointer[netip.AddrPort]) *http.Transport {
	note := func(c net.Conn) {
		if tcp, ok := c.RemoteAddr().(*net.TCPAddr); ok {
			at := tcp.AddrPort()
			at = netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
			peer.Store(&at)
		}
	}
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := d.DialContext(ctx, network, addr)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrConnect, err)
		}
		note(c)
		if tcp, ok := c.(*net.TCPConn); ok {
			return bodyConn{tcp}, nil
		}
		return c, nil
	}
	dialTLS := func(ctx context.Context, network, addr string) (net.Conn, error) {
		td := tls.Dialer{NetDialer: d}
		c, err := td.DialContext(ctx, network, addr)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrConnect, err)
		}
		note(c)
		return c, nil
	}
	return &http.Transport{
		DialContext: dial, DialTLSContext: dialTLS,
		DisableCompression:  true,
		MaxIdleConns:        0, // no limit but the next
		MaxIdleConnsPerHost: 1024,
		IdleConnTimeout:     idleTimeout,
		ReadBufferSize:      32 << 10,
		WriteBufferSize:     32 << 10,
	}
}

// Peer is where the last connection to the worker led; ok is false before there
// was one.
func (w *Worker) Peer() (at netip.AddrPort, ok bool) {
	if p := w.peer.Load(); p != nil {
		return *p, true
	}
	return netip.AddrPort{}, false
}

// Host is the host of the worker's URL, without brackets.
func (w *Worker) Host() string { return w.base.Hostname() }

// Do sends req to this worker, whatever host req names, and returns the
// response as it came: redirects aren't followed, bodies aren't unpacked. An
// error that wraps ErrConnect means the worker saw nothing of the request. The
// caller closes the response's body. req itself is not changed.
func (w *Worker) Do(req *http.Request) (*http.Response, error) {
	resp, err := w.do(req)
	if err == nil {
		resp.Body = &heardBody{resp.Body, &w.heard}
	}
	return resp, err
}

// Heard counts the pieces of answers that requests by Do have got so far. While
// it grows the worker lives, whatever its probes say.
func (w *Worker) Heard() uint64 { return w.heard.Load() }

// heardBody counts the reads that brought something.
type heardBody struct {
	io.ReadCloser
	count *atomic.Uint64
}

func (b *heardBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		b.count.Add(1)
	}
	return n, err
}

func (w *Worker) do(req *http.Request) (*http.Response, error) {
	u := *req.URL
	u.Scheme, u.Host, u.User = w.base.Scheme, w.base.Host, nil
	out := req.WithContext(req.Context()) // a shallow copy
	out.URL, out.Host = &u, u.Host
	if bearer := w.bearer.Load(); bearer != nil {
		if out.Header = req.Header.Clone(); out.Header == nil {
			out.Header = make(http.Header, 1)
		}
		out.Header["Authorization"] = []string{*bearer}
	}
	resp, err := w.transport.RoundTrip(out)
	if err != nil {
		return nil, fmt.Errorf("%s %s on worker %s: %w", req.Method, u.Path, w.Spec.URL, err)
	}
	return resp, nil
}

// Close closes the idle connections. Requests in flight go on.
func (w *Worker) Close() { w.transport.CloseIdleConnections() }

// statusError says that a worker answered, but not with success.
type statusError struct {
	code int
	text string
}

func (e *statusError) Error() string { return "status " + e.text }

// errBody is wrapped by errors about a body that can't be what was asked for.
var errBody = errors.New("unusable body")

// get returns the body of GET path, at most maxBytes long. Its errors wrap
// statusError or errBody where the worker answered.
func (w *Worker) get(ctx context.Context, path string, maxBytes int64) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.Spec.URL+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := w.do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := readAtMost(resp.Body, maxBytes)
	if resp.StatusCode != http.StatusOK && (err == nil || errors.Is(err, errBody)) {
		err = &statusError{resp.StatusCode, resp.Status}
	}
	if err != nil {
		return nil, fmt.Errorf("GET %s on worker %s: %w", path, w.Spec.URL, err)
	}
	return body, nil
}

// readAtMost reads a body to its end. A longer one is an error that wraps
// errBody.
func readAtMost(r io.Reader, maxBytes int64) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(r, maxBytes+1))
	if err != nil {
		return nil, err
	}
	if int64(len(body)) > maxBytes {
		return body[:maxBytes], fmt.Errorf("%w: more than %d bytes", errBody, maxBytes)
	}
	return body, nil
}

// Model is one model that a worker serves.
type Model struct {
	ID          string
	MaxModelLen int // tokens; 0 where the worker doesn't say
}

// Models returns what GET /v1/models lists, the base model first, adapters
// after it.
func (w *Worker) Models(ctx context.Context) ([]Model, error) {
	body, err := w.get(ctx, "/v1/models", maxModelsBytes)
	if err != nil {
		return nil, err
	}
	models, err := parseModels(body)
	if err != nil {
		return nil, fmt.Errorf("GET /v1/models on worker %s: %w", w.Spec.URL, err)
	}
	return models, nil
}

// parseModels reads what an engine lists.
func parseModels(body []byte) ([]Model, error) {
	var list struct {
		Data []struct {
			ID          string `json:"id"`
			MaxModelLen *int   `json:"max_model_len"`
		} `json:"data"`
	}
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, err
	}
	if len(list.Data) > maxModels {
		return nil, fmt.Errorf("%d models, at most %d are read", len(list.Data), maxModels)
	}
	models := make([]Model, 0, len(list.Data))
	for _, m := range list.Data {
		if m.ID == "" {
			return nil, errors.New("a model without id")
		}
		model := Model{ID: m.ID}
		if m.MaxModelLen != nil {
			model.MaxModelLen = max(0, *m.MaxModelLen)
		}
		models = append(models, model)
	}
	return models, nil
}
