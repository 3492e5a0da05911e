package otlp

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/rhizome-router/rhizome/gateway"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestSpansReachACollector over HTTP, at the latest when the exporter closes.
func TestSpansReachACollector(t *testing.T) {
	got := make(chan string, 10)
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- r.URL.Path + " " + string(body)
	}))
	defer collector.Close()
	e, err := New(t.Context(), gateway.TraceConfig{Endpoint: collector.URL + "/v1/traces", SampleShare: 1}, "replica-1", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	_, span := e.Tracer().Start(t.Context(), "a-span")
	span.End()
	e.Close()
	if sent := <-got; !strings.HasPrefix(sent, "/v1/traces ") || !strings.Contains(sent, "a-span") || !strings.Contains(sent, "replica-1") {
		t.Errorf("the collector got %q", sent)
	}
}

// TestNoCollectorIsNoFault: requests go on; the loss is told once, at the end.
func TestNoCollectorIsNoFault(t *testing.T) {
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	var log bytes.Buffer
	e, err := New(t.Context(), gateway.TraceConfig{Endpoint: gone.URL + "/v1/traces", SampleShare: 1}, "r", slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	_, span := e.Tracer().Start(t.Context(), "a-span")
	span.End()
	e.Close()
	if !strings.Contains(log.String(), "could not be sent") {
		t.Errorf("logged %q", log.String())
	}
}
