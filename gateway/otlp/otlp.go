// Package otlp sends the gateway's spans to a collector by OTLP over HTTP. It
// is apart from the gateway so that nothing else has to link the exporter.
//
// The central type is [Exporter]; start reading at [New].
package otlp

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/rhizome-router/rhizome/gateway"
)

// Limits of what waits to be sent; what does not fit is dropped.
const (
	maxWaiting  = 4096
	sendTimeout = 5 * time.Second
)

// Exporter gathers spans and sends them, batch by batch, in a goroutine of its
// own that [Exporter.Close] ends.
type Exporter struct {
	provider *sdk.TracerProvider
}

// New returns an exporter to the collector that cfg names, whose Endpoint is
// not empty. Nothing is asked of the collector yet.
func New(ctx context.Context, cfg gateway.TraceConfig, replica string, log *slog.Logger) (*Exporter, error) {
	client, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(cfg.Endpoint), otlptracehttp.WithTimeout(sendTimeout))
	if err != nil {
		return nil, fmt.Errorf("trace: exporter to %s: %w", cfg.Endpoint, err)
	}
	provider := sdk.NewTracerProvider(
		sdk.WithBatcher(&telling{SpanExporter: client, log: log}, sdk.WithMaxQueueSize(maxWaiting), sdk.WithExportTimeout(sendTimeout)),
		sdk.WithSampler(sdk.ParentBased(sdk.TraceIDRatioBased(cfg.SampleShare))),
		sdk.WithResource(resource.NewSchemaless(attribute.String("service.name", "rhizome"), attribute.String("service.instance.id", replica))),
	)
	return &Exporter{provider}, nil
}

// Tracer is what the gateway records with.
func (e *Exporter) Tracer() trace.Tracer { return e.provider.Tracer("rhizome/gateway") }

// telling is an exporter whose faults go to our log, and not to the process's
// standard one: the first of a row as a warning.
type telling struct {
	sdk.SpanExporter
	log    *slog.Logger
	failed bool // last time; one goroutine exports
}

func (t *telling) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	err := t.SpanExporter.ExportSpans(ctx, spans)
	if err != nil && !t.failed {
		t.log.Warn("traces could not be sent and are lost", "spans", len(spans), "err", err)
	}
	t.failed = err != nil
	return nil
}

// Close sends what waits, for at most a few seconds, and ends.
func (e *Exporter) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), sendTimeout)
	defer cancel()
	_ = e.provider.Shutdown(ctx) // its faults have been told
}
