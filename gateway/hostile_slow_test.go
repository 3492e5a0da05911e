package gateway_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/engine"
	"github.com/rhizome-router/rhizome/gateway"
	"github.com/rhizome-router/rhizome/internal/testkit"
	"github.com/rhizome-router/rhizome/kv"
	"github.com/rhizome-router/rhizome/route"
)

// slowFront is a gateway on a network in memory, where time is virtual, and a
// client that behaves.
type slowFront struct {
	mem    *testkit.Net
	client *http.Client
	stop   func()
}

const slowURL = "http://front:80"

func newSlowFront(t *testing.T, cfg gateway.Config) *slowFront {
	mem := testkit.NewNet()
	w := testkit.NewWorkerOn(t, mem.Listen("w:80"))
	w.Always(testkit.Send(testkit.JSON(200, "{}")))
	upstream := &http.Transport{DialContext: mem.Dial, DisableCompression: true}
	registry := prometheus.NewRegistry()
	log := slog.New(slog.DiscardHandler)
	d := &inOrder{open: make(map[*route.Decision]bool), workers: []*engine.Worker{{ID: kv.WorkerID(1)}}}
	g, err := gateway.New(cfg, gateway.Deps{Decider: d, Models: func() []engine.Model { return []engine.Model{{ID: "m"}} },
		Registerer: registry, Gatherer: registry, Log: log, Clock: clock.Real(), Replica: "r1"})
	if err != nil {
		t.Fatal(err)
	}
	g.SetDo(func(_ *engine.Worker, r *http.Request) (*http.Response, error) {
		r.URL.Scheme, r.URL.Host = "http", "w:80"
		return upstream.RoundTrip(r)
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	ln := mem.Listen("front:80")
	go func() { ended <- gateway.Serve(ctx, ln, g, time.Minute, log) }()
	client := &http.Client{Transport: &http.Transport{DialContext: mem.Dial, DisableCompression: true}}
	return &slowFront{mem: mem, client: client, stop: func() {
		client.CloseIdleConnections()
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the gateway did not come to rest: %v", err)
		}
		upstream.CloseIdleConnections()
		if d.count() != 0 {
			t.Errorf("%d decisions are open", d.count())
		}
		if n := w.Count(); n == 0 {
			t.Error("nothing reached the worker")
		}
	}}
}

// attack lets n clients send start and then one more byte every pause until
// the gateway hangs up or gives an answer; it returns the longest that one
// lasted, and the answers' first lines.
func (f *slowFront) attack(t *testing.T, n int, start string, pause time.Duration) (longest time.Duration, lines map[string]int) {
	lines = make(map[string]int)
	var mu sync.Mutex
	var wg sync.WaitGroup
	begun := time.Now()
	for range n {
		c, err := f.mem.Dial(t.Context(), "tcp", "front:80")
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			defer c.Close()
			stop := make(chan struct{})
			var feed sync.WaitGroup
			feed.Go(func() { trickle(c, start, pause, stop) })
			got, _ := io.ReadAll(io.LimitReader(c, 1<<10))
			lasted := time.Since(begun)
			close(stop)
			c.Close()
			feed.Wait()
			mu.Lock()
			defer mu.Unlock()
			longest = max(longest, lasted)
			line, _, _ := strings.Cut(string(got), "\r\n")
			lines[line]++
		})
	}
	for range 5 { // the well-behaved client asks meanwhile
		time.Sleep(time.Second) // virtual
		if problem := askOnce(f.client, slowURL); problem != "" {
			t.Errorf("the well-behaved client got %s", problem)
		}
	}
	wg.Wait()
	return longest, lines
}

// trickle sends start, then a byte every pause, until it fails or stop closes.
func trickle(c net.Conn, start string, pause time.Duration, stop <-chan struct{}) {
	tick := time.NewTicker(pause)
	defer tick.Stop()
	_, err := io.WriteString(c, start)
	for err == nil {
		select {
		case <-tick.C:
			_, err = c.Write([]byte("x"))
		case <-stop:
			return
		}
	}
}

// TestBR17_SlowHeadersAreCutOff: a head that drips in ends at its limit, and
// so does a connection that says nothing.
func TestBR17_SlowHeadersAreCutOff(t *testing.T) {
	for _, start := range []string{"POST " + chatPath + " HTTP/1.1\r\nHost: h\r\nX-Slow: ", "P", ""} {
		synctest.Test(t, func(t *testing.T) {
			f := newSlowFront(t, gateway.Config{})
			pause := time.Second
			if start == "" {
				pause = time.Hour
			}
			longest, lines := f.attack(t, 300, start, pause)
			if longest > 15*time.Second {
				t.Errorf("a slow head after %q lasted %v: %v", start, longest, lines)
			}
			f.stop()
		})
	}
}

// TestHostile_SlowBodiesTakeNoBudget: clients that announce much, send little
// and stall are told so at the limit; what they announced is not held for them,
// and others pass.
func TestHostile_SlowBodiesTakeNoBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := gateway.Config{MaxBodyBytes: 30 << 20, BufferBudgetBytes: 32 << 20, UploadTimeout: 30 * time.Second}
		f := newSlowFront(t, cfg)
		start := "POST " + chatPath + " HTTP/1.1\r\nHost: h\r\n" + fmt.Sprintf("Content-Length: %d\r\n\r\n", 30<<20) + `{"model":"m",`
		longest, lines := f.attack(t, 300, start, time.Hour)
		if longest > 40*time.Second || lines["HTTP/1.1 408 Request Timeout"] != 300 {
			t.Errorf("stalled bodies lasted up to %v and got %v", longest, lines)
		}
		f.stop()
	})
}

// TestHostile_StalledLargeBodiesLeaveRoom: large bodies that stall half way may
// fill what large bodies can have; small ones still pass.
func TestHostile_StalledLargeBodiesLeaveRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newSlowFront(t, gateway.Config{MaxBodyBytes: 30 << 20, BufferBudgetBytes: 32 << 20, UploadTimeout: 30 * time.Second})
		start := "POST " + chatPath + " HTTP/1.1\r\nHost: h\r\n" + fmt.Sprintf("Content-Length: %d\r\n\r\n", 30<<20) +
			`{"model":"m","messages":"` + strings.Repeat("word ", 256<<10)
		_, lines := f.attack(t, 60, start, time.Hour)
		stalled, refused := lines["HTTP/1.1 408 Request Timeout"], lines["HTTP/1.1 503 Service Unavailable"]
		if stalled == 0 || refused == 0 || stalled+refused != 60 {
			t.Errorf("the budget was not full: %v", lines)
		}
		f.stop()
	})
}

// TestRefusalsOverHTTP2LetShortBodiesEnd: a client that is refused before its
// body was needed may end what it sends, so that it sees the answer and not the
// end of a stream; but nobody waits long for it.
func TestRefusalsOverHTTP2LetShortBodiesEnd(t *testing.T) {
	for _, c := range []struct{ ends, answered time.Duration }{{500 * time.Millisecond, 500 * time.Millisecond}, {time.Hour, time.Second}} {
		synctest.Test(t, func(t *testing.T) {
			f := newSlowFront(t, gateway.Config{})
			if problem := askOnce(f.client, slowURL); problem != "" {
				t.Error(problem)
			}
			protocols := new(http.Protocols)
			protocols.SetUnencryptedHTTP2(true)
			transport := &http.Transport{DialContext: f.mem.Dial, Protocols: protocols}
			body, more := io.Pipe()
			time.AfterFunc(c.ends, func() { more.Close() })
			req, err := http.NewRequestWithContext(t.Context(), "POST", slowURL+"/nowhere", body)
			if err != nil {
				t.Fatal(err)
			}
			begun := time.Now()
			resp, err := transport.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if resp.StatusCode != 404 || err != nil || !strings.Contains(string(text), "unknown_url") {
				t.Errorf("answered with %s %s %v", resp.Status, text, err)
			}
			if d := time.Since(begun); d != c.answered {
				t.Errorf("answered after %v, want %v", d, c.answered)
			}
			more.Close()
			transport.CloseIdleConnections()
			f.stop()
		})
	}
}
