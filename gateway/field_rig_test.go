package gateway_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/cost"
	"github.com/rhizome-router/rhizome/engine"
	"github.com/rhizome-router/rhizome/fleet"
	"github.com/rhizome-router/rhizome/gateway"
	"github.com/rhizome-router/rhizome/index"
	"github.com/rhizome-router/rhizome/internal/testkit"
	"github.com/rhizome-router/rhizome/route"
)

// wholeHouse is the true gateway, router and fleet before scripted workers, as
// field reports tell of them: what one room alone can't get wrong.
type wholeHouse struct {
	t         testing.TB
	url       string
	gateway   *gateway.Gateway
	router    *route.Router
	fleet     *fleet.Fleet
	specs     []engine.Spec
	client    *http.Client
	transport *http.Transport // of the client
	clock     clock.Clock     // of the rooms
	// now is the time of the rooms where nobody watches the workers: it stands
	// still unless the test moves it.
	now      *clock.Virtual
	metrics  func() string
	everyone map[*fleet.Member]bool // that was ever there
}

type houseConfig struct {
	gateway gateway.Config
	fleet   fleet.Config
	policy  route.Policy
	// watched workers are asked for their models and metrics, in real time. Those
	// that aren't count as well, and as without KV events.
	watched bool
	// mem is a network in memory to be used instead of sockets, for tests in
	// virtual time; the workers listen on it as w0:80, w1:80 and so on.
	mem *testkit.Net
	// log and tracer are told what happens; nil: nobody is.
	log    *slog.Logger
	tracer trace.Tracer
}

// answersProbes has a worker answer what the fleet asks, as vLLM does.
func answersProbes(w *testkit.Worker) {
	w.On("/v1/models", testkit.Send(testkit.JSON(200, `{"object":"list","data":[{"id":"m","object":"model"}]}`)))
	for _, path := range []string{"/metrics", "/version", "/server_info", "/get_server_info"} {
		w.On(path, testkit.Send(testkit.JSON(404, "{}")))
	}
}

// openHouse builds the house. When the test ends no request, booking or
// goroutine may be left.
func openHouse(t testing.TB, cfg houseConfig, workers ...*testkit.Worker) *wholeHouse {
	t.Helper()
	h := &wholeHouse{t: t, now: new(clock.Virtual), everyone: make(map[*fleet.Member]bool)}
	h.now.Advance(time.Hour)
	for _, w := range workers {
		answersProbes(w)
		h.specs = append(h.specs, engine.Spec{URL: w.URL(), Engine: engine.VLLM})
	}
	log, registry := cfg.log, prometheus.NewRegistry()
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	var now clock.Clock = h.now
	if cfg.watched || cfg.mem != nil {
		now = clock.Real()
	}
	h.clock = now
	prefixes, sent := index.New(index.Config{}), index.NewApprox(index.ApproxConfig{MaxEntries: 1 << 14})
	var err error
	h.fleet, err = fleet.New(cfg.fleet, fleet.Deps{Index: prefixes, Approx: sent, Clock: now, Log: log}, h.specs,
		func(engine.Spec) (cost.Class, error) { return cost.Generic(), nil })
	if err != nil {
		t.Fatal(err)
	}
	if cfg.policy == "" {
		cfg.policy = route.Rhizome
	}
	h.router = route.New(route.Config{Policy: cfg.policy, Weights: cost.DefaultWeights(), Article: cost.DefaultArticle(), Seed: 1},
		route.Deps{Fleet: h.fleet, Index: prefixes, Approx: sent, Clock: now})
	h.gateway, err = gateway.New(cfg.gateway, gateway.Deps{Decider: h.router, Explain: func(id string) (any, bool) { return h.router.Explain(id) },
		Models: func() []engine.Model { return h.fleet.View().Models() }, Workers: func() any { return h.fleet.Describe() }, Index: func() any { return h.fleet.DescribeIndex() }, Tracer: cfg.tracer,
		Registerer: registry, Gatherer: registry, Log: log, Clock: now, Replica: "r"})
	if err != nil {
		t.Fatal(err)
	}
	h.metrics = func() string { return h.admin("/metrics") }
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	if cfg.watched {
		running.Go(func() { h.fleet.Run(ctx) })
		testkit.Until(t, "all workers are known and well", func() bool {
			for _, m := range h.fleet.View().Members {
				if !m.Healthy() || m.Cache().Known == fleet.Unknown {
					return false
				}
			}
			return true
		})
	} else {
		for i := range workers {
			h.admit(i)
		}
	}
	upstream := &http.Transport{DisableCompression: true}
	h.transport = &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 64}
	var ln net.Listener
	if cfg.mem != nil {
		ln = cfg.mem.Listen("front:80")
		h.transport.DialContext, upstream.DialContext = cfg.mem.Dial, dialAsEngine(cfg.mem)
		h.gateway.SetDo(func(w *engine.Worker, r *http.Request) (*http.Response, error) {
			u := *r.URL
			u.Scheme, u.Host = "http", strings.TrimPrefix(w.Spec.URL, "http://")
			r.URL = &u
			return upstream.RoundTrip(r)
		})
	} else if ln, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	h.url = "http://" + ln.Addr().String()
	h.client = &http.Client{Transport: h.transport}
	served := make(chan error, 1)
	serving, stop := context.WithCancel(context.Background())
	go func() { served <- cfg.gateway.Serve(serving, ln, h.gateway, time.Minute, log) }()
	t.Cleanup(func() {
		h.client.CloseIdleConnections()
		stop()
		if err := <-served; err != nil {
			t.Errorf("the gateway did not come to rest: %v", err)
		}
		upstream.CloseIdleConnections()
		h.gateway.Close()
		cancel()
		running.Wait()
		// A server of HTTP/2 does not wait for the handlers of streams that were
		// taken back.
		testkit.Until(t, "no request is in flight", func() bool { return testkit.Metric(t, h.metrics(), "rhizome_gateway_in_flight_requests") == 0 })
		h.atRest()
		for m := range h.everyone {
			m.Worker.Close()
		}
	})
	return h
}

// connectTimeout is how long an engine's dialer waits.
const connectTimeout = 5 * time.Second

// dialAsEngine dials on a network in memory with the limit and the errors of an
// engine's own dialer. Nobody answers for hosts that begin with "hole".
func dialAsEngine(mem *testkit.Net) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, connectTimeout)
		defer cancel()
		if strings.HasPrefix(addr, "hole") {
			<-ctx.Done()
			return nil, fmt.Errorf("%w: %w", engine.ErrConnect, ctx.Err())
		}
		c, err := mem.Dial(ctx, network, addr)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", engine.ErrConnect, err)
		}
		return c, nil
	}
}

// admit enters a worker that nobody watches.
func (h *wholeHouse) admit(i int) {
	h.fleet.Admit(i, engine.Identity{Engine: engine.VLLM}, []engine.Model{{ID: "m"}})
}

// admin returns what the admin API shows at a path.
func (h *wholeHouse) admin(path string) string {
	w := httptest.NewRecorder()
	h.gateway.Admin().ServeHTTP(w, httptest.NewRequest("GET", "http://localhost"+path, nil))
	return w.Body.String()
}

// note remembers who is in the fleet now.
func (h *wholeHouse) note() {
	for _, m := range h.fleet.View().Members {
		h.everyone[m] = true
	}
}

// atRest checks that nothing of any request is left.
func (h *wholeHouse) atRest() {
	h.t.Helper()
	h.note()
	for m := range h.everyone {
		if m.Ledger.InFlight() != 0 || m.Ledger.Booked() != 0 {
			h.t.Errorf("%s still has %d requests in flight, %d booked", m.Worker.Spec.URL, m.Ledger.InFlight(), m.Ledger.Booked())
		}
	}
	s := h.router.Stats()
	var ended uint64
	for _, n := range s.Ended {
		ended += n
	}
	if s.Requests != ended {
		h.t.Errorf("%d decisions, %d ends", s.Requests, ended)
	}
	testkit.Idle(h.t, h.metrics(), "rhizome_gateway_in_flight_requests", "rhizome_gateway_buffered_body_bytes")
}

func (h *wholeHouse) member(i int) *fleet.Member { return h.fleet.View().Members[i] }

// grades returns how welcome new requests are at each worker.
func (h *wholeHouse) grades() string {
	var all []string
	for _, m := range h.fleet.View().Members {
		all = append(all, m.Grade(h.clock.Now()).String())
	}
	return strings.Join(all, " ")
}

// reply is an answer as a client saw it.
type reply struct {
	status int
	header http.Header
	body   string
	err    error
}

// ask posts a body with header lines and reads the answer.
func (h *wholeHouse) ask(path, body string, header ...string) reply {
	h.t.Helper()
	return h.askWith(h.t.Context(), path, body, header...)
}

func (h *wholeHouse) askWith(ctx context.Context, path, body string, header ...string) reply {
	h.t.Helper()
	req, err := http.NewRequestWithContext(ctx, "POST", h.url+path, strings.NewReader(body))
	if err != nil {
		h.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	for _, line := range header {
		name, value, _ := strings.Cut(line, ": ")
		req.Header.Set(name, value)
	}
	resp, err := h.client.Do(req)
	if err != nil {
		return reply{err: err}
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, resp.Header, string(b), err}
}

// keysOf are the keys key-NAME of callers whose hints are believed.
func keysOf(names ...string) (keys []gateway.KeyConfig) {
	for _, n := range names {
		keys = append(keys, gateway.KeyConfig{Name: n, SHA256: hashOf("key-" + n), Trust: "hints"})
	}
	return keys
}

func hashOf(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])
}

// as is the header line of such a caller, to a worker if that isn't empty.
func as(name, worker string) []string {
	lines := []string{"Authorization: Bearer key-" + name}
	if worker != "" {
		lines = append(lines, "X-Rhizome-Pin: "+worker)
	}
	return lines
}
