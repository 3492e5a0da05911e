package gateway

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/rhizome-router/rhizome/engine"
	"github.com/rhizome-router/rhizome/fleet"
	"github.com/rhizome-router/rhizome/kv"
)

// countingRegistry knows the worker 0xa0, and counts what it is told.
type countingRegistry struct {
	added           []engine.Spec
	drains, removed int
}

func (r *countingRegistry) Add(s engine.Spec) (kv.WorkerID, error) {
	if err := (engine.Guard{}).CheckSpec(s); err != nil {
		return 0, err
	}
	r.added = append(r.added, s)
	return 0xa0, nil
}

func (r *countingRegistry) Remove(id kv.WorkerID) error {
	if id != 0xa0 {
		return fleet.ErrNoWorker
	}
	r.removed++
	return nil
}

func (r *countingRegistry) SetDraining(id kv.WorkerID, _ bool) error {
	if id != 0xa0 {
		return fleet.ErrNoWorker
	}
	r.drains++
	return nil
}

// TestBR05_RegistrationWantsTheTokenAndAGoodURL: nobody registers a worker
// without the admin token, and with it none that leads where no worker is.
func TestBR05_RegistrationWantsTheTokenAndAGoodURL(t *testing.T) {
	r := newRig(t, Config{Admin: AdminConfig{Token: "let-me-in"}})
	registry := new(countingRegistry)
	r.g.deps.Registry = registry
	do := func(method, path, body, token string) *httptest.ResponseRecorder {
		req := httptest.NewRequest(method, path, strings.NewReader(body))
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		w := httptest.NewRecorder()
		r.g.Admin().ServeHTTP(w, req)
		return w
	}
	good := `{"url":"http://gpu-1:8000","engine":"vllm"}`
	for _, path := range []string{"POST /workers", "DELETE /workers/00000000000000a0", "POST /workers/00000000000000a0/drain",
		"DELETE /workers/00000000000000a0/drain", "GET /workers", "GET /discovery"} {
		method, path, _ := strings.Cut(path, " ")
		for _, token := range []string{"", "wrong"} {
			if w := do(method, path, good, token); w.Code != 401 {
				t.Errorf("%s %s with token %q gave %d", method, path, token, w.Code)
			}
		}
		if w := ask(r.g, method, path); w.Code != 404 {
			t.Errorf("%s %s on the data port gave %d", method, path, w.Code)
		}
	}
	if len(registry.added)+registry.drains+registry.removed > 0 {
		t.Fatalf("without the token something was done: %+v", registry)
	}
	for _, bad := range []string{
		`{"url":"http://169.254.169.254/"}`, `{"url":"file:///etc/passwd"}`, `{"url":"http://user:pw@host/"}`, `{"url":"gopher://h:70"}`,
		`{"url":"http://h:1/path"}`, `{"url":"http://0.0.0.0:80"}`, `{"url":"http://h:1","events":"tcp://169.254.169.254:80"}`,
		`{"url":"http://h:1","unknown":true}`, `{"url":"http://h:1","token":"file:/etc/shadow"}`, `{"url":"http://h:1","token":"env:HOME"}`,
		`[]`, ``, `{`, `{"url":"http://h:1"`, strings.Repeat(" ", maxSpecBytes+1) + good,
	} {
		w := do("POST", "/workers", bad, "let-me-in")
		if w.Code != 400 || !strings.Contains(w.Body.String(), "invalid_worker") || strings.Contains(w.Body.String(), "pw") {
			t.Errorf("%.80s gave %d %s", bad, w.Code, w.Body)
		}
	}
	if len(registry.added) > 0 {
		t.Fatalf("taken: %v", registry.added)
	}
	for _, body := range []string{good, "url: http://gpu-1:8000\nengine: vllm\n", `"http://gpu-1:8000,engine=vllm"`, "http://gpu-1:8000,engine=vllm"} {
		if w := do("POST", "/workers", body, "let-me-in"); w.Code != 201 || !strings.Contains(w.Body.String(), `"00000000000000a0"`) {
			t.Errorf("%s gave %d %s", body, w.Code, w.Body)
		}
	}
	for _, s := range registry.added {
		if s != (engine.Spec{URL: "http://gpu-1:8000", Engine: "vllm", Ranks: 1}) {
			t.Errorf("added %+v", s)
		}
	}
	for path, want := range map[string]int{
		"DELETE /workers/00000000000000a0": 204, "DELETE /workers/00000000000000a1": 404, "DELETE /workers/w": 404,
		"POST /workers/00000000000000a0/drain": 204, "POST /workers/1/drain": 404,
	} {
		method, path, _ := strings.Cut(path, " ")
		if w := do(method, path, "", "let-me-in"); w.Code != want {
			t.Errorf("%s %s gave %d", method, path, w.Code)
		}
	}
}
