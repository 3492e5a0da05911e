package gateway

import (
	"net/http"
	"strings"
	"testing"

	"github.com/rhizome-router/rhizome/internal/testkit"
)

func TestHeadersTowardsTheWorker(t *testing.T) {
	r := newRig(t, Config{}, testkit.NewWorker(t, testkit.Script{testkit.Send(testkit.JSON(200, "{}"))}))
	r.post(chat, plainBody,
		"X-Custom: 1", "X-Custom: 2", "Accept-Encoding: br", "Openai-Organization: o",
		"Connection: close, x-secret-hop", "X-Secret-Hop: gone", "Keep-Alive: timeout=5", "Te: trailers", "Proxy-Authorization: canary",
		"Authorization: canary", "X-Api-Key: canary", "Api-Key: canary", "Cookie: canary=1",
		"x-rhizome-worker: spoof", "X_Rhizome_Pin: spoof", "x-data-parallel-rank: 7", "X_Data_Parallel_Rank: 7", "x-tenant-id: spoof",
		"X-Request-Id: my-id.1", "Expect: 100-continue")
	got := r.workers[0].Next(t).Header
	want := http.Header{
		"X-Custom": {"1", "2"}, "Accept-Encoding": {"br"}, "Openai-Organization": {"o"}, "Content-Type": {"application/json"},
		"X-Request-Id": {"my-id.1"}, "Content-Length": got["Content-Length"],
		"User-Agent": {"Go-http-client/1.1"}, // the test's own client said so
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("the worker got %s: %q", name, got[name])
		}
	}
	for name, values := range want {
		if strings.Join(got[name], "|") != strings.Join(values, "|") {
			t.Errorf("the worker got %s: %q, want %q", name, got[name], values)
		}
	}
}

func TestCredentialsPassWhenConfigured(t *testing.T) {
	r := newRig(t, Config{ForwardAuthorization: true}, testkit.NewWorker(t, testkit.Script{testkit.Send(testkit.JSON(200, "{}"))}))
	r.post(chat, plainBody, "Authorization: Bearer k")
	if got := r.workers[0].Next(t).Header.Get("Authorization"); got != "Bearer k" {
		t.Errorf("the worker got %q", got)
	}
}

func TestNoUserAgentIsMadeUp(t *testing.T) {
	r := newRig(t, Config{}, testkit.NewWorker(t, testkit.Script{testkit.Send(testkit.JSON(200, "{}"))}))
	r.post(chat, plainBody, "User-Agent: ")
	if raw := r.workers[0].Next(t).Raw; strings.Contains(strings.ToLower(raw), "user-agent") {
		t.Errorf("the worker got %q", raw)
	}
}

func TestHeadersTowardsTheClient(t *testing.T) {
	answer := testkit.JSON(200, "{}", "X-Custom: 1", "Set-Cookie: a=b", "Connection: X-Hop", "X-Hop: 1", "Keep-Alive: timeout=5", "x-request-id: theirs")
	for _, hide := range []bool{false, true} {
		r := newRig(t, Config{HideDecision: hide}, testkit.NewWorker(t, testkit.Script{testkit.Send(answer)}))
		a := r.post(chat, plainBody, "X-Request-Id: mine")
		want := map[string]string{"X-Custom": "1", "Set-Cookie": "a=b", "X-Hop": "", "Keep-Alive": "", "Date": "", "X-Request-Id": "mine",
			"X-Rhizome-Worker": r.picker.workers[0].ID.String(), "X-Rhizome-Replica": "r1", "X-Rhizome-Decision": "cached=48; ttft_ms=21; cost_us=1234"}
		for name, value := range want {
			if hide && strings.HasPrefix(name, internalPrefix) {
				value = ""
			}
			if got := a.header.Get(name); got != value {
				t.Errorf("hide=%v: the client got %s: %q, want %q", hide, name, got, value)
			}
		}
	}
}

func TestRequestIDs(t *testing.T) {
	id := func(given string) string {
		h := http.Header{}
		if given != "" {
			h.Set(headerRequestID, given)
		}
		return requestID(h)
	}
	for _, good := range []string{"a", "550e8400-e29b-41d4-a716-446655440000", "a_b.c:d", strings.Repeat("x", maxRequestIDBytes)} {
		if got := id(good); got != good {
			t.Errorf("%q became %q", good, got)
		}
	}
	seen := map[string]bool{}
	for _, bad := range []string{"", "a b", "a\tb", "é", "a/b", "<x>", strings.Repeat("x", maxRequestIDBytes+1)} {
		got := id(bad)
		if !strings.HasPrefix(got, "rz-") || len(got) > 40 || seen[got] {
			t.Errorf("%q became %q", bad, got)
		}
		seen[got] = true
	}
}
