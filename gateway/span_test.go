package gateway

import (
	"fmt"
	"strings"
	"testing"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/rhizome-router/rhizome/internal/testkit"
)

// TestSpans: a request and each of its attempts is a span, below the caller's,
// and the worker's spans come below the attempt's.
func TestSpans(t *testing.T) {
	recorder := tracetest.NewSpanRecorder()
	provider := sdk.NewTracerProvider(sdk.WithSpanProcessor(recorder), sdk.WithSampler(sdk.ParentBased(sdk.AlwaysSample())))
	ok := testkit.Script{testkit.Send(testkit.JSON(200, `{`+usageJSON+`}`))}
	r := newRig(t, Config{}, testkit.NewWorker(t, testkit.Script{testkit.RST()}), testkit.NewWorker(t, ok, ok))
	r.g.deps.Tracer = provider.Tracer("test")
	const caller = "0af7651916cd43dd8448eb211c80319c"
	if a := r.post(chat, strings.Replace(plainBody, "hi", "CANARY", 1), "Traceparent: 00-"+caller+"-b7ad6b7169203331-01"); a.status != 200 {
		t.Fatalf("%+v", a)
	}
	r.stop()
	spans := recorder.Ended()
	if len(spans) != 3 || spans[0].Name() != "attempt" || spans[1].Name() != "attempt" || spans[2].Name() != "request" {
		t.Fatalf("%d spans", len(spans))
	}
	request := spans[2]
	if request.SpanContext().TraceID().String() != caller || request.Parent().SpanID().String() != "b7ad6b7169203331" {
		t.Errorf("the request's span is %v below %v", request.SpanContext(), request.Parent())
	}
	for i, span := range spans[:2] {
		if span.Parent().SpanID() != request.SpanContext().SpanID() {
			t.Errorf("an attempt is below %v", span.Parent())
		}
		want := fmt.Sprintf("00-%s-%s-01", caller, span.SpanContext().SpanID())
		if got := r.workers[i].Next(t).Header.Get("Traceparent"); got != want {
			t.Errorf("worker %d got %s, want %s", i, got, want)
		}
	}
	if told := fmt.Sprint(tracetest.SpanStubsFromReadOnlySpans(spans)); strings.Contains(told, "CANARY") || !strings.Contains(told, "completed") || !strings.Contains(told, "failed") {
		t.Errorf("the spans say %s", told)
	}
	// Where the caller is not sampled, its header passes as it came.
	r2 := newRig(t, Config{}, testkit.NewWorker(t, ok))
	r2.g.deps.Tracer = provider.Tracer("test")
	const unsampled = "00-" + caller + "-b7ad6b7169203331-00"
	r2.post(chat, plainBody, "Traceparent: "+unsampled)
	if got := r2.workers[0].Next(t).Header.Get("Traceparent"); got != unsampled {
		t.Errorf("the worker got %s", got)
	}
}
