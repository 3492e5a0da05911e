package gateway_test

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/zeebo/xxh3"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/rhizome-router/rhizome/engine"
	"github.com/rhizome-router/rhizome/gateway"
	"github.com/rhizome-router/rhizome/internal/testkit"
)

// journal is a log of every level, for several writers.
type journal struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.b.Write(p)
}

// TestBR06_CanariesAreToldNowhere: whatever becomes of a request, a worker that
// nobody reaches and a handler that falls over among it, what it holds of
// secrets is in no log, span, metric, answer or page of the admin API, and
// reaches no worker.
func TestBR06_CanariesAreToldNowhere(t *testing.T) {
	const canary = "CANARY"
	var logged journal
	spans := tracetest.NewSpanRecorder()
	provider := sdk.NewTracerProvider(sdk.WithSpanProcessor(spans), sdk.WithSampler(sdk.AlwaysSample()))
	gone, w := testkit.NewWorker(t), testkit.NewWorker(t)
	w.Always(testkit.Send(testkit.JSON(200, "{}")))
	h := openHouse(t, houseConfig{gateway: gateway.Config{Keys: append(keysOf("k"), gateway.KeyConfig{Name: "c", SHA256: hashOf("CANARY-key"), Trust: "hints"})},
		log: slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelDebug})), tracer: provider.Tracer("test")}, gone, w)
	gone.Close()
	secrets := []string{"X-Api-Key: CANARY-1", "Api-Key: CANARY-2", "Cookie: CANARY-3", "Proxy-Authorization: Basic CANARY-4"}
	body := `{"model":"m","messages":[{"role":"user","content":"CANARY-prompt"}]}`
	var told strings.Builder
	try := func(what, auth, body string, more ...string) {
		got := h.ask(chatPath+"?key=CANARY-query", body, append(append(secrets, "Authorization: Bearer "+auth), more...)...)
		fmt.Fprintf(&told, "%s: %d %v %s %v\n", what, got.status, got.header, got.body, got.err)
		if id := got.header.Get("X-Request-Id"); id != "" {
			told.WriteString(h.admin("/explain/" + id))
		}
	}
	try("success", "CANARY-key", body)
	try("dial failure", "CANARY-key", body, "X-Rhizome-Pin: "+gone.URL())
	try("bad key", "CANARY-wrong", body)
	try("no JSON", "CANARY-key", `{"model":"m","x":CANARY}`)
	try("no model", "CANARY-key", `{"messages":"CANARY"}`)
	h.gateway.SetDo(func(w *engine.Worker, r *http.Request) (*http.Response, error) { panic(http.ErrAbortHandler) })
	got := h.ask(chatPath, body, append(secrets, "Authorization: Bearer CANARY-key")...)
	if got.err == nil {
		t.Errorf("a handler that fell over gave %+v", got)
	}
	for range w.Count() {
		r := w.Next(t)
		for name, values := range r.Header {
			if strings.Contains(strings.Join(values, " "), canary) {
				t.Errorf("the worker got %s: %s", name, values)
			}
		}
	}
	for _, path := range []string{"/metrics", "/workers", "/index", "/config"} {
		told.WriteString(h.admin(path))
	}
	if strings.Contains(told.String(), canary) {
		t.Errorf("told:\n%s", told.String())
	}
	if text := logged.b.String(); strings.Contains(text, canary) || !strings.Contains(text, "worker gave no answer") {
		t.Errorf("logged:\n%s", text)
	}
	if text := fmt.Sprint(tracetest.SpanStubsFromReadOnlySpans(spans.Ended())); strings.Contains(text, canary) || len(spans.Ended()) < 6 {
		t.Errorf("%d spans: %s", len(spans.Ended()), text)
	}
}

// TestBR22_NobodySteersFromOutside: names that steer workers, sidecars or other
// routers, in whatever spelling, however often, go no further and decide
// nothing; nothing that comes back names a worker's address.
func TestBR22_NobodySteersFromOutside(t *testing.T) {
	a, b := testkit.NewWorker(t), testkit.NewWorker(t)
	h := openHouse(t, houseConfig{}, a, b)
	d := &testkit.Differ{Worker: a, Router: h.url}
	b.Always(testkit.Send(testkit.JSON(200, "{}")))
	a.Always(testkit.Send(testkit.JSON(200, "{}")))
	h.member(1).Circuit.SetDraining(true) // so that a decision for it shows
	for _, name := range []string{
		"X-Gateway-Destination-Endpoint", "x-gateway-destination-endpoint-served", "X-Data-Parallel-Rank", "X-DATA-PARALLEL-RANK", "x_data_parallel_rank",
		"X-Prefiller-Host-Port", "x-prefiller_url", "X-Encoder-Hosts-Ports", "X-Data-Parallel-Host-Port", "X-SMG-Target-Worker", "x-smg-routing-key",
		"X-Worker-Instance-Id", "X-Prefill-Instance-Id", "x-dp-rank", "X-Prefill-DP-Rank", "X-Dynamo-Routing-Mode", "X-Bootstrap-Host", "x-bootstrap-room",
		"X-Tenant-Id", "X-Rhizome-Pin", "x-rhizome-worker", "X-Rhizome-Anything", "X-Request-Hop", "X-Agent-Workflow-Id", "X-Priority",
	} {
		host := strings.TrimPrefix(b.URL(), "http://")
		e := d.Via(t, h.url, request(chatPath, asked, name+": "+host, strings.ToUpper(name)+": "+b.URL(), "Cookie: worker="+host), fine)
		if !e.Asked || e.Answer.Status != 200 {
			t.Errorf("%s moved the request: %d", name, e.Answer.Status)
		}
		if strings.Contains(e.Request.Raw, host) {
			t.Errorf("%s reached the worker: %q", name, e.Request.Raw)
		}
		if back := fmt.Sprint(e.Answer.Header, e.Answer.Body); strings.Contains(back, "127.0.0.1") || strings.Contains(back, host) {
			t.Errorf("%s: the answer names an address: %s", name, back)
		}
	}
	if b.Count() > 0 {
		t.Error("the worker that was asked for got a request")
	}
}

// TestBR63_ThePublicPortTellsNothing of operation, however the path is spelt.
func TestBR63_ThePublicPortTellsNothing(t *testing.T) {
	w := testkit.NewWorker(t)
	h := openHouse(t, houseConfig{}, w)
	for _, path := range []string{
		"/metrics", "//metrics", "/metrics/", "/%6detrics", "/v1/..%2fmetrics", "/v1/../metrics", "/v1/%2e%2e/metrics", "/.//metrics", "/debug/pprof/", "/debug/pprof/heap",
		"/debug/vars", "/workers", "/config", "/index", "/explain/x", "/health?verbose", "/health/verbose", "/v1/metrics", "/v1/debug/vars", "/v1/workers",
	} {
		c := testkit.DialRaw(t, h.url)
		c.Send("GET " + path + " HTTP/1.1\r\nHost: h\r\n\r\n")
		a := c.Answer("GET")
		if a.Status != 404 && a.Status != 400 && a.Status != 405 || strings.Contains(a.Body, "rhizome_") || strings.Contains(a.Body, "goroutine") || strings.Contains(a.Body, "127.0.0.1") {
			t.Errorf("GET %s gave %d %s", path, a.Status, a.Body)
		}
	}
	for path, want := range map[string]string{"/healthz?verbose": `{"status":"ok"}`, "/readyz?verbose=1": `{"status":"ready"}`} {
		c := testkit.DialRaw(t, h.url)
		c.Send("GET " + path + " HTTP/1.1\r\nHost: h\r\n\r\n")
		if a := c.Answer("GET"); a.Status != 200 || strings.TrimSpace(a.Body) != want {
			t.Errorf("GET %s gave %d %s", path, a.Status, a.Body)
		}
	}
	if w.Count() > 0 {
		t.Error("a worker was asked")
	}
}

// TestBR65_TheLastRealErrorIsTold of several attempts, with its headers, and no
// other status is tried again; what the router itself refuses for want of room
// says when to come again.
func TestBR65_TheLastRealErrorIsTold(t *testing.T) {
	date := "Fri, 31 Dec 2999 23:59:59 GMT"
	for name, c := range map[string]struct {
		first, second string
		status        int
		retryAfter    string
		asked         int
	}{
		"422 everywhere":       {testkit.JSON(422, `{"detail":"a"}`), testkit.JSON(422, `{"detail":"b"}`), 422, "", 1},
		"dead, then 422":       {"", testkit.JSON(422, `{"detail":"b"}`), 422, "", 2},
		"full, then 422":       {testkit.JSON(429, `{}`, "Retry-After: 30"), testkit.JSON(422, `{"detail":"b"}`), 422, "", 2},
		"a date, then full":    {testkit.JSON(503, `{"a":1}`, "Retry-After: "+date), testkit.JSON(429, `{"b":2}`, "Retry-After: 30", "X-Ratelimit-Limit-Requests: 5"), 429, "30", 2},
		"full, then a date":    {testkit.JSON(429, `{"b":2}`, "Retry-After: 30"), testkit.JSON(503, `{"a":1}`, "Retry-After: "+date), 503, date, 2},
		"full without a hint":  {testkit.JSON(429, `{}`), testkit.JSON(200, `{}`), 429, "", 1},
		"full, then it is old": {testkit.JSON(503, `{}`, "Retry-After: Thu, 01 Jan 1970 00:00:00 GMT"), testkit.JSON(200, `{}`), 200, "", 2},
	} {
		t.Run(name, func(t *testing.T) {
			script := func(s string) testkit.Script {
				if s == "" {
					return testkit.Script{testkit.RST()}
				}
				return testkit.Script{testkit.Send(s)}
			}
			workers := []*testkit.Worker{testkit.NewWorker(t, script(c.first)), testkit.NewWorker(t, script(c.second))}
			f := newFront(t, gateway.Config{}, workers[0].URL(), workers[1].URL())
			raw := testkit.DialRaw(t, f.url)
			raw.Send(request(chatPath, asked))
			a := raw.Answer("POST")
			if n := workers[0].Count() + workers[1].Count(); a.Status != c.status || a.Header.Get("Retry-After") != c.retryAfter || n != c.asked || a.Body == "null" {
				t.Errorf("got %d %v %s after %d attempts", a.Status, a.Header, a.Body, n)
			}
			if c.status == 429 && c.asked == 2 && a.Header.Get("X-Ratelimit-Limit-Requests") != "5" {
				t.Errorf("the headers are %v", a.Header)
			}
		})
	}
	f := newFront(t, gateway.Config{}) // nobody
	raw := testkit.DialRaw(t, f.url)
	raw.Send(request(chatPath, asked))
	if a := raw.Answer("POST"); a.Status != 503 || a.Header.Get("Retry-After") == "" {
		t.Errorf("without a worker: %d %v", a.Status, a.Header)
	}
}

// TestBR55_UploadsOfAnySizePass: 25 MB of sound with the model behind it, and
// what else isn't a conversation.
func TestBR55_UploadsOfAnySizePass(t *testing.T) {
	head := "--b0undary\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\n\r\n"
	tail := "\r\n--b0undary\r\nContent-Disposition: form-data; name=\"stream\"\r\n\r\ntrue\r\n--b0undary\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nm\r\n--b0undary--\r\n"
	const size = 25 << 20
	body := func() io.Reader {
		return repeated(head, strings.Repeat("\x00\xff\r\n--b0undar\x1a", 3000), tail, size)
	}
	sum := func(r io.Reader) string {
		h := xxh3.New()
		n, err := io.Copy(h, r)
		return fmt.Sprint(n, " ", h.Sum64(), " ", err)
	}
	arrived := make(chan string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { arrived <- sum(r.Body) }))
	t.Cleanup(server.Close)
	f := newFront(t, gateway.Config{ReplayBytes: 1 << 20}, server.URL)
	client := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(client.CloseIdleConnections)
	resp, err := client.Post(f.url+"/v1/audio/transcriptions", "multipart/form-data; boundary=b0undary", body())
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if got, want := <-arrived, sum(body()); got != want || resp.StatusCode != 200 {
		t.Errorf("the worker got %s, sent was %s: %s", got, want, resp.Status)
	}
	t.Run("others", func(t *testing.T) {
		d := differ(t)
		answer := testkit.Response(200, strings.Repeat("\xff\xf3\x00", 10_000), "Content-Type: audio/mpeg")
		for path, ask := range map[string]string{
			"/v1/audio/speech": `{"model":"m","input":"hi","voice":"x"}`, "/v1/embeddings": `{"model":"m","input":"a","encoding_format":"base64"}`,
			"/tokenize": `{"model":"m","prompt":"x"}`, "/v1/foo": `{"model":"m"}`,
		} {
			direct, routed := d.Run(t, request(path, ask), testkit.Script{testkit.Send(answer)})
			testkit.Same(t, direct, routed)
		}
	})
}
