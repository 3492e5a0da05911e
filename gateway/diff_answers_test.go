package gateway_test

import (
	"strings"
	"testing"

	"github.com/rhizome-router/rhizome/internal/testkit"
)

// TestDiffAnswers lets a worker answer in every form: the client must get the
// same status, headers, bytes and end as without the gateway.
func TestDiffAnswers(t *testing.T) {
	send := func(pieces ...string) testkit.Script { return testkit.Script{testkit.Send(pieces...)} }
	whole := testkit.JSON(200, `{"id":"x","usage":{"prompt_tokens":9007199254740993}}`)
	d := differ(t)
	for name, c := range map[string]struct {
		ask    string
		script testkit.Script
	}{
		"json":                 {asked, send(whole)},
		"json, dated":          {asked, send(testkit.JSON(200, "{}", "Date: Thu, 01 Jan 1970 00:00:00 GMT", "Server: uvicorn", "X-Process-Time: 1", "Set-Cookie: a=1", "Set-Cookie: b=2"))},
		"chunked json":         {asked, send(testkit.Chunked(200, []string{`{"a"`, `:1}`}, "Content-Type: application/json"))},
		"to the end":           {asked, testkit.Script{testkit.Send("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n{}"), testkit.FIN()}},
		"HTTP/1.0":             {asked, testkit.Script{testkit.Send("HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n{}"), testkit.FIN()}},
		"empty":                {asked, send(testkit.Response(200, ""))},
		"204":                  {asked, send("HTTP/1.1 204 No Content\r\nX-A: b\r\n\r\n")},
		"no type":              {asked, send(testkit.Response(200, "<html>{}"))},
		"binary":               {asked, send(testkit.Response(200, strings.Repeat("\x00\xff\r\n\x1f\x8b", 40_000), "Content-Type: audio/mpeg"))},
		"gzip":                 {asked, send(testkit.JSON(200, gzipped("{}"), "Content-Encoding: gzip", "Vary: Accept-Encoding"))},
		"gzip stream":          {askedStream, send(testkit.SSEHead()[:len(testkit.SSEHead())-2]+"Content-Encoding: gzip\r\n\r\n", testkit.Chunk(gzipped("data: 1\n\ndata: [DONE]\n\n")), testkit.Chunk(""))},
		"trailers":             {asked, send(testkit.Head(200, "Transfer-Encoding: chunked", "Trailer: X-Sum, X-More"), testkit.Chunk("{}"), testkit.LastChunk("X-Sum: 1", "X-More: 2"))},
		"no trailer line":      {asked, send(testkit.Head(200, "Transfer-Encoding: chunked"), testkit.Chunk("{}"), testkit.LastChunk("X-Sum: 1"))},
		"103 before":           {asked, send(testkit.Head(103, "Link: </x>"), whole)},
		"slow head":            {asked, testkit.Script{testkit.SendSplit(whole, every(len(whole))...)}},
		"huge header":          {asked, send(testkit.JSON(200, "{}", "X-Huge: "+strings.Repeat("h", 300<<10)))},
		"redirect":             {asked, send(testkit.Response(307, "moved", "Location: http://127.0.0.1:1/secret"))},
		"401":                  {asked, send(testkit.JSON(401, `{"error":{"message":"no"}}`, "WWW-Authenticate: Bearer"))},
		"400 detail":           {askedStream, send(testkit.JSON(400, `{"detail":[{"loc":["body"],"msg":"too long"}]}`))},
		"404 text":             {asked, send(testkit.Response(404, "no such thing", "Content-Type: text/plain"))},
		"422":                  {asked, send(testkit.JSON(422, `{"object":"error"}`))},
		"429":                  {asked, send(testkit.JSON(429, `{"error":{}}`, "Retry-After: 30", "X-Ratelimit-Remaining-Requests: 0"))},
		"500 html":             {asked, send(testkit.Response(500, "<h1>oops</h1>", "Content-Type: text/html; charset=utf-8", "X-Id: 7"))},
		"501":                  {asked, send(testkit.JSON(501, `{}`))},
		"503 dated":            {askedStream, send(testkit.Response(503, "upstream connect error", "Content-Type: text/plain", "Retry-After: Fri, 31 Dec 2999 23:59:59 GMT"))},
		"truncated json":       {asked, send(testkit.JSON(200, `{"a":`))},
		"stream that is text":  {askedStream, send(testkit.Response(200, "not a stream", "Content-Type: text/plain"))},
		"stream with a length": {askedStream, send(testkit.Response(200, "data: {}\n\ndata: [DONE]\n\n", "Content-Type: text/event-stream"))},
		"short body":           {asked, testkit.Script{testkit.Send(testkit.Head(200, "Content-Type: application/json", "Content-Length: 1000"), strings.Repeat("x", 500)), testkit.FIN()}},
	} {
		t.Run(name, func(t *testing.T) {
			direct, routed := d.Run(t, request(chatPath, c.ask), c.script)
			testkit.Same(t, direct, routed)
		})
	}
}

func every(n int) []int {
	cuts := make([]int, n)
	for i := range cuts {
		cuts[i] = i + 1
	}
	return cuts
}
