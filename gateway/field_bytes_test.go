package gateway_test

import (
	"compress/flate"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"

	"github.com/rhizome-router/rhizome/gateway"
	"github.com/rhizome-router/rhizome/internal/testkit"
	"github.com/rhizome-router/rhizome/prompt"
)

// aliased is a gateway that serves m under the name alias, and writes m into
// the body, before one scripted worker.
func aliased(t testing.TB) *testkit.Differ {
	t.Helper()
	w := testkit.NewWorker(t)
	cfg := gateway.Config{Models: map[string]gateway.ModelConfig{"alias": {To: []gateway.SplitConfig{{Model: "m"}}, Rewrites: []string{"served_model_name"}}}}
	return &testkit.Differ{Worker: w, Router: newFront(t, cfg, w.URL()).url}
}

var fine = testkit.Script{testkit.Send(testkit.JSON(200, "{}"))}

// passesBut checks that the worker gets body with one replacement, and all other
// bytes as they were sent.
func passesBut(t *testing.T, d *testkit.Differ, body, old, new string) {
	t.Helper()
	e := d.Via(t, d.Router, request(chatPath, body), fine)
	if want := strings.Replace(body, old, new, 1); !e.Asked || e.Request.Body != want || e.Request.Length != int64(len(want)) {
		t.Errorf("the worker got\n%s\nwant\n%s\nthe client %d %s", e.Request.Body, want, e.Answer.Status, e.Answer.Body)
	}
}

// TestBR14_NumbersSurviveARewrite: a body of which one value is replaced is
// encoded anew nowhere.
func TestBR14_NumbersSurviveARewrite(t *testing.T) {
	d := aliased(t)
	passesBut(t, d, `{"model":"alias","seed":9007199254740993,"vllm_xargs":{"id":18446744073709551615},"temperature":1.0,"x":1e400,"y":-0.0,"z":1E+2,"messages":[{"role":"user","content":"<b>&\u2028"}]}`, `"alias"`, `"m"`)
	passesBut(t, d, `{"seed":9007199254740993,"messages":[{"content":"\u003c<","role":"user"}] , "model" : "alias" }`, `"alias"`, `"m"`)
}

// TestBR15_AnAliasChangesNoOtherByte: twenty times the same thirty tools, under
// an alias; each time the worker's bytes and the router's own keys are the same.
func TestBR15_AnAliasChangesNoOtherByte(t *testing.T) {
	d := aliased(t)
	body := strings.Replace(thirtyTools(), `"model":"m"`, `"model":"alias"`, 1)
	var keys string
	for range 20 {
		passesBut(t, d, body, `"alias"`, `"m"`)
		p, err := prompt.Parse(prompt.Chat, []byte(body))
		if err != nil {
			t.Fatal(err)
		}
		if now := fmt.Sprint(p.Chunks()); keys != "" && now != keys || len(p.Chunks()) == 0 {
			t.Fatalf("the keys are %s, before they were %s", now, keys)
		} else {
			keys = now
		}
	}
}

// TestBR27_UnknownFieldsReachTheWorker with an alias and without one, nothing is
// added or left out; of two models the one counts that the worker reads.
func TestBR27_UnknownFieldsReachTheWorker(t *testing.T) {
	body := `{"model":"%s","chat_template_kwargs":{"enable_thinking":false},"guided_json":{"type":"object"},"stop_token_ids":[1,2],"top_k":-1,"min_p":0.05,` +
		`"reasoning_effort":null,"bootstrap_host":"10.0.0.9","bootstrap_room":12345678901234567,"unknown_future":{"a":[null]},"stop":null,"messages":[` +
		`{"role":"user","content":[{"type":"hologram","hologram":{"x":1}},{"type":"text","text":"hi"}]},` +
		`{"role":"assistant","reasoning_content":"r","content":null,"tool_calls":[{"id":"1","type":"function","extra":true,"function":{"name":"f","arguments":"{}","strict":null}}]}]}`
	d := aliased(t)
	passesBut(t, d, fmt.Sprintf(body, "m"), "", "")
	passesBut(t, d, fmt.Sprintf(body, "alias"), `"alias"`, `"m"`)
	passesBut(t, d, `{"model":"nobody","messages":[],"model":"m"}`, "", "")
	passesBut(t, d, `{"model":"nobody","messages":[],"model":"alias"}`, `"alias"`, `"m"`)
	if e := d.Via(t, d.Router, request(chatPath, `{"model":"m","messages":[],"model":"nobody"}`), fine); e.Asked || e.Answer.Status != 404 {
		t.Errorf("a model that only the first of two names is routed: %d", e.Answer.Status)
	}
}

// TestBR37_UsageForTheRouterAlone compares what a client sees of a router that
// asks for the usage with what the worker would have sent it.
func TestBR37_UsageForTheRouterAlone(t *testing.T) {
	usage := `"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}`
	long := `{"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}]}`
	tool := `{"choices":[{"index":1,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"\"usage\":{}"}}]}}]}`
	end := `{"choices":[{"index":0,"delta":{},"finish_reason":"length"}]}`
	running := `{"choices":[{"index":0,"delta":{"content":"b"}}],` + usage + `}`
	final := `{"id":"x","choices":[],` + usage + `}`
	w := testkit.NewWorker(t)
	f := newFront(t, gateway.Config{Models: map[string]gateway.ModelConfig{"m": {Rewrites: []string{"usage"}}}}, w.URL())
	d := &testkit.Differ{Worker: w, Router: f.url}
	for name, c := range map[string]struct {
		path, members string
		events        []string
		own           bool // the caller asked for the last event
	}{
		"no options":      {chatPath, ``, []string{long, end}, false},
		"false":           {chatPath, `"stream_options":{"include_usage":false},`, []string{long, end}, false},
		"null":            {chatPath, `"stream_options":null,`, []string{long, end}, false},
		"true":            {chatPath, `"stream_options":{"include_usage":true},`, []string{long, end}, true},
		"continuous":      {chatPath, `"stream_options":{"include_usage":true,"continuous_usage_stats":true},`, []string{running, end}, true},
		"two choices":     {chatPath, `"n":2,`, []string{long, tool, end}, false},
		"older API":       {"/v1/completions", `"prompt":"x",`, []string{`{"choices":[{"text":"a","finish_reason":"stop"}]}`}, false},
		"nothing but end": {chatPath, ``, nil, false},
	} {
		body := `{"model":"m",` + c.members + `"stream":true,"messages":[{"role":"user","content":"hi"}]}`
		e := d.Via(t, d.Router, request(c.path, body), testkit.Script{testkit.Send(testkit.SSE(append(c.events[:len(c.events):len(c.events)], final, "[DONE]")...))})
		want := ""
		for _, event := range c.events {
			want += "data: " + event + "\n\n"
		}
		if c.own {
			want += "data: " + final + "\n\n"
		}
		if want += "data: [DONE]\n\n"; e.Answer.Body != want || e.Answer.Broken != "" {
			t.Errorf("%s: the client got %q, want %q", name, e.Answer.Body, want)
		}
		if !strings.Contains(e.Request.Body, `"include_usage":true`) {
			t.Errorf("%s: the worker was not asked: %s", name, e.Request.Body)
		}
	}
}

// TestBR39_BytesAndHeadersArePairs: what a worker says of its body's coding and
// length holds for what the client gets, whatever it accepts.
func TestBR39_BytesAndHeadersArePairs(t *testing.T) {
	sse := strings.TrimSuffix(testkit.SSEHead(), "\r\n") + "Content-Encoding: gzip\r\n\r\n"
	d := differ(t)
	for name, wire := range map[string]string{
		"gzip json":      testkit.JSON(200, gzipped(`{"a":1}`), "Content-Encoding: gzip"),
		"gzip error":     testkit.JSON(400, gzipped(`{"error":{}}`), "Content-Encoding: gzip"),
		"gzip 500":       testkit.JSON(500, gzipped(`{"error":{}}`), "Content-Encoding: gzip"),
		"gzip stream":    sse + testkit.Chunk(gzipped("data: {}\n\ndata: [DONE]\n\n")) + testkit.Chunk(""),
		"unknown coding": testkit.JSON(200, "\x00\x01", "Content-Encoding: exi"),
		"identity":       testkit.JSON(200, "{}", "Content-Encoding: identity"),
		"204":            "HTTP/1.1 204 No Content\r\nX-A: b\r\n\r\n",
		"304":            "HTTP/1.1 304 Not Modified\r\nETag: \"x\"\r\n\r\n",
		"sound":          testkit.Response(200, strings.Repeat("\x00\xff\x1f\x8b\r\n", 20_000), "Content-Type: audio/mpeg"),
	} {
		for _, accept := range []string{"Accept-Encoding: gzip", "Accept-Encoding: identity", "X-None: 1"} {
			body := asked
			if strings.Contains(name, "stream") {
				body = askedStream
			}
			direct, routed := d.Run(t, request(chatPath, body, accept), testkit.Script{testkit.Send(wire)})
			for _, difference := range testkit.Differences(direct, routed) {
				t.Errorf("%s, %s: %s", name, accept, difference)
			}
		}
	}
	// Two lengths that differ, or an odd transfer coding, are no answer.
	for _, wire := range []string{testkit.Head(200, "Content-Length: 2", "Content-Length: 3") + "{}", testkit.Head(200, "Transfer-Encoding: gzip, chunked") + testkit.Chunk("{}") + testkit.Chunk("")} {
		if e := d.Via(t, d.Router, request(chatPath, asked), testkit.Script{testkit.Send(wire)}); e.Answer.Status != 502 {
			t.Errorf("%q gave %d", wire, e.Answer.Status)
		}
	}
}

// flusher compresses a stream piece by piece.
type flusher interface {
	io.WriteCloser
	Flush() error
}

// compressed are the pieces of a stream of events under a coding, each flushed;
// the last piece is its regular end.
func compressed(t *testing.T, coding string, events ...string) []string {
	var b strings.Builder
	var w flusher
	switch coding {
	case "gzip":
		w = gzip.NewWriter(&b)
	case "deflate":
		w, _ = flate.NewWriter(&b, 5)
	case "br":
		w = brotli.NewWriter(&b)
	case "zstd":
		z, err := zstd.NewWriter(&b)
		if err != nil {
			t.Fatal(err)
		}
		w = z
	}
	var pieces []string
	for _, e := range events {
		io.WriteString(w, e)
		w.Flush()
		pieces = append(pieces, b.String())
		b.Reset()
	}
	w.Close()
	return append(pieces, b.String())
}

// TestBR50_CompressedStreamsAreReadToo: the bytes pass as they are, each piece
// at once; the usage is found in them, and a stream without its regular end is
// broken although its body ends cleanly.
func TestBR50_CompressedStreamsAreReadToo(t *testing.T) {
	event, usage, done := "data: {\"choices\":[{\"index\":0}]}\n\n", "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":1}}\n\n", "data: [DONE]\n\n"
	for _, coding := range []string{"gzip", "deflate", "br", "zstd"} {
		w := testkit.NewWorker(t)
		f := newFront(t, gateway.Config{}, w.URL())
		head := strings.TrimSuffix(testkit.SSEHead(), "\r\n") + "Content-Encoding: " + coding + "\r\n\r\n"
		for name, c := range map[string]struct {
			events []string
			whole  bool
			cut    int // pieces that never come
		}{
			"whole":           {[]string{event, usage, done}, true, 0},
			"no regular end":  {[]string{event, usage}, false, 0},
			"an error inside": {[]string{event, "data: {\"error\":{}}\n\n"}, true, 0},
			"cut off":         {[]string{event, usage, done}, false, 2},
		} {
			pieces := compressed(t, coding, c.events...)
			pieces = pieces[:len(pieces)-c.cut]
			arrived := make(chan struct{})
			script := testkit.Script{testkit.Send(head)}
			for _, p := range pieces {
				script = append(script, testkit.Send(testkit.Chunk(p)[:len(testkit.Chunk(p))*min(1, len(p))]), testkit.Wait(arrived))
			}
			w.Add(append(script, testkit.Send(testkit.Chunk(""))))
			client := &http.Client{Transport: &http.Transport{DisableCompression: true, DisableKeepAlives: true}}
			resp := stream(t, client, f.url)
			for i, p := range pieces {
				got := make([]byte, len(p))
				if _, err := io.ReadFull(resp.Body, got); err != nil || string(got) != p {
					t.Fatalf("%s, %s: piece %d is %q, %v", coding, name, i, got, err)
				}
				arrived <- struct{}{}
			}
			rest, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if len(rest) > 0 || (err == nil) != c.whole {
				t.Errorf("%s, %s: ended with %q, %v", coding, name, rest, err)
			}
		}
		testkit.Until(t, "all have ended", func() bool { return f.decider.count() == 0 })
		f.decider.mu.Lock()
		ends := map[string]int{}
		for i, e := range f.decider.ends {
			ends[e.String()]++
			if u := f.decider.usages[i]; e.String() == "completed" && (!u.Known || u.PromptTokens != 3 || u.CompletionTokens != 1) {
				t.Errorf("%s: the usage is %+v", coding, u)
			}
		}
		f.decider.mu.Unlock()
		if ends["completed"] != 1 || ends["failed"] != 3 {
			t.Errorf("%s: %v", coding, ends)
		}
		if n := testkit.Metric(t, f.metrics(), "rhizome_gateway_tap_skipped_total"); n != 0 {
			t.Errorf("%s: %v were not read", coding, n)
		}
	}
}

// TestBR53_AWorkersErrorIsToldAsItIs, JSON or not, streamed or not; where the
// worker gave none the router's own says whose fault it is, and no address.
func TestBR53_AWorkersErrorIsToldAsItIs(t *testing.T) {
	d := differ(t)
	for name, wire := range map[string]string{
		"401 json":       testkit.JSON(401, `{"error":{"message":"no"}}`),
		"503 text":       testkit.Response(503, "upstream connect error or disconnect/reset before headers", "Content-Type: text/plain"),
		"502 html":       testkit.Response(502, "<html><h1>Bad Gateway</h1></html>", "Content-Type: text/html"),
		"200 text":       testkit.Response(200, "It works!", "Content-Type: text/plain"),
		"200 empty":      testkit.Response(200, ""),
		"400 detail":     testkit.JSON(400, `{"detail":"Unsupported"}`),
		"truncated json": testkit.JSON(400, `{"error":{"mess`),
		"422":            testkit.JSON(422, `{"detail":[{"loc":["body","messages"],"msg":"field required"}]}`),
	} {
		for _, body := range []string{asked, askedStream} {
			direct, routed := d.Run(t, request(chatPath, body), testkit.Script{testkit.Send(wire)})
			for _, difference := range testkit.Differences(direct, routed) {
				t.Errorf("%s: %s", name, difference)
			}
		}
	}
	e := d.Via(t, d.Router, request(chatPath, asked), testkit.Script{testkit.Send("SSH-2.0-OpenSSH_9.6\r\n"), testkit.FIN()})
	host := strings.TrimPrefix(d.Worker.URL(), "http://")
	if a := e.Answer; a.Status != 502 || !strings.HasPrefix(a.Body, `{"error":{"message":"the worker`) || strings.Contains(a.Body, host) || a.Header.Get("Content-Type") != "application/json" {
		t.Errorf("a port that isn't HTTP gave %d %s", a.Status, a.Body)
	}
}
