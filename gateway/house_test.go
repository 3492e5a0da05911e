package gateway_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/cost"
	"github.com/rhizome-router/rhizome/engine"
	"github.com/rhizome-router/rhizome/fleet"
	"github.com/rhizome-router/rhizome/gateway"
	"github.com/rhizome-router/rhizome/index"
	"github.com/rhizome-router/rhizome/route"
)

// moodyWorker serves a model, and now and then fails in one of many ways.
func moodyWorker(t *testing.T, n int) string {
	var mu sync.Mutex
	rnd := clock.Rand(uint64(n), "moody")
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/models" {
			io.WriteString(w, `{"data":[{"id":"m"}]}`)
			return
		}
		if r.Method == "GET" {
			w.WriteHeader(404)
			return
		}
		mu.Lock()
		mood := rnd.IntN(10)
		mu.Unlock()
		io.Copy(io.Discard, r.Body)
		switch mood {
		case 0:
			panic(http.ErrAbortHandler)
		case 1:
			w.WriteHeader(500)
		case 2:
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(503)
		case 3:
			<-r.Context().Done() // never answers
		default:
			w.Header().Set("Content-Type", "text/event-stream")
			for i := range 5 {
				fmt.Fprintf(w, "data: {\"choices\":[{\"index\":%d}]}\n\n", i)
				w.(http.Flusher).Flush()
			}
			if mood == 4 {
				panic(http.ErrAbortHandler) // in the middle
			}
			io.WriteString(w, "data: [DONE]\n\n")
		}
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// TestRule05_LedgersReturnToZero: with the true router and fleet, and workers
// that leave and come back under their names in the middle of requests.
func TestRule05_LedgersReturnToZero(t *testing.T) {
	var specs []engine.Spec
	for i := range 4 {
		specs = append(specs, engine.Spec{URL: moodyWorker(t, i), Engine: engine.VLLM})
	}
	log, time0, registry := slog.New(slog.DiscardHandler), clock.Real(), prometheus.NewRegistry()
	prefixes, sent := index.New(index.Config{}), index.NewApprox(index.ApproxConfig{MaxEntries: 1 << 12})
	workers, err := fleet.New(fleet.Config{ProbeInterval: 20 * time.Millisecond, RetryInterval: 20 * time.Millisecond},
		fleet.Deps{Index: prefixes, Approx: sent, Clock: time0, Log: log}, specs, func(engine.Spec) (cost.Class, error) { return cost.Generic(), nil })
	if err != nil {
		t.Fatal(err)
	}
	router := route.New(route.Config{Policy: route.Rhizome, Weights: cost.DefaultWeights(), NearTie: route.DefaultMargins(), Article: cost.DefaultArticle(), Seed: 1},
		route.Deps{Fleet: workers, Index: prefixes, Approx: sent, Clock: time0})
	g, err := gateway.New(gateway.Config{FirstByteTimeout: time.Second}, gateway.Deps{Decider: router,
		Models: func() []engine.Model { return workers.View().Models() }, Registerer: registry, Gatherer: registry, Log: log, Clock: time0, Replica: "r"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { workers.Run(ctx) })
	for deadline := time.Now().Add(20 * time.Second); len(workers.View().Models()) == 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("no worker has answered within 20 s")
		}
	}
	front := httptest.NewServer(g)
	everyone := make(map[*fleet.Member]bool)
	note := func() {
		for _, m := range workers.View().Members {
			everyone[m] = true
		}
	}
	var clients sync.WaitGroup
	transport := &http.Transport{}
	rnd := clock.Rand(9, "clients")
	atOnce := make(chan struct{}, 40)
	for i := range 300 {
		after := time.Duration(rnd.IntN(300)) * time.Millisecond
		atOnce <- struct{}{}
		clients.Go(func() {
			defer func() { <-atOnce }()
			ctx, cancel := context.WithTimeout(t.Context(), after)
			defer cancel()
			body := fmt.Sprintf(`{"model":"m","stream":true,"messages":[{"role":"user","content":"%d %s"}]}`, i, strings.Repeat("words ", i))
			req, _ := http.NewRequestWithContext(ctx, "POST", front.URL+"/v1/chat/completions", strings.NewReader(body))
			if resp, err := transport.RoundTrip(req); err == nil {
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
		})
		if i%25 == 0 {
			note()
			kept := specs[:2+i/25%3]
			if err := workers.SetWorkers(kept); err != nil {
				t.Fatal(err)
			}
		}
	}
	clients.Wait()
	transport.CloseIdleConnections()
	front.Close()
	note()
	cancel()
	running.Wait()
	for m := range everyone {
		if n := m.Ledger.InFlight(); n != 0 || m.Ledger.Booked() != 0 {
			t.Errorf("%s still has %d requests", m.Target, n)
		}
		m.Worker.Close()
	}
	s := router.Stats()
	var ended uint64
	for _, n := range s.Ended {
		ended += n
	}
	if s.Requests != ended || s.Requests == 0 {
		t.Errorf("%d decisions, %d ends", s.Requests, ended)
	}
}
