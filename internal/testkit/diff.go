package testkit

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// Differ is the differential mode: it sends the same request once directly to
// a scripted worker and once through a router in front of it, and compares what
// the worker saw and what the client got.
type Differ struct {
	Worker *Worker
	Router string // base URL
}

// Exchange is one request and its answer, each as the far end saw it.
type Exchange struct {
	Asked   bool // the request reached the worker
	Request Request
	Answer  Answer
	Leave   string // what came before the body was sent, when leave was asked
}

// A router may differ from the wire in what concerns one connection only, and
// in what it is there to add.
var (
	hopByHop = []string{"Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection",
		"Te", "Trailer", "Transfer-Encoding", "Upgrade"}
	requestAdded = []string{"X-Request-Id", "Expect"} // it asks for no leave: it has the body
	answerAdded  = []string{"X-Request-Id", "X-Rhizome-Worker", "X-Rhizome-Replica", "X-Rhizome-Decision"}
)

// Run sends request, the exact bytes of one, both ways and lets script answer
// both. The request's Host is not compared: each worker has its own.
func (d *Differ) Run(t testing.TB, request string, script Script) (direct, routed Exchange) {
	t.Helper()
	return d.Via(t, d.Worker.URL(), request, script), d.Via(t, d.Router, request, script)
}

// Via sends request to the server at base, and answers it with script should it
// reach the worker.
func (d *Differ) Via(t testing.TB, base, request string, script Script) Exchange {
	t.Helper()
	c := DialRaw(t, base)
	defer c.Close()
	d.Worker.Add(script)
	head, body, _ := strings.Cut(request, "\r\n\r\n")
	c.Send(head + "\r\n\r\n")
	var e Exchange
	if strings.Contains(strings.ToLower(head), "\r\nexpect: 100-continue") {
		e.Leave = c.ReadUntil("\r\n\r\n")
	}
	if body != "" {
		c.Send(body)
	}
	method, _, _ := strings.Cut(head, " ")
	e.Answer = c.Answer(method)
	select {
	case e.Request = <-d.Worker.requests:
		e.Asked = true
	default:
		d.Worker.dropScripts()
	}
	return e
}

// Same complains about every difference between two exchanges that the rules
// of a transparent router don't allow. It ignores the headers named in except.
func Same(t testing.TB, direct, routed Exchange, except ...string) {
	t.Helper()
	for _, d := range Differences(direct, routed, except...) {
		t.Error(d)
	}
}

// Differences returns what Same complains about.
func Differences(direct, routed Exchange, except ...string) []string {
	var all []string
	differ := func(what string, a, b any) {
		all = append(all, fmt.Sprintf("%s: direct %.300q, routed %.300q", what, fmt.Sprint(a), fmt.Sprint(b)))
	}
	if !direct.Asked || !routed.Asked {
		differ("reached the worker", direct.Asked, fmt.Sprint(routed.Asked, " ", routed.Answer.Status, " ", routed.Answer.Body))
		return all
	}
	p, q := direct.Request, routed.Request
	if p.Method+" "+p.Target+" "+p.Proto != q.Method+" "+q.Target+" "+q.Proto {
		differ("request line", p.Method+" "+p.Target+" "+p.Proto, q.Method+" "+q.Target+" "+q.Proto)
	}
	if p.Length >= 0 && p.Length != q.Length { // a chunked body may get a length
		differ("request length", p.Length, q.Length)
	}
	differHeaders(differ, "request header", p.Header, q.Header, slices.Concat(requestAdded, except, []string{"Content-Length"}))
	if p.Body != q.Body {
		differ("request body "+firstDifference(p.Body, q.Body), p.Body, q.Body)
	}

	a, b := direct.Answer, routed.Answer
	if a.Status != b.Status {
		differ("status", a.Status, b.Status)
	}
	differHeaders(differ, "answer header", a.Header, b.Header, slices.Concat(answerAdded, except))
	differHeaders(differ, "trailer", a.Trailer, b.Trailer, except)
	if a.Body != b.Body {
		differ("answer body "+firstDifference(a.Body, b.Body), a.Body, b.Body)
	}
	if a.Broken != b.Broken {
		differ("end of the answer", a.Broken, b.Broken)
	}
	return all
}

func differHeaders(differ func(string, any, any), what string, a, b http.Header, except []string) {
	names := maps.Clone(a)
	if names == nil {
		names = make(http.Header)
	}
	maps.Copy(names, b)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if !slices.Contains(hopByHop, name) && !slices.Contains(except, name) && !slices.Equal(a[name], b[name]) {
			differ(what+" "+name, a[name], b[name])
		}
	}
}

func firstDifference(a, b string) string {
	i := 0
	for i < min(len(a), len(b)) && a[i] == b[i] {
		i++
	}
	return fmt.Sprintf("(from byte %d of %d and %d)", i, len(a), len(b))
}
