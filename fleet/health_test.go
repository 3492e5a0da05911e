package fleet_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/cost"
	"github.com/rhizome-router/rhizome/engine"
	"github.com/rhizome-router/rhizome/fleet"
	"github.com/rhizome-router/rhizome/index"
)

// TestBR04_LiveTrafficIsEvidenceOfLife: a worker too busy for its probes stays
// while its answers keep coming, and goes when they stop.
func TestBR04_LiveTrafficIsEvidenceOfLife(t *testing.T) {
	var busy atomic.Bool
	hung := make(chan struct{}, 1000) // a probe that gets no answer
	ended := make(chan struct{})      // the stream
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/stream":
			for {
				select {
				case <-time.After(2 * time.Millisecond):
					fmt.Fprintln(w, "token")
					w.(http.Flusher).Flush()
				case <-ended:
					return
				}
			}
		case busy.Load():
			hung <- struct{}{}
			<-r.Context().Done()
		case r.URL.Path == "/v1/models":
			io.WriteString(w, `{"data":[{"id":"m"}]}`)
		default:
			w.WriteHeader(404)
		}
	}))
	defer server.Close()
	f, err := fleet.New(fleet.Config{ProbeInterval: 10 * time.Millisecond, ProbeTimeout: 200 * time.Millisecond, RetryInterval: 10 * time.Millisecond, ScrapeInterval: time.Hour},
		fleet.Deps{Index: index.New(index.Config{}), Approx: index.NewApprox(index.ApproxConfig{MaxEntries: 16}), Clock: clock.Real(), Log: slog.New(slog.DiscardHandler)},
		[]engine.Spec{{URL: server.URL, Engine: engine.VLLM}}, func(engine.Spec) (cost.Class, error) { return cost.Generic(), nil })
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { f.Run(ctx) })
	defer wg.Wait()
	defer cancel()
	m := f.View().Members[0]
	eventually(t, "the worker answers", m.Healthy)
	req, _ := http.NewRequestWithContext(ctx, "GET", "http://w/stream", nil)
	resp, err := m.Worker.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	reading := make(chan struct{})
	go func() { defer close(reading); io.Copy(io.Discard, resp.Body) }()
	busy.Store(true)
	for range 4 { // when the fourth has come, three have timed out
		<-hung
		if !m.Healthy() {
			t.Fatal("a worker whose answers keep coming was given up")
		}
	}
	close(ended)
	<-reading
	eventually(t, "the silent worker is given up", func() bool { return !m.Healthy() })
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 20 s: %s", what)
		}
	}
}
