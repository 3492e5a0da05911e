package gateway_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/rhizome-router/rhizome/gateway"
	"github.com/rhizome-router/rhizome/internal/testkit"
	"github.com/rhizome-router/rhizome/route"
)

// TestHostile_RapidReset opens streams on a few HTTP/2 connections and takes
// each back at once, before, while and after the worker is asked. Nothing of
// them stays, none counts against the worker, and others are served.
func TestHostile_RapidReset(t *testing.T) {
	worker := newSink(t)
	f := newFront(t, gateway.Config{}, worker.url)
	n := newNeighbour(t, f)
	const connections, streams = 4, 400
	var wg sync.WaitGroup
	for range connections {
		wg.Go(func() {
			protocols := new(http.Protocols)
			protocols.SetUnencryptedHTTP2(true)
			transport := &http.Transport{Protocols: protocols}
			defer transport.CloseIdleConnections()
			for i := range streams {
				ctx, cancel := context.WithCancel(t.Context())
				req, err := http.NewRequestWithContext(ctx, "POST", f.url+chatPath, strings.NewReader(askedStream))
				if err != nil {
					t.Error(err)
				}
				var reset sync.WaitGroup
				reset.Go(func() {
					for range i % 8 * 200 { // a different moment each time
						ctx.Err()
					}
					cancel()
				})
				if resp, err := transport.RoundTrip(req); err == nil {
					resp.Body.Close()
				}
				reset.Wait()
			}
		})
	}
	wg.Wait()
	n.wasServed(t)
	testkit.Until(t, "no request is in flight", func() bool {
		return f.decider.count() == 0 && testkit.Metric(t, f.metrics(), "rhizome_gateway_in_flight_requests") == 0
	})
	f.decider.mu.Lock()
	defer f.decider.mu.Unlock()
	for _, end := range f.decider.ends {
		if end != route.Cancelled && end != route.Completed {
			t.Fatalf("a request that its client took back counts as %v", end)
		}
	}
}
