package gateway_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"

	"github.com/rhizome-router/rhizome/gateway"
	"github.com/rhizome-router/rhizome/internal/testkit"
)

// after is a step that waits until so much time has passed since the script was
// made.
func after(d time.Duration) testkit.Step { return testkit.Wait(time.After(d)) }

const token, lastEvent = "data: {\"choices\":[{\"index\":0}]}\n\n", "data: [DONE]\n\n"

// inVirtualTime runs a test for clients of HTTP/1.1 and of HTTP/2, before one
// worker, under the default limits where cfg says nothing.
func inVirtualTime(t *testing.T, cfg gateway.Config, test func(t *testing.T, h *wholeHouse, w *testkit.Worker)) {
	for _, proto := range []string{"HTTP/1.1", "HTTP/2"} {
		t.Run(proto, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				mem := testkit.NewNet()
				w := testkit.NewWorkerOn(t, mem.Listen("w0:80"))
				tracer := sdk.NewTracerProvider(sdk.WithSampler(sdk.AlwaysSample())).Tracer("test")
				h := openHouse(t, houseConfig{mem: mem, gateway: cfg, tracer: tracer}, w)
				if proto == "HTTP/2" {
					h.transport.Protocols = new(http.Protocols)
					h.transport.Protocols.SetUnencryptedHTTP2(true)
				}
				test(t, h, w)
			})
		})
	}
}

// TestBR17_OnlySilenceIsCut under the default limits: neither a long answer nor
// a late first token, but a worker that stalls and a client that reads nothing.
func TestBR17_OnlySilenceIsCut(t *testing.T) {
	inVirtualTime(t, gateway.Config{}, func(t *testing.T, h *wholeHouse, w *testkit.Worker) {
		long := testkit.Script{testkit.Send(testkit.SSEHead())}
		for i := range 20 * 60 {
			long = append(long, after(time.Duration(i+1)*time.Second), testkit.Send(testkit.Chunk(token)))
		}
		w.Add(append(long, testkit.Send(testkit.Chunk(lastEvent), testkit.Chunk(""))))
		begun := time.Now()
		if got := h.ask(chatPath, askedStream); got.err != nil || strings.Count(got.body, token) != 1200 || time.Since(begun) != 20*time.Minute {
			t.Errorf("a token a second for 20 min: %d tokens, %v, after %v", strings.Count(got.body, token), got.err, time.Since(begun))
		}
		w.Add(testkit.Script{testkit.Send(testkit.SSEHead()), after(3 * time.Minute), testkit.Send(testkit.Chunk(token+lastEvent), testkit.Chunk(""))})
		if got := h.ask(chatPath, askedStream); got.err != nil || got.body != token+lastEvent {
			t.Errorf("silent for 3 min, then fast: %+v", got)
		}
		w.Add(testkit.Script{testkit.Send(testkit.SSEHead(), testkit.Chunk(strings.Repeat(token, 5))), testkit.Stall()})
		begun = time.Now()
		got := h.ask(chatPath, askedStream)
		said, told, _ := strings.Cut(got.body, `data: {"error":`)
		if got.err == nil || said != strings.Repeat(token, 5) || !strings.Contains(told, "worker_timeout") || time.Since(begun) != 2*time.Minute {
			t.Errorf("stalled after 5 tokens: %+v after %v", got, time.Since(begun))
		}
		w.Add(testkit.Script{testkit.Send(testkit.SSEHead(), testkit.Chunk("data: "+strings.Repeat("x", 8<<20)+"\n\n")), testkit.Stall()})
		resp, err := h.client.Post(h.url+chatPath, "application/json", strings.NewReader(askedStream))
		if err != nil {
			t.Fatal(err)
		}
		begun = time.Now()
		for range 3 { // those before
			w.Next(t)
		}
		<-w.Next(t).PeerGone
		if d := time.Since(begun); d > 3*time.Minute || d < time.Minute {
			t.Errorf("a client that reads nothing held its worker for %v", d)
		}
		resp.Body.Close()
	})
}

// TestBR40_StreamsCountUntilTheyEnd against a limit of two at a time, and a
// handler that falls over gives its place back.
func TestBR40_StreamsCountUntilTheyEnd(t *testing.T) {
	keys := keysOf("k")
	keys[0].MaxInFlight = 2
	inVirtualTime(t, gateway.Config{Keys: keys}, func(t *testing.T, h *wholeHouse, w *testkit.Worker) {
		minute := func() testkit.Script {
			return testkit.Script{testkit.Send(testkit.SSEHead(), testkit.Chunk(token)), after(time.Minute), testkit.Send(testkit.Chunk(lastEvent), testkit.Chunk(""))}
		}
		w.Add(minute(), minute())
		ended := make(chan reply)
		for range 2 {
			go func() { ended <- h.ask(chatPath, askedStream, as("k", "")...) }()
		}
		for _, pause := range []time.Duration{400 * time.Millisecond, 1600 * time.Millisecond, 28 * time.Second} {
			time.Sleep(pause) // virtual
			if got := h.ask(chatPath, asked, as("k", "")...); got.status != 429 || got.header.Get("Retry-After") == "" || !strings.Contains(got.body, "rate_limit_exceeded") {
				t.Errorf("a third got %+v", got)
			}
		}
		for range 2 {
			if got := <-ended; got.err != nil || got.status != 200 {
				t.Errorf("a stream ended as %+v", got)
			}
		}
		for range 5 { // clients that leave while the worker is silent
			w.Add(testkit.Script{testkit.Stall()})
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if got := h.askWith(ctx, chatPath, askedStream, as("k", "")...); got.err == nil {
				t.Errorf("a client that left got %+v", got)
			}
			cancel()
			synctest.Wait()
		}
		w.Always(testkit.Send(testkit.JSON(200, "{}")))
		if got := h.ask(chatPath, asked, as("k", "")...); got.status != 200 {
			t.Errorf("after all that the next got %+v", got)
		}
	})
}

// TestBR48_EventsArriveWhenTheyAreSent, to the instant, with everything on that
// could hold them back, whatever their type, framing and length.
func TestBR48_EventsArriveWhenTheyAreSent(t *testing.T) {
	cfg := gateway.Config{Keys: keysOf("k"), CORS: gateway.CORSConfig{Origins: []string{"*"}}}
	inVirtualTime(t, cfg, func(t *testing.T, h *wholeHouse, w *testkit.Worker) {
		const events = 20
		chunked := "Transfer-Encoding: chunked"
		for name, c := range map[string]struct {
			head, event string
		}{
			"events":    {testkit.Head(200, "Content-Type: text/event-stream; charset=utf-8", chunked), "data: 1\n\n"},
			"CRLF":      {testkit.Head(200, "Content-Type: text/event-stream", chunked), "data: 1\r\n\r\n"},
			"CR":        {testkit.Head(200, "Content-Type: Text/Event-Stream", chunked), "data: 1\r\r"},
			"ndjson":    {testkit.Head(200, "Content-Type: application/x-ndjson", chunked), "{\"a\": 1}\n"},
			"no type":   {testkit.Head(200, chunked), "data: 1\n\n"},
			"no chunks": {testkit.Head(200, "Content-Type: text/event-stream", "Content-Length: 194"), "data: 1\n\n"},
			"gzip":      {testkit.Head(200, "Content-Type: text/event-stream", "Content-Encoding: x-odd", chunked), "\x01\x02\x03\x04\x05\x06\x07\x08\x09"},
		} {
			script := testkit.Script{testkit.Send(c.head)}
			frame := testkit.Chunk
			if name == "no chunks" {
				frame = func(s string) string { return s }
			}
			for i := range events {
				script = append(script, after(time.Duration(i+1)*time.Second), testkit.Send(frame(c.event)))
			}
			script = append(script, testkit.Send(frame(lastEvent)))
			if name != "no chunks" {
				script = append(script, testkit.Send(testkit.Chunk("")))
			}
			w.Add(script)
			begun := time.Now()
			req, err := http.NewRequestWithContext(t.Context(), "POST", h.url+chatPath, strings.NewReader(askedStream))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", "Bearer key-k")
			req.Header.Set("Origin", "https://page.example")
			req.Header.Set("Accept-Encoding", "gzip, br")
			resp, err := h.client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			if d := time.Since(begun); d != 0 || resp.StatusCode != 200 {
				t.Errorf("%s: the head took %v: %s", name, d, resp.Status)
			}
			for i := range events {
				got := make([]byte, len(c.event))
				if _, err := io.ReadFull(resp.Body, got); err != nil || string(got) != c.event {
					t.Fatalf("%s: event %d is %q, %v", name, i, got, err)
				}
				if d := time.Since(begun); d != time.Duration(i+1)*time.Second {
					t.Errorf("%s: event %d came after %v", name, i, d)
				}
			}
			if rest, err := io.ReadAll(resp.Body); err != nil || string(rest) != lastEvent {
				t.Errorf("%s: then %q, %v", name, rest, err)
			}
			resp.Body.Close()
		}
	})
}

// TestBR52_OneOutcomeAtTheEnd of each request: what it was, how long it took in
// all, and when its first token came, which is neither the head nor a comment.
func TestBR52_OneOutcomeAtTheEnd(t *testing.T) {
	inVirtualTime(t, gateway.Config{}, func(t *testing.T, h *wholeHouse, w *testkit.Worker) {
		begin := func(rest ...testkit.Step) testkit.Script {
			return append(testkit.Script{after(10 * time.Millisecond), testkit.Send(testkit.SSEHead()), after(time.Second), testkit.Send(testkit.Chunk(": ping\n\n")),
				after(2 * time.Second), testkit.Send(testkit.Chunk(token)), after(5 * time.Second)}, rest...)
		}
		w.Add(begin(testkit.RST()))
		if got := h.ask(chatPath, askedStream); got.err == nil {
			t.Errorf("a broken stream: %+v", got)
		}
		w.Add(begin())
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if got := h.askWith(ctx, chatPath, askedStream); got.err == nil {
			t.Errorf("a client that left: %+v", got)
		}
		synctest.Wait()
		w.Add(begin(testkit.Send(testkit.Chunk("data: {\"error\":{\"message\":\"x\"}}\n\n"+lastEvent), testkit.Chunk(""))))
		if got := h.ask(chatPath, askedStream); got.err != nil {
			t.Errorf("got %+v", got)
		}
		w.Add(begin(testkit.Send(testkit.Chunk(lastEvent), testkit.Chunk(""))))
		if got := h.ask(chatPath, askedStream); got.err != nil {
			t.Errorf("got %+v", got)
		}
		m := h.metrics()
		for _, ending := range []string{"broken", "client_gone", "error_event", "ok"} {
			if n := testkit.Metric(t, m, "rhizome_gateway_requests_total", fmt.Sprintf("ending=%q", ending)); n != 1 {
				t.Errorf("%v requests ended as %s, want 1", n, ending)
			}
		}
		for name, want := range map[string]float64{"ttft_seconds_count": 4, "ttft_seconds_sum": 8, "request_duration_seconds_count": 4,
			"request_duration_seconds_sum": 5 + 3 + 5 + 5} {
			if got := testkit.Metric(t, m, "rhizome_gateway_"+name); got != want {
				t.Errorf("%s is %v, want %v", name, got, want)
			}
		}
	})
}
