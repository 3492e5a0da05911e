package gateway

import (
	"net/http/httptest"
	"strings"
	"testing"
)

// Another config serves what comes next; the one before it serves on what it
// has, and both account for the same memory and the same end.
func TestWithAnotherConfig(t *testing.T) {
	r := newRig(t, Config{MaxBodyBytes: 100, Admin: AdminConfig{Token: "first"}})
	next, err := r.g.With(Config{MaxBodyBytes: 10, RetryShare: 0.5, Admin: AdminConfig{Token: "second"}})
	if err != nil {
		t.Fatal(err)
	}
	body := `{"model":"x","prompt":"longer than ten"}`
	if a := post(next, body); a != 413 {
		t.Errorf("the new limit gave %d", a)
	}
	if a := post(r.g, body); a != 404 {
		t.Errorf("the old limit gave %d, want the body read and its model unknown", a)
	}
	for token, want := range map[string]int{"first": 401, "second": 200} {
		if a := ask(next.Admin(), "GET", "/metrics", "Authorization: Bearer "+token); a.Code != want {
			t.Errorf("the %s token gave %d", token, a.Code)
		}
	}
	if next.retries == r.g.retries || next.buffered != r.g.buffered {
		t.Error("a new share of retries is a new budget, and memory is counted once")
	}
	next.Drain()
	if a := ask(r.g, "GET", "/readyz"); a.Code != 503 {
		t.Errorf("one drains, the other answers ready: %d", a.Code)
	}
	if g, err := r.g.With(Config{MaxAttempts: 99}); err == nil || g != nil || !strings.Contains(err.Error(), "max_attempts") {
		t.Errorf("a bad config gave %v, %v", g, err)
	}
}

func TestAdminShowsTheConfig(t *testing.T) {
	r := newRig(t, Config{})
	r.g.deps.Config = func() any { return map[string]string{"hash": "abc"} }
	if a := ask(r.g.Admin(), "GET", "/config"); a.Code != 200 || !strings.Contains(a.Body.String(), `"hash": "abc"`) {
		t.Errorf("/config gave %d %s", a.Code, a.Body)
	}
}

// post sends a completion's body to a gateway and returns the status.
func post(g *Gateway, body string) int {
	w := httptest.NewRecorder()
	g.ServeHTTP(w, httptest.NewRequest("POST", "/v1/completions", strings.NewReader(body)))
	return w.Code
}
