package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/cost"
	"github.com/rhizome-router/rhizome/engine"
	"github.com/rhizome-router/rhizome/engine/discover"
	"github.com/rhizome-router/rhizome/fleet"
	"github.com/rhizome-router/rhizome/index"
)

// fakeNames is a Resolver whose answers a test sets.
type fakeNames struct {
	mu    sync.Mutex
	addrs []netip.Addr
	err   error
	looks int
}

func (n *fakeNames) set(err error, addrs ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.err, n.addrs = err, nil
	for _, a := range addrs {
		n.addrs = append(n.addrs, netip.MustParseAddr(a))
	}
}

func (n *fakeNames) LookupNetIP(context.Context, string, string) ([]netip.Addr, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.looks++
	return slices.Clone(n.addrs), n.err
}

func (n *fakeNames) LookupSRV(context.Context, string, string, string) (string, []*net.SRV, error) {
	return "", nil, errors.New("no SRV here")
}

func (n *fakeNames) looked() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.looks
}

// plainWorker is a worker that lists a model, and counts connections.
func plainWorker(t *testing.T, start string, connections *atomic.Int64) *httptest.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, `{"data":[{"id":"m"}]}`)
	})
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds %s\n", start)
	})
	s := httptest.NewUnstartedServer(mux)
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	return s
}

// runFleet runs a registry's fleet until the test ends.
func runFleet(t *testing.T, names discover.Resolver) (*fleet.Registry, *fleet.Fleet) {
	t.Helper()
	f, err := fleet.New(fleet.Config{RetryInterval: 20 * time.Millisecond, ProbeInterval: 20 * time.Millisecond, ScrapeInterval: 50 * time.Millisecond, ResolveInterval: 10 * time.Millisecond},
		fleet.Deps{Index: index.New(index.Config{}), Approx: index.NewApprox(index.ApproxConfig{MaxEntries: 16}), Clock: clock.Real(), Log: slog.New(slog.DiscardHandler), Resolver: names},
		nil, func(engine.Spec) (cost.Class, error) { return cost.Generic(), nil })
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { f.Run(ctx) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	return fleet.NewRegistry(f), f
}

func awaitTrue(t *testing.T, what string, ok func() bool) {
	t.Helper()
	(&ground{t: t}).await(what, ok)
}

// TestBR46_ANameThatLeadsElsewhere: a worker known by its name starts anew, on
// new connections, once the name leads to another address; while DNS is away,
// or says nothing, it stays.
func TestBR46_ANameThatLeadsElsewhere(t *testing.T) {
	var connections atomic.Int64
	s := plainWorker(t, "5", &connections)
	port := s.Listener.Addr().(*net.TCPAddr).Port
	names := new(fakeNames)
	names.set(nil, "127.0.0.1")
	r, f := runFleet(t, names)
	if err := r.SetStatic([]engine.Spec{{URL: fmt.Sprintf("http://localhost:%d", port), Engine: engine.VLLM}}, nil); err != nil {
		t.Fatal(err)
	}
	awaitTrue(t, "the worker to answer", func() bool { m := f.View().Members; return len(m) == 1 && m[0].Healthy() })
	awaitTrue(t, "a look", func() bool { return names.looked() > 1 })
	first := f.View().Members[0]
	first.Ledger.Book(1, &fleet.Booking{PromptTokens: 5, Choices: 1})
	for _, blip := range []func(){
		func() { names.set(&net.DNSError{IsNotFound: true, Err: "no such host"}) }, func() { names.set(nil) },
		func() { names.set(nil, "10.0.0.1", "10.0.0.2", "10.0.0.3") },
	} {
		blip()
		seen := names.looked()
		awaitTrue(t, "more looks", func() bool { return names.looked() > seen+3 })
		if f.View().Members[0] != first {
			t.Fatal("a blip of DNS made another worker")
		}
	}
	before := connections.Load()
	names.set(nil, "127.0.0.2")
	awaitTrue(t, "another worker", func() bool { return f.View().Members[0] != first })
	second := f.View().Members[0]
	awaitTrue(t, "it to answer", second.Healthy)
	if second.Ledger.Booked() != 0 || connections.Load() == before {
		t.Errorf("the other worker has %d bookings, and %d new connections were made", second.Ledger.Booked(), connections.Load()-before)
	}
	first.Worker.Close()
}

// One engine that is listed by name and found by address is one worker: the
// one listed first, whoever was asked first.
func TestOneProcessUnderTwoNamesIsOneWorker(t *testing.T) {
	for _, listedFirst := range []bool{true, false} {
		t.Run(fmt.Sprint("listed first ", listedFirst), func(t *testing.T) {
			var connections atomic.Int64
			s := plainWorker(t, "5", &connections)
			other := plainWorker(t, "5", &connections) // started at the same moment, elsewhere
			port := s.Listener.Addr().(*net.TCPAddr).Port
			names := new(fakeNames)
			names.set(nil, "127.0.0.1")
			r, f := runFleet(t, names)
			byName := engine.Spec{URL: fmt.Sprintf("http://localhost:%d", port), Engine: engine.VLLM}
			byAddress := []discover.Found{{Spec: engine.Spec{URL: s.URL, Engine: engine.VLLM}}, {Spec: engine.Spec{URL: other.URL, Engine: engine.VLLM}}}
			configure := func(specs ...engine.Spec) {
				t.Helper()
				if err := r.SetStatic(specs, []string{"dns:n"}); err != nil {
					t.Fatal(err)
				}
			}
			both := func() bool {
				m := f.View().Members
				return len(m) == 2 && m[0].Worker.Spec.URL == byName.URL && m[1].Worker.Spec.URL == other.URL && m[0].Healthy() && m[1].Healthy() &&
					m[0].Cache().Known != fleet.Unknown
			}
			configure()
			if listedFirst {
				configure(byName)
				awaitTrue(t, "the listed one", func() bool { m := f.View().Members; return len(m) == 1 && m[0].Cache().Known != fleet.Unknown })
			}
			r.Sink("dns:n").Found(byAddress)
			if !listedFirst {
				awaitTrue(t, "those found", func() bool {
					m := f.View().Members
					return len(m) == 2 && m[0].Cache().Known != fleet.Unknown && m[1].Cache().Known != fleet.Unknown
				})
				configure(byName)
			}
			awaitTrue(t, "two workers of three names", both)
			twins := 0
			for _, d := range f.Describe() {
				if d.SameAs == byName.URL {
					twins++
				}
			}
			if twins != 1 {
				t.Errorf("%d are shown as another one's twin", twins)
			}
			configure() // and by its address alone it is there again
			awaitTrue(t, "the one by address", func() bool {
				m := f.View().Members
				return len(m) == 2 && m[0].Worker.Spec.URL == s.URL && m[0].Healthy() && m[0].Cache().Known != fleet.Unknown
			})
		})
	}
}

// TestBR29_AHungProbeBlocksNobody: a worker that never answers its probe holds
// up no change of the list, nor what is found after it.
func TestBR29_AHungProbeBlocksNobody(t *testing.T) {
	asked := make(chan struct{}, 64)
	hung := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		<-r.Context().Done()
	}))
	t.Cleanup(hung.Close)
	var connections atomic.Int64
	good := plainWorker(t, "5", &connections)
	r, f := runFleet(t, new(fakeNames))
	if err := r.SetStatic(nil, []string{"kubernetes:k"}); err != nil {
		t.Fatal(err)
	}
	one, two := discover.Found{Spec: engine.Spec{URL: hung.URL, Engine: engine.VLLM}}, discover.Found{Spec: engine.Spec{URL: good.URL, Engine: engine.VLLM}}
	r.Sink("kubernetes:k").Found([]discover.Found{one})
	<-asked // it hangs from here on
	r.Sink("kubernetes:k").Found([]discover.Found{one, two})
	awaitTrue(t, "the other one to serve", func() bool { members, _ := f.View().Serving("m"); return len(members) == 1 && members[0].Healthy() })
	r.Sink("kubernetes:k").Found([]discover.Found{two})
	if m := f.View().Members; len(m) != 1 || m[0].Worker.Spec.URL != good.URL {
		t.Errorf("the hung one is still there: %v", m)
	}
}
