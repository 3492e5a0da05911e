package gateway

import (
	"context"
	"maps"
	"net/http"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// startSpan begins the span of an exchange, as a child of the caller's.
func (g *Gateway) startSpan(x *exchange) {
	ctx := propagation.TraceContext{}.Extract(x.r.Context(), propagation.HeaderCarrier(x.r.Header))
	ctx, x.span = g.deps.Tracer.Start(ctx, "request", trace.WithSpanKind(trace.SpanKindServer),
		trace.WithAttributes(attribute.String("rhizome.request_id", x.id), attribute.String("http.request.method", x.r.Method)))
	if x.span.IsRecording() {
		x.r = x.r.WithContext(ctx)
	}
}

// endSpan ends it. Prompts, keys and names that callers make up are not told.
func (g *Gateway) endSpan(x *exchange) {
	if !x.span.IsRecording() {
		return
	}
	x.span.SetAttributes(attribute.Int("http.response.status_code", x.status), attribute.String("rhizome.ending", x.ending),
		attribute.String("gen_ai.request.model", x.model), attribute.Int64("rhizome.response_bytes", x.sent))
	if x.ending != "ok" {
		x.span.SetStatus(codes.Error, x.ending)
	}
	x.span.End()
}

// spanOfAttempt begins the span of one attempt; the result ends it.
func (g *Gateway) spanOfAttempt(a *attempt) func() {
	if !a.x.span.IsRecording() {
		return func() {}
	}
	d := a.decision
	ctx, span := g.deps.Tracer.Start(a.ctx, "attempt", trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(
		attribute.String("rhizome.target", d.Target.String()), attribute.Int("rhizome.predicted_cached_tokens", d.PredictedCachedTokens),
		attribute.Float64("rhizome.cost_micros", d.CostMicros)))
	a.ctx = ctx
	return func() {
		span.SetAttributes(attribute.String("rhizome.result", a.outcome.Result.String()))
		if u := a.outcome.Usage; u.Known {
			span.SetAttributes(attribute.Int("gen_ai.usage.input_tokens", u.PromptTokens), attribute.Int("gen_ai.usage.output_tokens", u.CompletionTokens),
				attribute.Int("rhizome.cached_tokens", u.CachedTokens))
		}
		span.End()
	}
}

// injectSpan makes the worker's spans children of the attempt's. While nothing
// is recorded here, the caller's traceparent passes as it came.
func injectSpan(ctx context.Context, h http.Header) http.Header {
	if !trace.SpanFromContext(ctx).IsRecording() {
		return h
	}
	h = maps.Clone(h)
	propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(h))
	return h
}
