package gateway_test

import (
	"context"
	"fmt"
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

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/engine"
	"github.com/rhizome-router/rhizome/gateway"
	"github.com/rhizome-router/rhizome/internal/testkit"
	"github.com/rhizome-router/rhizome/kv"
	"github.com/rhizome-router/rhizome/route"
)

// front is a gateway as it is served in production, seen only from outside: a
// data listener on loopback TCP in front of real connections to workers.
type front struct {
	url     string
	decider *inOrder
	admin   http.Handler
}

// inOrder is a Decider that takes the first worker that isn't excluded.
type inOrder struct {
	workers []*engine.Worker

	mu   sync.Mutex
	open map[*route.Decision]bool
	ends []route.Result
	// usages are those of the ends.
	usages []route.Usage
}

func (d *inOrder) Decide(q route.Query) (*route.Decision, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if q.Prompt.Model != "m" && q.Prompt.Model != "org/n" {
		return nil, route.ErrUnknownModel
	}
	for _, w := range d.workers {
		if t := (kv.Target{Worker: w.ID, Rank: kv.NoRank}); !slices.Contains(q.Exclude, t) {
			made := &route.Decision{ID: q.ID, Target: t, Worker: w}
			d.open[made] = true
			return made, nil
		}
	}
	return nil, route.ErrNoWorker
}

func (d *inOrder) FirstByte(*route.Decision) {}

func (d *inOrder) Done(made *route.Decision, o route.Outcome) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.open, made)
	d.ends, d.usages = append(d.ends, o.Result), append(d.usages, o.Usage)
}

// count returns how many decisions are open.
func (d *inOrder) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.open)
}

// newFront serves a gateway before the workers at urls. At the end of the test
// it is stopped, and everything must be back at rest.
func newFront(t testing.TB, cfg gateway.Config, urls ...string) *front {
	t.Helper()
	f := &front{decider: &inOrder{open: make(map[*route.Decision]bool)}}
	testkit.AtRest(t, testkit.Rest{
		Metrics:   f.metrics,
		Zero:      []string{"rhizome_gateway_in_flight_requests", "rhizome_gateway_buffered_body_bytes"},
		Sizes:     map[string]func() int{"open decisions": f.decider.count},
		HeapBytes: 8 << 20,
	})
	for i, url := range urls {
		spec, err := engine.ParseSpec(fmt.Sprintf("%s,id=w%d", url, i))
		if err != nil {
			t.Fatal(err)
		}
		w, err := engine.NewWorker("test", spec)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(w.Close)
		f.decider.workers = append(f.decider.workers, w)
	}
	registry := prometheus.NewRegistry()
	log := slog.New(slog.DiscardHandler)
	g, err := gateway.New(cfg, gateway.Deps{
		Decider:    f.decider,
		Models:     func() []engine.Model { return []engine.Model{{ID: "m"}, {ID: "org/n"}} },
		Registerer: registry, Gatherer: registry, Log: log, Clock: clock.Real(), Replica: "r1",
	})
	if err != nil {
		t.Fatal(err)
	}
	f.admin = g.Admin()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f.url = "http://" + ln.Addr().String()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- gateway.Serve(ctx, ln, g, 10*time.Second, log) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the gateway did not come to rest: %v", err)
		}
	})
	return f
}

// differ is a front before one scripted worker.
func differ(t testing.TB) *testkit.Differ {
	t.Helper()
	w := testkit.NewWorker(t)
	return &testkit.Differ{Worker: w, Router: newFront(t, gateway.Config{}, w.URL()).url}
}

func (f *front) metrics() string {
	if f.admin == nil {
		return ""
	}
	w := httptest.NewRecorder()
	f.admin.ServeHTTP(w, httptest.NewRequest("GET", "http://localhost/metrics", nil))
	return w.Body.String()
}

const chatPath = "/v1/chat/completions"

// request is the exact text of a POST; a header line without a value removes a
// default one.
func request(path, body string, header ...string) string {
	lines := []string{"POST " + path + " HTTP/1.1", "Host: router.example", "Content-Type: application/json",
		fmt.Sprintf("Content-Length: %d", len(body))}
	for _, h := range header {
		name, value, _ := strings.Cut(h, ": ")
		lines = slices.DeleteFunc(lines, func(l string) bool { return strings.HasPrefix(l, name+": ") })
		if value != "" {
			lines = append(lines, h)
		}
	}
	return strings.Join(lines, "\r\n") + "\r\n\r\n" + body
}

// asked and askedStream are plain bodies.
const (
	asked       = `{"model":"m","messages":[{"role":"user","content":"hi"}]}`
	askedStream = `{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}`
)
