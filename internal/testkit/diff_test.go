package testkit

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
)

// proxy is a reverse proxy in front of w that spoils what passes.
func proxy(t *testing.T, w *Worker, spoil func(*http.Request), spoilAnswer func(*http.Response)) string {
	t.Helper()
	u, err := url.Parse(w.URL())
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{DisableCompression: true}
	s := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(u)
			if spoil != nil {
				spoil(r.Out)
			}
		},
		ModifyResponse: func(r *http.Response) error {
			if spoilAnswer != nil {
				spoilAnswer(r)
			}
			return nil
		},
		Transport: transport,
	})
	t.Cleanup(func() { s.Close(); transport.CloseIdleConnections() })
	return s.URL
}

func TestDifferFindsEachKindOfDifference(t *testing.T) {
	const request = "POST /v1/x?y=1 HTTP/1.1\r\nHost: w\r\nX-Odd: a\r\nContent-Length: 3\r\n\r\nabc"
	answer := Head(200, "Content-Type: text/plain", "Transfer-Encoding: chunked", "Date: then", "Trailer: X-Sum") + Chunk("hello") + LastChunk("X-Sum: 5")
	for name, c := range map[string]struct {
		spoil       func(*http.Request)
		spoilAnswer func(*http.Response)
		script      Script
		want        string
	}{
		"nothing": {script: Script{Send(answer)}},
		"1xx":     {script: Script{Send(Head(103, "Link: x"), answer)}},
		"path":    {spoil: func(r *http.Request) { r.URL.Path = "/other" }, want: "request line"},
		"header":  {spoil: func(r *http.Request) { r.Header.Set("X-Odd", "b") }, want: "request header X-Odd"},
		"added":   {spoil: func(r *http.Request) { r.Header.Set("X-New", "b") }, want: "request header X-New"},
		"body": {spoil: func(r *http.Request) { r.Body = io.NopCloser(strings.NewReader("abd")) },
			want: "request body (from byte 2 of 3 and 3)"},
		"status":        {spoilAnswer: func(r *http.Response) { r.StatusCode = 201 }, want: "status"},
		"answer header": {spoilAnswer: func(r *http.Response) { r.Header.Del("Content-Type") }, want: "answer header Content-Type"},
		"answer body":   {spoilAnswer: func(r *http.Response) { r.Body = io.NopCloser(strings.NewReader("help!")) }, want: "answer body (from byte 3"},
		"cut short": {script: Script{Send(Head(200, "Content-Length: 9", "Date: then") + "half"), FIN()},
			spoilAnswer: func(r *http.Response) {
				r.Body, r.ContentLength = io.NopCloser(strings.NewReader("half")), 4
				r.Header.Del("Content-Length")
			}, want: "end of the answer"},
	} {
		t.Run(name, func(t *testing.T) {
			w := NewWorker(t)
			d := &Differ{Worker: w, Router: proxy(t, w, c.spoil, c.spoilAnswer)}
			if c.script == nil {
				c.script = Script{Send(answer)}
			}
			found := strings.Join(Differences(d.Run(t, request, c.script)), "\n")
			// The proxy adds what proxies add.
			found = strings.Join(slicesWithout(strings.Split(found, "\n"), "request header User-Agent", "request header Accept-Encoding"), "\n")
			if (found == "") != (c.want == "") || !strings.Contains(found, c.want) {
				t.Errorf("found %q, want %q", found, c.want)
			}
		})
	}
}

func slicesWithout(lines []string, prefixes ...string) []string {
	var rest []string
next:
	for _, l := range lines {
		for _, p := range prefixes {
			if strings.HasPrefix(l, p) {
				continue next
			}
		}
		rest = append(rest, l)
	}
	return rest
}

func TestDifferTellsWhatNeverArrived(t *testing.T) {
	w := NewWorker(t)
	refuse := httptest.NewServer(http.NotFoundHandler())
	defer refuse.Close()
	d := &Differ{Worker: w, Router: refuse.URL}
	direct, routed := d.Run(t, plainRequest, Script{Send(JSON(200, "{}"))})
	if !direct.Asked || routed.Asked || routed.Answer.Status != 404 {
		t.Errorf("direct %v, routed %v %d", direct.Asked, routed.Asked, routed.Answer.Status)
	}
	if found := Differences(direct, routed); len(found) != 1 {
		t.Errorf("found %q", found)
	}
	// The script that was not used must not answer the next request.
	w.Always(Send(JSON(201, "{}")))
	if e := d.Via(t, w.URL(), plainRequest, Script{Send(JSON(202, "{}"))}); e.Answer.Status != 202 {
		t.Errorf("status %d", e.Answer.Status)
	}
}

func TestRawSeesLeaveAndTrailersAndHalves(t *testing.T) {
	w := NewWorker(t)
	w.On("/health", Send(JSON(200, "fine")))
	c := DialRaw(t, w.URL())
	c.Send("GET /health?deep HTTP/1.1\r\nHost: w\r\n\r\n")
	if a := c.Answer("GET"); a.Body != "fine" || w.Count() != 0 {
		t.Errorf("health gave %+v, %d counted", a, w.Count())
	}
	d := &Differ{Worker: w}
	e := d.Via(t, w.URL(), "POST / HTTP/1.1\r\nHost: w\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nhi",
		Script{Send(Head(103), Head(200, "Transfer-Encoding: chunked")+Chunk("a")+LastChunk("X-Sum: 1"))})
	if !strings.Contains(e.Leave, "100 Continue") || e.Request.Body != "hi" || e.Answer.Body != "a" ||
		e.Answer.Trailer.Get("X-Sum") != "1" || len(e.Answer.Informational) != 1 {
		t.Errorf("%+v", e)
	}
	w.Add(Script{SendFirst(JSON(200, "0123456789"), 1<<10), FIN()}, Script{SendFirst(JSON(200, "0123456789"), 80), RST()})
	for range 2 {
		c := DialRaw(t, w.URL())
		c.Send(plainRequest)
		c.HalfClose()
		if a := c.Answer("POST"); (a.Broken == "") != (len(a.Body) == 10) {
			t.Errorf("%q ended with %q", a.Body, a.Broken)
		}
	}
}
