package gateway_test

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/rhizome-router/rhizome/gateway"
	"github.com/rhizome-router/rhizome/internal/testkit"
)

func packed(pack func(io.Writer) io.WriteCloser, s string) string {
	var b bytes.Buffer
	w := pack(&b)
	io.WriteString(w, s)
	w.Close()
	return b.String()
}

func gzipped(s string) string {
	return packed(func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) }, s)
}

// thirtyTools is a chat request whose tools have keys in no order a serialiser
// would choose.
func thirtyTools() string {
	var b strings.Builder
	b.WriteString(`{"tools":[`)
	for i := range 30 {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, `{"type":"function","function":{"parameters":{"type":"object","required":["z%d","a"],"properties":{"z%d":{"type":"string","description":"\u00e9<&>"},"a":{"minimum":1.0,"type":"number"}}},"name":"t%d"}}`, i, i, i)
	}
	b.WriteString("],\n\t\"messages\" : [{\"role\":\"user\",\"content\":\"go\"}]\r\n, \"model\":\"m\"}")
	return b.String()
}

// TestDiffRequests sends each request directly and through the gateway: the
// worker must have seen the same bytes, the client must have got the same ones.
func TestDiffRequests(t *testing.T) {
	d := differ(t)
	for name, ask := range map[string]string{
		"chat":        request(chatPath, asked),
		"completions": request("/v1/completions", `{"model":"m","prompt":[[1,2,3],[4]],"logit_bias":{"50256":-100}}`),
		"responses":   request("/v1/responses", `{"model":"m","input":[{"role":"user","content":[{"type":"input_text","text":"hi"}]}],"store":false}`),
		"messages": request("/v1/messages", `{"model":"m","max_tokens":5,"system":[{"type":"text","text":"s","cache_control":{"type":"ephemeral","ttl":"1h"}}],"messages":[{"role":"user","content":"hi"}]}`,
			"anthropic-version: 2023-06-01", "anthropic-beta: a,b"),
		"embeddings":         request("/v1/embeddings", `{"input":["a","b"],"model":"m","encoding_format":"base64"}`),
		"rerank":             request("/v1/rerank", `{"model":"m","query":"q","documents":["a"]}`),
		"tokenize":           request("/tokenize", `{"model":"m","prompt":"x"}`),
		"an unknown v1 path": request("/v1/some/new/api?x=%2F&y=1;z", `{"model":"m"}`),
		"query":              request(chatPath+"?beta=true&beta=%C3%A9+%20", asked),
		"big integers":       request(chatPath, `{"model":"m","seed":9007199254740993,"vllm_xargs":{"id":18446744073709551615},"temperature":1.0,"x":1e400,"y":-0.0,"messages":[{"role":"user","content":"<b>&\u2028"}]}`),
		"duplicate keys":     request(chatPath, `{"model":"other","temperature":1,"model":"m","messages":[],"temperature":2,"messages":[{"role":"user","content":"a","content":"b"}]}`),
		"unknown fields":     request(chatPath, `{"model":"m","unknown_future":{"a":[null]},"chat_template_kwargs":{"enable_thinking":false},"stop":null,"messages":[{"role":"odd","content":[{"type":"new"}],"reasoning_content":"r"}]}`),
		"odd unicode":        request(chatPath, "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"\\ud83d\\ude00 \\ud800 \u2028\U0001F9D1\u200d\U0001F680 \xff\xfe \\u0000\"}]}"),
		"escaped names":      request(chatPath, `{"mode\u006c":"m","messages":[]}`),
		"white space":        request(chatPath, " \r\n\t{\r\n \"model\" :\t\"m\" ,\n\"messages\":[ ]\r\n}\r\n\r\n"),
		"thirty tools":       request(chatPath, thirtyTools()),
		"gzip":               request(chatPath, gzipped(asked), "Content-Encoding: gzip"),
		"x-gzip":             request(chatPath, gzipped(asked), "Content-Encoding: X-GZIP"),
		"deflate":            request(chatPath, packed(func(w io.Writer) io.WriteCloser { return zlib.NewWriter(w) }, asked), "Content-Encoding: deflate"),
		"chunked": request(chatPath, "5;ext=\"a;b\"\r\n"+asked[:5]+"\r\n"+fmt.Sprintf("%X\r\n", len(asked)-5)+asked[5:]+"\r\n0\r\n\r\n",
			"Content-Length", "Transfer-Encoding: chunked"),
		"expect":         request(chatPath, asked, "Expect: 100-continue"),
		"repeated":       request(chatPath, asked, "X-Many: a", "x-many: b", "X-Many: a", "Accept: text/event-stream, */*;q=0.1"),
		"traceparent":    request(chatPath, asked, "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "baggage: k=v"),
		"user agent":     request(chatPath, asked, "User-Agent: odd/1 (x)", "Accept-Encoding: gzip, br"),
		"huge headers":   request(chatPath, asked, "X-Huge: "+strings.Repeat("h", 200<<10), "X-Empty: "+" "),
		"large":          request(chatPath, `{"model":"m","messages":[{"role":"user","content":"`+strings.Repeat("word ", 400_000)+`"}]}`),
		"media type":     request(chatPath, asked, "Content-Type: application/json; charset=UTF-8"),
		"no media type":  request(chatPath, asked, "Content-Type"),
		"HTTP/1.0 names": request(chatPath, asked, "x_under_score: 1", "x-lower: 2", "X-UPPER: 3"),
	} {
		t.Run(name, func(t *testing.T) {
			direct, routed := d.Run(t, ask, testkit.Script{testkit.Send(testkit.JSON(200, `{"id":"x","n":18446744073709551615}`))})
			testkit.Same(t, direct, routed)
			if direct.Leave != routed.Leave {
				t.Errorf("leave to send: direct %q, routed %q", direct.Leave, routed.Leave)
			}
		})
	}
}

// TestBR15_SameBytesEveryTime: twenty equal requests are twenty equal captures.
func TestBR15_SameBytesEveryTime(t *testing.T) {
	d := differ(t)
	d.Worker.Always(testkit.Send(testkit.JSON(200, "{}")))
	want := thirtyTools()
	for range 20 {
		e := d.Via(t, d.Router, request(chatPath, want), testkit.Script{testkit.Send(testkit.JSON(200, "{}"))})
		if e.Request.Body != want {
			t.Fatalf("the worker got %q", e.Request.Body)
		}
	}
}

// TestBR06_WhatIsMeantForTheRouterStaysThere: keys and internal names don't
// reach a worker, in whatever spelling; all else of the request does.
func TestBR06_WhatIsMeantForTheRouterStaysThere(t *testing.T) {
	d := differ(t)
	secret := []string{"Authorization: Bearer canary", "X-Api-Key: canary", "api-key: canary", "Cookie: canary=1", "Proxy-Authorization: canary"}
	internal := []string{"X-Data-Parallel-Rank: 7777", "x-data_parallel-rank: 7777", "X-Rhizome-Worker: w9", "x_rhizome_pin: w9", "X-Tenant-Id: boss"}
	ask := request(chatPath, asked, append(append(secret, internal...), "X-Plain: yes")...)
	e := d.Via(t, d.Router, ask, testkit.Script{testkit.Send(testkit.JSON(200, "{}"))})
	if !e.Asked || e.Request.Header.Get("X-Plain") != "yes" || e.Request.Body != asked {
		t.Fatalf("the worker got %q, the client %+v", e.Request.Raw, e.Answer)
	}
	for _, word := range []string{"canary", "7777", "w9", "boss"} {
		if strings.Contains(e.Request.Raw, word) {
			t.Errorf("%q reached the worker: %q", word, e.Request.Raw)
		}
	}
	// What Connection names goes no further, save what the router itself sets.
	e = d.Via(t, d.Router, request(chatPath, asked, "Connection: X-Once, X-Request-Id, Content-Type", "X-Once: 1", "X-Request-Id: mine"),
		testkit.Script{testkit.Send(testkit.JSON(200, "{}"))})
	if _, ok := e.Request.Header["X-Once"]; ok || e.Request.Header.Get("X-Request-Id") != "mine" || e.Answer.Header.Get("X-Request-Id") != "mine" {
		t.Errorf("the worker got %q, the client %v", e.Request.Raw, e.Answer.Header)
	}
}

// TestModelsOverTheWire asks for models as a client does: GET and HEAD differ
// in the body alone.
func TestModelsOverTheWire(t *testing.T) {
	f := newFront(t, gateway.Config{})
	for path, status := range map[string]int{"/v1/models": 200, "/v1/models/m": 200, "/v1/models/org/n": 200, "/v1/models/org%2Fn": 200, "/v1/models/none": 404} {
		c := testkit.DialRaw(t, f.url)
		c.Send("HEAD " + path + " HTTP/1.1\r\nHost: h\r\n\r\nGET " + path + " HTTP/1.1\r\nHost: h\r\n\r\n")
		head, get := c.Answer("HEAD"), c.Answer("GET")
		if head.Status != status || get.Status != status || head.Body != "" || len(get.Body) == 0 ||
			head.Header.Get("Content-Length") != fmt.Sprint(len(get.Body)) || get.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: HEAD %+v\nGET %+v", path, head, get)
		}
	}
}
