package gateway

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/engine"
	"github.com/rhizome-router/rhizome/internal/testkit"
	"github.com/rhizome-router/rhizome/kv"
	"github.com/rhizome-router/rhizome/route"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The router of the product is the Decider this package is made for.
var _ Decider = (*route.Router)(nil)

// picker is a Decider that takes the first worker not excluded, knows the
// model "m" only, and keeps account of what it is told.
type picker struct {
	t       testing.TB
	workers []*engine.Worker

	mu         sync.Mutex
	queries    []route.Query
	open       map[*route.Decision]bool
	outcomes   []route.Outcome
	firstBytes int
	err        error // what Decide answers instead
}

func (p *picker) Decide(q route.Query) (*route.Decision, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	q.Exclude = slices.Clone(q.Exclude)
	p.queries = append(p.queries, q)
	if p.err != nil {
		return nil, p.err
	}
	if q.Prompt.Model != "m" {
		return nil, route.ErrUnknownModel
	}
	for _, w := range p.workers {
		target := kv.Target{Worker: w.ID, Rank: kv.NoRank}
		if !slices.Contains(q.Exclude, target) {
			d := &route.Decision{ID: q.ID, Target: target, Worker: w,
				PredictedCachedTokens: 48, PredictedTTFT: 21 * time.Millisecond, CostMicros: 1234.5}
			p.open[d] = true
			return d, nil
		}
	}
	return nil, route.ErrNoWorker
}

func (p *picker) FirstByte(d *route.Decision) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.open[d] {
		p.t.Error("FirstByte of a decision that isn't open")
	}
	p.firstBytes++
}

func (p *picker) Done(d *route.Decision, o route.Outcome) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.open[d] {
		p.t.Error("Done of a decision that isn't open")
	}
	delete(p.open, d)
	p.outcomes = append(p.outcomes, o)
}

// results returns how the decisions so far ended.
func (p *picker) results() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []string
	for _, o := range p.outcomes {
		all = append(all, o.Result.String())
	}
	return strings.Join(all, " ")
}

// rig is a gateway between a client and scripted workers.
type rig struct {
	t        testing.TB
	g        *Gateway
	picker   *picker
	registry *prometheus.Registry
	workers  []*testkit.Worker
	client   *http.Client
	url      string
	direct   *http.Transport // to workers, past the gateway
	stop     func()          // ends the server when all requests are answered
}

// newRig builds a rig on loopback TCP with true engine.Workers.
func newRig(t testing.TB, cfg Config, workers ...*testkit.Worker) *rig {
	r := buildRig(t, cfg, (&net.Dialer{}).DialContext, workers)
	for i, w := range workers {
		r.aim(i, w.URL())
	}
	server := httptest.NewServer(r.g)
	r.url = server.URL
	r.stop = func() {
		r.client.CloseIdleConnections()
		server.Close()
		for _, w := range r.picker.workers {
			w.Close()
		}
	}
	t.Cleanup(r.check)
	return r
}

// aim makes the i-th worker the one at url.
func (r *rig) aim(i int, url string) {
	spec, err := engine.ParseSpec(url)
	if err != nil {
		r.t.Fatal(err)
	}
	if r.picker.workers[i], err = engine.NewWorker("test", spec); err != nil {
		r.t.Fatal(err)
	}
}

// memRig builds a rig on a network in memory, for tests in virtual time, with
// a worker for each script; a nil script is none.
func memRig(t testing.TB, cfg Config, scripts ...testkit.Script) *rig {
	mem := testkit.NewNet()
	var workers []*testkit.Worker
	for i, s := range scripts {
		w := testkit.NewWorkerOn(t, mem.Listen(fmt.Sprintf("w%d:80", i)))
		if s != nil {
			w.Add(s)
		}
		workers = append(workers, w)
	}
	r := buildRig(t, cfg, mem.Dial, workers)
	upstream := &http.Transport{DialContext: mem.Dial, DisableCompression: true}
	hosts := make(map[*engine.Worker]string)
	for i, w := range workers {
		r.picker.workers[i] = &engine.Worker{ID: kv.WorkerID(i + 1)}
		hosts[r.picker.workers[i]] = strings.TrimPrefix(w.URL(), "http://")
	}
	r.g.do = func(w *engine.Worker, req *http.Request) (*http.Response, error) {
		req.URL.Scheme, req.URL.Host = "http", hosts[w]
		return upstream.RoundTrip(req)
	}
	server := &http.Server{Handler: r.g, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)}
	ln := mem.Listen("router:80")
	var serving sync.WaitGroup
	serving.Go(func() { server.Serve(ln) })
	r.url = "http://router:80"
	r.stop = func() {
		r.client.CloseIdleConnections()
		server.Shutdown(context.Background())
		serving.Wait()
		upstream.CloseIdleConnections()
	}
	t.Cleanup(r.check)
	return r
}

func buildRig(t testing.TB, cfg Config, dial func(context.Context, string, string) (net.Conn, error), workers []*testkit.Worker) *rig {
	r := &rig{t: t, workers: workers, registry: prometheus.NewRegistry(),
		picker: &picker{t: t, open: make(map[*route.Decision]bool), workers: make([]*engine.Worker, len(workers))}}
	g, err := New(cfg, Deps{
		Decider: r.picker,
		Models: func() []engine.Model {
			return []engine.Model{{ID: "m", MaxModelLen: 4096}, {ID: "org/n"}}
		},
		Registerer: r.registry, Gatherer: r.registry,
		Log: slog.New(slog.DiscardHandler), Clock: clock.Real(), Replica: "r1",
	})
	if err != nil {
		t.Fatal(err)
	}
	r.g = g
	r.direct = &http.Transport{DialContext: dial, DisableCompression: true}
	r.client = &http.Client{Transport: &http.Transport{DialContext: dial, DisableCompression: true}}
	return r
}

// check ends the server and sees that nothing is left behind.
func (r *rig) check() {
	r.direct.CloseIdleConnections()
	r.stop()
	r.picker.mu.Lock()
	defer r.picker.mu.Unlock()
	if len(r.picker.open) != 0 {
		r.t.Errorf("%d decisions were never done", len(r.picker.open))
	}
	if n := r.g.buffered.Load(); n != 0 {
		r.t.Errorf("%d bytes of bodies are still accounted for", n)
	}
	testkit.Idle(r.t, r.metrics(), "rhizome_gateway_in_flight_requests", "rhizome_gateway_buffered_body_bytes")
}

func (r *rig) metrics() string {
	return ask(r.g.Admin(), "GET", "/metrics", "Authorization: Bearer "+r.g.cfg.Admin.Token).Body.String()
}

// got is a response as a client saw it.
type got struct {
	status int
	header http.Header
	body   string
	err    error // how reading the body ended
}

const chat = "/v1/chat/completions"

// post sends a body to the gateway and reads the whole answer.
func (r *rig) post(path, body string, header ...string) got {
	r.t.Helper()
	return r.send(r.client.Transport, r.url+path, body, header...)
}

func (r *rig) send(via http.RoundTripper, url, body string, header ...string) got {
	r.t.Helper()
	req, err := http.NewRequest("POST", url, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	for _, h := range header {
		name, value, _ := strings.Cut(h, ": ")
		if name == "Content-Type" {
			req.Header.Del(name)
		}
		req.Header.Add(name, value)
	}
	resp, err := via.RoundTrip(req)
	if err != nil {
		return got{err: err}
	}
	defer resp.Body.Close()
	var b bytes.Buffer
	_, err = io.Copy(&b, resp.Body)
	return got{resp.StatusCode, resp.Header, b.String(), err}
}

const (
	plainBody  = `{"model":"m","messages":[{"role":"user","content":"hi"}]}`
	streamBody = `{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}`
)

var discard = slog.New(slog.DiscardHandler)

func contextWithCancel(t *testing.T) (context.Context, context.CancelFunc) {
	return context.WithCancel(t.Context())
}

func newRequest(t *testing.T) *http.Request {
	return httptest.NewRequestWithContext(t.Context(), "POST", chat, nil)
}

// newServer is a worker that is any handler, over HTTP/1.1 and h2c; it returns
// its URL.
func newServer(t *testing.T, h http.Handler) string {
	s := httptest.NewUnstartedServer(h)
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(s.Close)
	return s.URL
}
