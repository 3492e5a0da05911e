package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/internal/testkit"
	"github.com/rhizome-router/rhizome/route"
)

// The rules of the front door, each with the test of what it says first. What
// else they say is tested where the code is.

// TestRule01_StreamsPassAsTheyCome: whatever the framing and however long a
// line, each piece arrives while the worker holds the next one back.
func TestRule01_StreamsPassAsTheyCome(t *testing.T) {
	pieces := []string{": ping\r\n\r\n", "data: {\"a\":", "1}\r\r", "data: " + strings.Repeat("long", 1<<18), "\n\n", "event: x\ndata:y\n\n", "data: [DONE]\n\n"}
	seen := make(chan struct{})
	script := testkit.Script{testkit.Send(testkit.SSEHead())}
	for _, p := range pieces {
		script = append(script, testkit.Wait(seen), testkit.Send(testkit.Chunk(p)))
	}
	script = append(script, testkit.Send(testkit.Chunk("")))
	r := newRig(t, Config{}, testkit.NewWorker(t, script))
	resp, err := r.client.Post(r.url+chat, "application/json", strings.NewReader(streamBody))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	for i, p := range pieces {
		seen <- struct{}{}
		got := make([]byte, len(p))
		if _, err := io.ReadFull(resp.Body, got); err != nil || string(got) != p {
			t.Fatalf("piece %d: %d bytes, %v", i, len(got), err)
		}
	}
	if rest, err := io.ReadAll(resp.Body); len(rest) != 0 || err != nil {
		t.Errorf("then %q, %v", rest, err)
	}
}

// TestRule02_ADeadWorkerIsNeverACleanEnd for the clients of each API.
func TestRule02_ADeadWorkerIsNeverACleanEnd(t *testing.T) {
	event := "data: {\"x\":1}\n\n"
	for path, told := range map[string]string{
		chat:               event + `data: {"error":{"message":"the worker's response broke off","type":"server_error","param":null,"code":"worker_stream_broken"}}` + "\n\n",
		"/v1/messages":     event + "event: error\ndata: " + `{"type":"error","error":{"type":"api_error","message":"the worker's response broke off"}}` + "\n\n",
		"/v1/responses":    event + `data: {"error":{"message":"the worker's response broke off","type":"server_error","param":null,"code":"worker_stream_broken"}}` + "\n\n",
		"/v1/some/new/api": event + `data: {"error":{"message":"the worker's response broke off","type":"server_error","param":null,"code":"worker_stream_broken"}}` + "\n\n",
	} {
		r := newRig(t, Config{}, testkit.NewWorker(t, testkit.Script{testkit.Send(testkit.SSEHead(), testkit.Chunk(event)), testkit.FIN()}))
		if a := r.post(path, streamBody); a.body != told || !errors.Is(a.err, io.ErrUnexpectedEOF) {
			t.Errorf("%s got %q, %v", path, a.body, a.err)
		}
	}
}

// TestRule03_RetriesGoToOtherWorkers with the same bytes, and the last failure
// is told.
func TestRule03_RetriesGoToOtherWorkers(t *testing.T) {
	var workers []*testkit.Worker
	for range 4 {
		workers = append(workers, testkit.NewWorker(t, testkit.Script{testkit.RST()}))
	}
	r := newRig(t, Config{}, workers...)
	if a := r.post(chat, plainBody); a.status != 502 {
		t.Errorf("got %+v", a)
	}
	for i, w := range workers {
		if want := min(1, max(0, 3-i)); w.Count() != want {
			t.Errorf("worker %d was asked %d times", i, w.Count())
		} else if want == 1 && w.Next(t).Body != plainBody {
			t.Errorf("worker %d got another body", i)
		}
	}
}

// TestRule04_WhatCountsAgainstAWorker
func TestRule04_WhatCountsAgainstAWorker(t *testing.T) {
	for _, c := range []struct {
		answer string
		want   route.Outcome
	}{
		{testkit.JSON(200, "{}"), route.Outcome{Result: route.Completed}},
		{testkit.JSON(400, "{}"), route.Outcome{Result: route.Rejected}},
		{testkit.JSON(404, "{}"), route.Outcome{Result: route.Rejected}},
		{testkit.JSON(429, "{}", "Retry-After: 7"), route.Outcome{Result: route.Busy, RetryAfter: 7 * time.Second}},
		{testkit.JSON(503, "{}", "Retry-After: 99999"), route.Outcome{Result: route.Busy, RetryAfter: maxRetryAfter}},
		{testkit.JSON(503, "{}", "Retry-After: soon"), route.Outcome{Result: route.Busy}},
		{testkit.JSON(500, "{}"), route.Outcome{Result: route.Failed}},
		{testkit.JSON(501, "{}"), route.Outcome{Result: route.Rejected}},
		{testkit.JSON(504, "{}"), route.Outcome{Result: route.Failed}},
		{testkit.SSE("a"), route.Outcome{Result: route.Failed}},
	} {
		r := newRig(t, Config{}, testkit.NewWorker(t, testkit.Script{testkit.Send(c.answer)}))
		r.post(chat, streamBody)
		r.stop()
		got := r.picker.outcomes[0]
		c.want.Cause, c.want.Caller = got.Cause, got.Caller
		if got != c.want || got.Cause == 0 || got.Caller == 0 {
			t.Errorf("%.30q gave %+v, want %+v", c.answer, got, c.want)
		}
	}
	date := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	if d := retryAfter(http.Header{"Retry-After": {date.Add(9 * time.Second).Format(http.TimeFormat)}}, date); d != 9*time.Second {
		t.Errorf("a date gave %v", d)
	}
}

// TestRule05_AccountsReturnToZero: whatever way requests end.
func TestRule05_AccountsReturnToZero(t *testing.T) {
	w := testkit.NewWorker(t)
	w.Always(testkit.Send(testkit.SSEHead(), testkit.Chunk("data: 1\n\n")), testkit.Stall())
	rnd := clock.Rand(5, "rule05")
	answers := []testkit.Script{
		{testkit.Send(testkit.JSON(200, "{}"))}, {testkit.Send(testkit.JSON(500, "{}"))}, {testkit.RST()},
		{testkit.Send(testkit.SSEHead(), testkit.Chunk("data: 1\n\n")), testkit.RST()}, {testkit.Stall()},
	}
	for range 150 {
		w.Add(answers[rnd.IntN(len(answers))])
	}
	r := newRig(t, Config{ReplayBytes: minReplayBytes, Keys: []KeyConfig{{Name: "a", SHA256: hashOf("k"), MaxInFlight: 1000}}}, w, testkit.NewWorker(t))
	var wg sync.WaitGroup
	for range 200 {
		size, after := rnd.IntN(3*minReplayBytes), time.Duration(rnd.IntN(30))*time.Millisecond
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), after)
			defer cancel()
			body := `{"model":"m","stream":true,"x":"` + strings.Repeat("x", size) + `"}`
			req, _ := http.NewRequestWithContext(ctx, "POST", r.url+chat, strings.NewReader(body))
			req.Header.Set("Authorization", "Bearer k")
			if resp, err := r.client.Do(req); err == nil {
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
		})
	}
	wg.Wait()
	r.stop() // the rig checks the gauges, the memory and the decisions
	l := r.g.limits.byTenant["a"]
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.inFlight != 0 {
		t.Errorf("%d requests are still counted for the tenant", l.inFlight)
	}
}

// TestRule06_WorkersErrorsPassUnchanged, in every shape they come.
func TestRule06_WorkersErrorsPassUnchanged(t *testing.T) {
	for _, c := range []struct {
		status               int
		contentType, body, h string
	}{
		{401, "application/json", `{"error":"no"}`, "WWW-Authenticate: Bearer x"},
		{422, "application/json", `{"detail":[{"loc":["body"]}]}`, "X-Y: 1"},
		{429, "application/json", `{}`, "Retry-After: 30"},
		{502, "text/html", "<html>", "X-Y: 2"},
		{503, "text/plain", "upstream connect error", "Retry-After: Fri, 31 Dec 2027 23:59:59 GMT"},
		{400, "application/json", `{"trunc`, "X-Y: 3"},
		{500, "application/json", "", "X-Y: 4"},
	} {
		for _, body := range []string{plainBody, streamBody} {
			r := newRig(t, Config{}, testkit.NewWorker(t, testkit.Script{testkit.Send(testkit.Response(c.status, c.body, "Content-Type: "+c.contentType, c.h))}))
			name, value, _ := strings.Cut(c.h, ": ")
			if a := r.post(chat, body); a.status != c.status || a.body != c.body || a.err != nil || a.header.Get("Content-Type") != c.contentType || a.header.Get(name) != value {
				t.Errorf("%d became %+v", c.status, a)
			}
		}
	}
}

// TestRule07_BodiesArriveAsTheyWereSent: nothing is encoded anew, compressed
// or not, aliased or not.
func TestRule07_BodiesArriveAsTheyWereSent(t *testing.T) {
	w := testkit.NewWorker(t)
	w.Always(testkit.Send(testkit.JSON(200, "{}")))
	r := newRig(t, Config{Models: map[string]ModelConfig{"alias": {To: []SplitConfig{{Model: "m"}}}}}, w)
	for _, model := range []string{"m", "alias"} {
		body := strings.Replace(odd, `m\u0031`, model, 1)
		for _, coding := range []string{"", "gzip", "zlib", "br", "zstd"} {
			sent, header := body, "X-None: 1"
			if coding != "" {
				sent, header = packed(t, coding, body), "Content-Encoding: "+strings.Replace(coding, "zlib", "deflate", 1)
			}
			if a := r.post(chat, sent, header); a.status != 200 {
				t.Fatalf("%s: %+v", coding, a)
			}
			if got := w.Next(t); got.Body != sent || "Content-Encoding: "+got.Header.Get("Content-Encoding") != header && coding != "" {
				t.Errorf("%s: the worker got %q", coding, got.Raw)
			}
		}
	}
}

// TestRule09_SecretsAreTold nowhere: not in logs of any level, metrics, errors
// or headers, whatever goes wrong.
func TestRule09_SecretsAreToldNowhere(t *testing.T) {
	const canary = "CANARY"
	var logs lockedBuffer
	w := testkit.NewWorker(t)
	r := newRig(t, Config{Keys: []KeyConfig{{Name: "a", SHA256: hashOf("CANARY-key")}}, Admin: AdminConfig{Token: "CANARY-admin"}}, w)
	r.g.deps.Log = slog.New(slog.NewTextHandler(&logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
	secret := []string{"X-Api-Key: CANARY-1", "Api-Key: CANARY-2", "Cookie: CANARY-3", "Proxy-Authorization: CANARY-4", "X-Agent-Workflow-Id: CANARY-5"}
	prompt := `{"model":"m","messages":[{"role":"user","content":"CANARY-prompt"}]}`
	var told strings.Builder
	for name, script := range map[string]testkit.Script{
		"success": {testkit.Send(testkit.JSON(200, "{}"))}, "failure": {testkit.Send(testkit.JSON(500, "{}"))},
		"reset": {testkit.RST()}, "broken": {testkit.Send(testkit.SSEHead(), testkit.Chunk("data: 1\n\n")), testkit.FIN()}, "nonsense": {testkit.Send("nonsense\r\n\r\n"), testkit.FIN()},
	} {
		w.Add(script)
		a := r.post(chat+"?key=CANARY-query", prompt, append(secret, "Authorization: Bearer CANARY-key")...)
		fmt.Fprintf(&told, "%s: %d %v %s\n", name, a.status, a.header, a.body)
		for h, v := range w.Next(t).Header {
			if strings.Contains(strings.Join(v, ""), canary) {
				t.Errorf("%s: the worker got %s: %s", name, h, v)
			}
		}
	}
	for _, c := range []struct{ path, body, auth string }{
		{chat, prompt, "Bearer CANARY-wrong"}, {chat, `{"model":"m","x":CANARY}`, "Bearer CANARY-key"}, {chat, `{"model":"m","messages":"CANARY"}`, "Bearer CANARY-key"},
		{"/v1/models", "", "Bearer CANARY-key"},
	} {
		a := r.post(c.path, c.body, append(secret, "Authorization: "+c.auth)...)
		fmt.Fprintf(&told, "%d %v %s\n", a.status, a.header, a.body)
	}
	r.picker.err = errors.New("CANARY-internal")
	a := r.post(chat, prompt, "Authorization: Bearer CANARY-key")
	r.picker.err = nil
	fmt.Fprintf(&told, "%d %v %s\n", a.status, a.header, a.body)
	admin := ask(r.g.Admin(), "GET", "/metrics", "Authorization: Bearer CANARY-wrong")
	told.WriteString(admin.Body.String() + r.metrics())
	if strings.Contains(told.String(), canary) {
		t.Errorf("told to clients or in metrics:\n%s", told.String())
	}
	if got := strings.ReplaceAll(logs.String(), "CANARY-internal", ""); strings.Contains(got, canary) || got == "" {
		t.Errorf("logged:\n%s", got)
	}
}

// lockedBuffer is a bytes.Buffer for several writers.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// TestRule08_HeadersThatTheRouterSetsStay, whatever a peer says about its
// connection.
func TestRule08_HeadersThatTheRouterSetsStay(t *testing.T) {
	r := newRig(t, Config{}, testkit.NewWorker(t, testkit.Script{testkit.Send(testkit.JSON(200, "{}",
		"Connection: X-Request-Id, X-Rhizome-Worker, X-Gone", "X-Gone: 1", "X-Rhizome-Worker: spoof", "X-Stays: 1"))}))
	a := r.post(chat, plainBody, "Connection: X-Request-Id, X-Gone", "X-Request-Id: mine", "X-Gone: 1", "X-Stays: 1",
		"Traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "Tracestate: a=b")
	got := r.workers[0].Next(t).Header
	for name, want := range map[string]string{"X-Request-Id": "mine", "X-Gone": "", "X-Stays": "1", "Tracestate": "a=b",
		"Traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"} {
		if got.Get(name) != want {
			t.Errorf("the worker got %s: %q, want %q", name, got.Get(name), want)
		}
	}
	for name, want := range map[string]string{"X-Request-Id": "mine", "X-Gone": "", "X-Stays": "1", "X-Rhizome-Worker": r.picker.workers[0].ID.String()} {
		if a.header.Get(name) != want {
			t.Errorf("the client got %s: %q, want %q", name, a.header.Get(name), want)
		}
	}
}
