package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/internal/testkit"
	"github.com/rhizome-router/rhizome/route"
)

// chunkOf is a chat chunk as vLLM writes it.
func chunkOf(text string) string {
	return fmt.Sprintf(`{"id":"c1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":%q}}]}`, text)
}

const usageJSON = `"usage":{"prompt_tokens":100,"total_tokens":107,"completion_tokens":7,"prompt_tokens_details":{"cached_tokens":64}}`

var wantUsage = route.Usage{Known: true, PromptTokens: 100, CachedTokens: 64, CompletionTokens: 7}

// TestDifferential sends the same request directly and through the gateway;
// what the worker and the client see must be the same bytes, wherever the
// response was split.
func TestDifferential(t *testing.T) {
	r := memRig(t, Config{}, nil)
	w := r.workers[0]
	rnd := clock.Rand(1, "differential")
	bodies := []string{
		plainBody, streamBody,
		`{"model":"other","model":"m","seed":9007199254740993,"x":{"id":18446744073709551615,"f":1e400,"g":1.0},"stream":true,` +
			`"messages":[{"content":"<b>&\u2028\ud800","role":"user"}],"unknown_future":{"a":[null]},"n":null }` + "\n",
	}
	answers := []string{
		testkit.SSE(chunkOf("a"), chunkOf("é\u2028\n"), `{"choices":[],`+usageJSON+`}`, "[DONE]"),
		testkit.JSON(200, `{"choices":[{"x":18446744073709551615}],`+usageJSON+`}`, "X-Other: 1", "x-other: 2", "Server: uvicorn"),
		testkit.JSON(404, `{"object":"error","message":"no such model"}`),
		testkit.Response(502, "<html>upstream connect error</html>", "Content-Type: text/html"),
		testkit.JSON(429, `{"detail":"busy"}`, "Retry-After: 30", "x-ratelimit-reset: 1s"),
		testkit.Response(200, strings.Repeat("\x00\xff binary", 9000)),
		testkit.Response(200, ""),
		testkit.Head(200, "Content-Type: application/x-ndjson", "Transfer-Encoding: chunked") +
			testkit.Chunk("{}\n") + testkit.Chunk(strings.Repeat("x", 50000)) + testkit.Chunk(""),
		testkit.Head(200, "Content-Type: text/event-stream", "Content-Encoding: gzip", "Transfer-Encoding: chunked") +
			testkit.Chunk("\x1f\x8bnot really") + testkit.Chunk(""),
		testkit.Head(200, "Content-Type: application/json", "Transfer-Encoding: chunked", "Trailer: X-Sum") +
			testkit.Chunk("{}") + "0\r\nX-Sum: 7\r\n\r\n",
	}
	for i := range 120 {
		body, answer := bodies[i%len(bodies)], answers[rnd.IntN(len(answers))]
		var cuts []int
		for range rnd.IntN(6) {
			cuts = append(cuts, rnd.IntN(len(answer)))
		}
		slices.Sort(cuts)
		script := testkit.Script{testkit.SendSplit(answer, cuts...)}
		w.Add(script, script)
		direct := r.send(r.direct, w.URL()+chat+"?a=%20b", body)
		sent := w.Next(t)
		through := r.post(chat+"?a=%20b", body)
		relayed := w.Next(t)

		if sent.Body != relayed.Body || sent.Length != relayed.Length || sent.Target != relayed.Target {
			t.Fatalf("case %d: the worker got\n%s\nwant\n%s", i, relayed.Raw, sent.Raw)
		}
		for _, added := range []string{headerRequestID, headerWorker, headerReplica, headerDecision} {
			if through.header.Get(added) == "" {
				t.Fatalf("case %d: no header %s", i, added)
			}
			through.header.Del(added)
		}
		if direct.err != nil || through.err != nil || direct.status != through.status || direct.body != through.body ||
			!maps.EqualFunc(direct.header, through.header, slices.Equal) {
			t.Fatalf("case %d, answer cut at %v: direct\n%v\nthrough the gateway\n%v", i, cuts, direct, through)
		}
	}
}

func TestTrailersPass(t *testing.T) {
	r := memRig(t, Config{}, testkit.Script{testkit.Send(
		testkit.Head(200, "Transfer-Encoding: chunked", "Trailer: X-Sum") + testkit.Chunk("{}") + "0\r\nX-Sum: 7\r\n\r\n")})
	resp, err := r.client.Post(r.url+chat, "application/json", strings.NewReader(plainBody))
	if err != nil {
		t.Fatal(err)
	}
	io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	if resp.Trailer.Get("X-Sum") != "7" {
		t.Errorf("trailer %v", resp.Trailer)
	}
}

// TestStreamsAreFlushed sees every event arrive while the worker holds the
// next one back, in whatever media type.
func TestStreamsAreFlushed(t *testing.T) {
	for _, head := range []string{
		testkit.SSEHead(),
		testkit.Head(200, "Content-Type: application/x-ndjson", "Transfer-Encoding: chunked"),
		testkit.Head(200, "Transfer-Encoding: chunked"),
	} {
		seen := make(chan struct{})
		var script testkit.Script
		script = append(script, testkit.Send(head), testkit.Wait(seen))
		for i := range 5 {
			script = append(script, testkit.Send(testkit.Chunk(fmt.Sprintf("data: %d\n\n", i))), testkit.Wait(seen))
		}
		script = append(script, testkit.Send(testkit.Chunk("data: [DONE]\n\n")+testkit.Chunk("")))
		r := newRig(t, Config{}, testkit.NewWorker(t, script))
		resp, err := r.client.Post(r.url+chat, "application/json", strings.NewReader(streamBody))
		if err != nil {
			t.Fatal(err)
		}
		seen <- struct{}{} // the head came alone
		for i := range 5 {
			event := make([]byte, len("data: 0\n\n"))
			if _, err := io.ReadFull(resp.Body, event); err != nil || string(event) != fmt.Sprintf("data: %d\n\n", i) {
				t.Fatalf("event %d: %q, %v", i, event, err)
			}
			seen <- struct{}{}
		}
		rest, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if string(rest) != "data: [DONE]\n\n" || err != nil {
			t.Errorf("the rest is %q, %v", rest, err)
		}
	}
}

// TestUsageReachesTheRouter checks Outcome.Usage and FirstByte.
func TestUsageReachesTheRouter(t *testing.T) {
	for _, c := range []struct {
		name, body, answer string
		want               route.Usage
		firstBytes         int
	}{
		{"json", plainBody, testkit.JSON(200, `{"choices":[],`+usageJSON+`}`), wantUsage, 0},
		{"stream", streamBody, testkit.SSE(chunkOf("a"), `{"choices":[],`+usageJSON+`}`, "[DONE]"), wantUsage, 1},
		{"none", plainBody, testkit.JSON(200, `{}`), route.Usage{}, 0},
		{"not said", plainBody, testkit.JSON(200, `{"usage":{"prompt_tokens":3,"completion_tokens":4}}`),
			route.Usage{Known: true, PromptTokens: 3, CompletionTokens: 4, CachedTokens: -1}, 0},
		{"compressed", plainBody, testkit.JSON(200, `{`+usageJSON+`}`, "Content-Encoding: gzip"), route.Usage{}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := memRig(t, Config{}, testkit.Script{testkit.Send(c.answer)})
			if a := r.post(chat, c.body); a.err != nil || a.status != 200 {
				t.Fatalf("answer %+v", a)
			}
			r.stop()
			if o := r.picker.outcomes; len(o) != 1 || o[0].Result != route.Completed || o[0].Usage != c.want {
				t.Errorf("outcomes %+v", o)
			}
			if r.picker.firstBytes != c.firstBytes {
				t.Errorf("%d first bytes, want %d", r.picker.firstBytes, c.firstBytes)
			}
		})
	}
}

// TestBR02_ClientCancelReachesTheWorkerAtOnce cancels at every stage of a
// request and measures, in virtual time, when the worker sees it.
func TestBR02_ClientCancelReachesTheWorkerAtOnce(t *testing.T) {
	stages := map[string]testkit.Script{
		"before the head": {testkit.Stall()},
		"before the body": {testkit.Send(testkit.SSEHead()), testkit.Stall()},
		"mid-stream":      {testkit.Send(testkit.SSEHead(), testkit.Chunk("data: x\n\n")), testkit.Stall()},
		"half a json":     {testkit.Send(testkit.Head(200, "Content-Length: 100") + "{"), testkit.Stall()},
	}
	for name, script := range stages {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := memRig(t, Config{}, script, testkit.Script{testkit.Send(testkit.JSON(200, "{}"))})
				ctx, cancel := context.WithCancel(t.Context())
				req, _ := http.NewRequestWithContext(ctx, "POST", r.url+chat, strings.NewReader(streamBody))
				var client = make(chan struct{})
				go func() {
					defer close(client)
					resp, err := r.client.Do(req)
					if err == nil {
						_, err = io.Copy(io.Discard, resp.Body)
						resp.Body.Close()
					}
					if !errors.Is(err, context.Canceled) {
						t.Errorf("the client saw %v", err)
					}
				}()
				got := r.workers[0].Next(t)
				time.Sleep(time.Second) // of virtual time: all are waiting now
				start := time.Now()
				cancel()
				<-got.PeerGone
				if d := time.Since(start); d > 100*time.Millisecond {
					t.Errorf("the worker was freed after %v", d)
				}
				<-client
				r.stop()
				if res := r.picker.results(); res != "cancelled" || r.workers[1].Count() != 0 {
					t.Errorf("results %q, %d retries", res, r.workers[1].Count())
				}
				if n := testkit.Metric(t, r.metrics(), "rhizome_gateway_upstream_failures_total"); n != 0 {
					t.Errorf("%v failures counted against workers", n)
				}
			})
		})
	}
}

// TestBR03_DeathMidStreamIsNeverAClean200 lets a worker die at different
// points of a stream.
func TestBR03_DeathMidStreamIsNeverAClean200(t *testing.T) {
	event := "data: " + chunkOf("a") + "\n\n"
	for _, c := range []struct {
		name   string
		script testkit.Script
		before string // of the error event
	}{
		{"reset", testkit.Script{testkit.Send(testkit.SSEHead(), testkit.Chunk(event)), testkit.Wait[struct{}](nil), testkit.RST()}, event},
		{"end without the last chunk", testkit.Script{testkit.Send(testkit.SSEHead(), testkit.Chunk(event)), testkit.FIN()}, event},
		{"end before any event", testkit.Script{testkit.Send(testkit.SSEHead()), testkit.FIN()}, ""},
		{"inside a line", testkit.Script{testkit.Send(testkit.SSEHead(), testkit.Chunk(event+"data: {\"ch")), testkit.FIN()}, event + "data: {\"ch\n\n"},
		{"inside an event", testkit.Script{testkit.Send(testkit.SSEHead(), testkit.Chunk(event+"data: {}\n")), testkit.FIN()}, event + "data: {}\n\n\n"},
		{"regular end without DONE", testkit.Script{testkit.Send(testkit.SSEHead(), testkit.Chunk(event), testkit.Chunk(""))}, event},
	} {
		t.Run(c.name, func(t *testing.T) {
			script := c.script
			seen := make(chan struct{})
			if c.name == "reset" { // only when the client has the first event, which a reset could overtake
				script[1] = testkit.Wait(seen)
			}
			r := newRig(t, Config{}, testkit.NewWorker(t, script), testkit.NewWorker(t))
			resp, err := r.client.Post(r.url+chat, "application/json", strings.NewReader(streamBody))
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			var body bytes.Buffer
			if c.name == "reset" {
				io.CopyN(&body, resp.Body, int64(len(event)))
				close(seen)
			}
			_, err = io.Copy(&body, resp.Body)
			if !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("the transfer ended with %v, want a broken one", err)
			}
			told, ok := strings.CutPrefix(body.String(), c.before)
			data, isEvent := strings.CutPrefix(told, "data: ")
			data, ends := strings.CutSuffix(data, "\n\n")
			var e struct {
				Error struct{ Message, Type, Code string }
			}
			if err := json.Unmarshal([]byte(data), &e); err != nil || !ok || !isEvent || !ends || e.Error.Message == "" ||
				e.Error.Type != "server_error" || e.Error.Code != "worker_stream_broken" {
				t.Errorf("got %q (%v)", body.String(), err)
			}
			if strings.Contains(told, "[DONE]") || strings.Contains(told, "finish_reason") {
				t.Errorf("the error event pretends an end: %q", told)
			}
			r.stop()
			if res := r.picker.results(); res != "failed" {
				t.Errorf("results %q, want one failure", res)
			}
			if n := testkit.Metric(t, r.metrics(), "rhizome_gateway_requests_total", `ending="broken"`, `code="2xx"`); n != 1 {
				t.Errorf("%v requests counted as broken", n)
			}
		})
	}
}

func TestBR03_TruncatedJSONBreaksTheTransfer(t *testing.T) {
	head := testkit.Head(200, "Content-Type: application/json", "Content-Length: 1000")
	r := newRig(t, Config{}, testkit.NewWorker(t,
		testkit.Script{testkit.Send(head + `{"half":`), testkit.FIN()},
		testkit.Script{testkit.Send(head), testkit.FIN()}))
	if a := r.post(chat, plainBody); a.status != 200 || a.body != `{"half":` || !errors.Is(a.err, io.ErrUnexpectedEOF) {
		t.Errorf("half a body gave %+v", a)
	}
	if a := r.post(chat, plainBody); a.status != 502 || a.err != nil || !strings.Contains(a.body, `"worker_stream_broken"`) {
		t.Errorf("a head without a body gave %+v", a)
	}
	r.stop()
	if res := r.picker.results(); res != "failed failed" {
		t.Errorf("results %q", res)
	}
}

// TestBR52_ErrorInsideAStream: an error event of the worker's own is passed on
// as it is and counted as what it is.
func TestBR52_ErrorInsideAStream(t *testing.T) {
	answer := testkit.SSE(chunkOf("a"), `{"error": {"message":"boom","code":500}}`, "[DONE]")
	r := newRig(t, Config{}, testkit.NewWorker(t, testkit.Script{testkit.Send(answer)}))
	if a := r.post(chat, streamBody); a.err != nil || !strings.HasSuffix(a.body, "data: [DONE]\n\n") {
		t.Errorf("got %+v", a)
	}
	r.stop()
	if res := r.picker.results(); res != "failed" {
		t.Errorf("results %q", res)
	}
	if n := testkit.Metric(t, r.metrics(), "rhizome_gateway_requests_total", `ending="error_event"`); n != 1 {
		t.Errorf("%v requests counted with an error event", n)
	}
}

// TestBR17_TimeLimits plays a silent and a stalling worker in virtual time.
func TestBR17_TimeLimits(t *testing.T) {
	cfg := Config{FirstByteTimeout: time.Minute, IdleTimeout: 10 * time.Second}
	for _, c := range []struct {
		name, body string
		script     func() testkit.Script
		check      func(a got, took time.Duration) bool
		results    string
	}{
		{"no head", streamBody, func() testkit.Script { return testkit.Script{testkit.Stall()} },
			func(a got, took time.Duration) bool { return a.status == 504 && a.err == nil && took == time.Minute }, "failed"},
		{"no first event", streamBody, func() testkit.Script { return testkit.Script{testkit.Send(testkit.SSEHead()), testkit.Stall()} },
			func(a got, took time.Duration) bool {
				return a.status == 200 && a.err != nil && strings.Contains(a.body, "worker_timeout") && took == time.Minute
			}, "failed"},
		{"stall", streamBody, func() testkit.Script {
			return testkit.Script{testkit.Send(testkit.SSEHead()), testkit.Wait(time.After(50 * time.Second)),
				testkit.Send(testkit.Chunk("data: 1\n\n")), testkit.Stall()}
		},
			func(a got, took time.Duration) bool {
				return a.status == 200 && a.err != nil && strings.HasPrefix(a.body, "data: 1\n\ndata: {\"error\"") && took == time.Minute
			}, "failed"},
		{"slow but steady", streamBody, func() testkit.Script {
			return testkit.Script{testkit.Send(testkit.SSEHead()), testkit.Wait(time.After(59 * time.Second)),
				testkit.Send(testkit.Chunk("data: 1\n\n")), testkit.Wait(time.After(68 * time.Second)),
				testkit.Send(testkit.Chunk("data: [DONE]\n\n"), testkit.Chunk(""))}
		},
			func(a got, took time.Duration) bool { return a.status == 200 && a.err == nil && took == 68*time.Second }, "completed"},
		{"no stream, no limit", plainBody, func() testkit.Script {
			return testkit.Script{testkit.Wait(time.After(time.Hour)), testkit.Send(testkit.JSON(200, "{}"))}
		},
			func(a got, took time.Duration) bool { return a.status == 200 && a.err == nil && took == time.Hour }, "completed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := memRig(t, cfg, c.script(), testkit.Script{testkit.Send(testkit.JSON(200, "{}"))})
				start := time.Now()
				if a := r.post(chat, c.body); !c.check(a, time.Since(start)) {
					t.Errorf("got %+v after %v", a, time.Since(start))
				}
				r.stop()
				if res := r.picker.results(); res != c.results {
					t.Errorf("results %q, want %q", res, c.results)
				}
			})
		})
	}
}

// TestSlowClientIsNotTheWorkersFault: a client that doesn't read for longer
// than the idle limit neither breaks the stream nor blames the worker.
func TestSlowClientIsNotTheWorkersFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		big := strings.Repeat("x", 64<<10)
		r := memRig(t, Config{IdleTimeout: time.Second, WriteTimeout: time.Minute}, testkit.Script{
			testkit.Send(testkit.SSEHead(), testkit.Chunk("data: "+big+"\n\n"), testkit.Chunk("data: [DONE]\n\n"), testkit.Chunk(""))})
		resp, err := r.client.Post(r.url+chat, "application/json", strings.NewReader(streamBody))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Second)
		b, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || len(b) < len(big) {
			t.Errorf("%d bytes, %v", len(b), err)
		}
		r.stop()
		if res := r.picker.results(); res != "completed" {
			t.Errorf("results %q", res)
		}
	})
}
