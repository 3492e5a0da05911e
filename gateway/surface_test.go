package gateway

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rhizome-router/rhizome/engine"
	"github.com/rhizome-router/rhizome/internal/testkit"
	"github.com/rhizome-router/rhizome/prompt"
)

// ask sends a request without a body straight to a handler.
func ask(h http.Handler, method, path string, header ...string) *httptest.ResponseRecorder {
	req := httptest.NewRequest(method, path, nil)
	req.Host = "localhost"
	for _, line := range header {
		name, value, _ := strings.Cut(line, ": ")
		req.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, req)
	return w
}

func TestRoutedPaths(t *testing.T) {
	w := testkit.NewWorker(t)
	w.Always(testkit.Send(testkit.JSON(200, "{}")))
	r := newRig(t, Config{}, w)
	for path, want := range map[string]struct {
		target string
		kind   prompt.Kind
	}{
		"/v1/chat/completions":     {"/v1/chat/completions", prompt.Chat},
		"//v1//chat/completions//": {"/v1/chat/completions", prompt.Chat},
		"/v1/completions/?x=%2F":   {"/v1/completions?x=%2F", prompt.Completion},
		"/v1/embeddings":           {"/v1/embeddings", prompt.Embedding},
		"/v1/responses":            {"/v1/responses", prompt.Responses},
		"/v1/some/new/api":         {"/v1/some/new/api", prompt.Other},
		"/tokenize":                {"/tokenize", prompt.Other},
		"/detokenize":              {"/detokenize", prompt.Other},
	} {
		a := r.post(path, `{"model":"m","prompt":"x","input":"x"}`)
		if a.status != 200 {
			t.Errorf("%s gave %+v", path, a)
			continue
		}
		q := r.picker.queries[len(r.picker.queries)-1]
		if got := w.Next(t); got.Target != want.target || q.Prompt.Kind != want.kind {
			t.Errorf("%s went to %s as kind %d, want %s, %d", path, got.Target, q.Prompt.Kind, want.target, want.kind)
		}
	}
	for _, path := range []string{chat, "/tokenize"} {
		for _, method := range []string{"GET", "PUT", "DELETE", "OPTIONS"} {
			if a := ask(r.g, method, path); a.Code != 405 || a.Header().Get("Allow") != "POST" {
				t.Errorf("%s %s gave %d", method, path, a.Code)
			}
		}
	}
	for _, path := range []string{"/", "/v1", "/v1/files", "/debug/pprof/", "//metrics", "/workers", "/v1/x/../../metrics"} {
		if a := ask(r.g, "GET", path); a.Code != 404 || !strings.Contains(a.Body.String(), `"unknown_url"`) {
			t.Errorf("GET %s gave %d %s", path, a.Code, a.Body)
		}
	}
}

// TestOperatorsPathsAreNobodys: what changes a worker is not for clients.
func TestOperatorsPathsAreNobodys(t *testing.T) {
	w := testkit.NewWorker(t)
	r := newRig(t, Config{}, w)
	for _, path := range []string{"/v1/load_lora_adapter", "//v1/unload_lora_adapter/"} {
		if a := r.post(path, `{"model":"m","lora_name":"x","lora_path":"/etc"}`); a.status != 404 || !strings.Contains(a.body, "unknown_url") {
			t.Errorf("%s gave %+v", path, a)
		}
	}
	if w.Count() != 0 {
		t.Error("a worker was asked")
	}
}

// TestActionsAreNoIDs: what can be done with a body stands where ids of
// responses stand, and goes by the body's model.
func TestActionsAreNoIDs(t *testing.T) {
	w := testkit.NewWorker(t)
	w.Always(testkit.Send(testkit.JSON(200, "{}")))
	r := newRig(t, Config{}, w)
	for _, path := range []string{"/v1/responses/compact", "/v1/responses/input_tokens"} {
		if a := r.post(path, `{"model":"m","input":"x"}`); a.status != 200 || w.Next(t).Target != path {
			t.Errorf("%s gave %+v", path, a)
		}
	}
	if a := r.post("/v1/responses/resp_unknown/cancel", `{"model":"m"}`); a.status != 404 {
		t.Errorf("an unknown id gave %+v", a)
	}
}

func TestModelsAndHealth(t *testing.T) {
	r := newRig(t, Config{})
	for path, want := range map[string]string{
		"/v1/models": `{"object":"list","data":[{"id":"m","object":"model","created":0,"owned_by":"rhizome","max_model_len":4096},` +
			`{"id":"org/n","object":"model","created":0,"owned_by":"rhizome"}]}`,
		"/v1/models/org/n":   `{"id":"org/n","object":"model","created":0,"owned_by":"rhizome"}`,
		"/v1/models/org%2Fn": `{"id":"org/n","object":"model","created":0,"owned_by":"rhizome"}`,
		"/healthz":           `{"status":"ok"}`,
		"/readyz/":           `{"status":"ready"}`,
	} {
		if a := ask(r.g, "GET", path); a.Code != 200 || strings.TrimSpace(a.Body.String()) != want {
			t.Errorf("%s gave %d %s", path, a.Code, a.Body)
		}
		if a := ask(r.g, "HEAD", path); a.Code != 200 {
			t.Errorf("HEAD %s gave %d", path, a.Code)
		}
	}
	if a := ask(r.g, "GET", "/v1/models/x"); a.Code != 404 || !strings.Contains(a.Body.String(), "model_not_found") {
		t.Errorf("an unknown model gave %d %s", a.Code, a.Body)
	}
	r.g.deps.Ready = func() error { return errors.New("no worker at 10.0.0.1 yet") }
	if a := ask(r.g, "GET", "/readyz"); a.Code != 503 || strings.Contains(a.Body.String(), "10.0.0.1") {
		t.Errorf("unready gave %d %s", a.Code, a.Body)
	}
	r.g.deps.Ready = nil
	r.g.deps.Models = func() []engine.Model { return nil }
	if a := ask(r.g, "GET", "/v1/models"); strings.TrimSpace(a.Body.String()) != `{"object":"list","data":[]}` {
		t.Errorf("no models are %s", a.Body)
	}
	if a := ask(r.g, "GET", "/readyz"); a.Code != 503 {
		t.Errorf("ready without a model: %d", a.Code)
	}
	r.g.deps.Ready = func() error { return nil }
	r.g.Drain()
	if a := ask(r.g, "GET", "/readyz"); a.Code != 503 {
		t.Errorf("ready while draining: %d", a.Code)
	}
}

// TestRule09_AdminWithoutATokenIsNoPages: a page in a browser on the machine
// gets nothing from an admin port without token, neither under a name of its
// own nor across origins.
func TestRule09_AdminWithoutATokenIsNoPages(t *testing.T) {
	r := newRig(t, Config{})
	registry := new(countingRegistry)
	r.g.deps.Registry = registry
	for _, c := range []struct {
		host, header string
		status       int
	}{
		{"evil.example:8081", "", 421},
		{"127.0.0.1.evil.example", "", 421},
		{"", "", 421},
		{"127.0.0.1:8081", "Sec-Fetch-Site: cross-site", 403},
		{"localhost:8081", "Origin: https://evil.example", 403},
		{"localhost:8081", "Origin: http://localhost:8081", 204},
		{"[::1]:8081", "", 204},
		{"127.0.0.1", "", 204},
	} {
		req := httptest.NewRequest("POST", "/workers/00000000000000a0/drain", nil)
		req.Host = c.host
		if name, value, ok := strings.Cut(c.header, ": "); ok {
			req.Header.Set(name, value)
		}
		w := httptest.NewRecorder()
		r.g.Admin().ServeHTTP(w, req)
		if w.Code != c.status {
			t.Errorf("%+v gave %d %s", c, w.Code, w.Body)
		}
	}
	if registry.drains != 3 {
		t.Errorf("%d drains", registry.drains)
	}
}

func TestAdmin(t *testing.T) {
	r := newRig(t, Config{Admin: AdminConfig{Token: "s3cret"}})
	r.g.deps.Explain = func(id string) (any, bool) { return map[string]string{"id": id}, id == "known" }
	r.g.deps.Workers = func() any { return []string{"w0"} }
	r.g.deps.Recent = func(n int) any { return []int{n} }
	admin := r.g.Admin()
	for _, path := range []string{"/metrics", "/explain/known", "/workers", "/debug/pprof/", "/nothing"} {
		for _, auth := range []string{"", "Bearer ", "Bearer wrong", "Bearer s3cret2", "s3cret", "Basic s3cret"} {
			if a := ask(admin, "GET", path, "Authorization: "+auth); a.Code != 401 || strings.Contains(a.Body.String(), "s3cret") {
				t.Errorf("GET %s with %q gave %d %s", path, auth, a.Code, a.Body)
			}
		}
	}
	const auth = "Authorization: Bearer s3cret"
	for path, want := range map[string]string{
		"/metrics":               "rhizome_gateway_in_flight_requests 0",
		"/explain/known":         `"id": "known"`,
		"/explain":               "[\n  20\n]",
		"/explain?n=7":           "[\n  7\n]",
		"/workers":               `"w0"`,
		"/debug/pprof/":          "goroutine",
		"/debug/pprof/goroutine": "",
		"/healthz":               "ok",
	} {
		if a := ask(admin, "GET", path, auth); a.Code != 200 || !strings.Contains(a.Body.String(), want) {
			t.Errorf("GET %s gave %d %.200s", path, a.Code, a.Body)
		}
	}
	for _, n := range []string{"0", "-1", "1001", "x"} {
		if a := ask(admin, "GET", "/explain?n="+n, auth); a.Code != 400 || !json.Valid(a.Body.Bytes()) {
			t.Errorf("/explain?n=%s gave %d %s", n, a.Code, a.Body)
		}
	}
	if a := ask(admin, "GET", "/explain/unknown", auth); a.Code != 404 || !json.Valid(a.Body.Bytes()) {
		t.Errorf("an unknown id gave %d %s", a.Code, a.Body)
	}
	if a := ask(admin, "GET", "/healthz"); a.Code != 200 {
		t.Errorf("health without a token gave %d", a.Code)
	}
	if a := ask(newRig(t, Config{}).g.Admin(), "GET", "/workers"); a.Code != 200 || strings.TrimSpace(a.Body.String()) != "[]" {
		t.Errorf("workers of a loopback listener without token gave %d %s", a.Code, a.Body)
	}
}

func TestConfigValidate(t *testing.T) {
	if err := (Config{}).Validate(); err != nil {
		t.Errorf("the default: %v", err)
	}
	if err := (Config{Admin: AdminConfig{Listen: "0.0.0.0:8081", Token: "x"}}).Validate(); err != nil {
		t.Errorf("with a token: %v", err)
	}
	for want, c := range map[string]Config{
		"admin.token":         {Admin: AdminConfig{Listen: "0.0.0.0:8081"}},
		"admin.listen is :80": {Admin: AdminConfig{Listen: ":8081"}},
		"admin.listen: ":      {Admin: AdminConfig{Listen: "8081"}},
		"listen: ":            {Listen: "x"},
		"max_body_bytes":      {MaxBodyBytes: -1},
		"buffer_budget_bytes": {BufferBudgetBytes: 5},
		"max_attempts":        {MaxAttempts: 100},
		"retry_share":         {RetryShare: 2},
	} {
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want a complaint about %s, got %v", want, err)
		}
	}
	if _, err := New(Config{RetryShare: -1}, Deps{Registerer: prometheus.NewRegistry()}); err == nil {
		t.Error("New took a config that can't work")
	}
}

// TestBR51_LabelsAreBounded floods the gateway with model names and paths.
func TestBR51_LabelsAreBounded(t *testing.T) {
	w := testkit.NewWorker(t)
	w.Always(testkit.Send(testkit.JSON(200, "{}")))
	r := newRig(t, Config{}, w)
	r.post(chat, plainBody)
	for i := range 300 {
		r.post(fmt.Sprintf("/junk%d", i), "")
		r.post(chat, fmt.Sprintf(`{"model":"%d\n%s"}`, i, strings.Repeat("é", 500)))
	}
	for i := range 2 * maxModelLabels {
		r.g.metrics.model(fmt.Sprint(i))
	}
	if got := r.g.metrics.model(strings.Repeat("x", 1000)); got != modelOther {
		t.Errorf("a long name is the label %q", got)
	}
	if got := r.g.metrics.model("m"); got != "m" {
		t.Errorf("a known model lost its label to %q", got)
	}
	const name = "rhizome_gateway_requests_total"
	m := r.metrics()
	if n := strings.Count(m, "\n"+name+"{"); n != 3 {
		t.Errorf("%d series, want m, other and none:\n%s", n, m)
	}
	for label, want := range map[string]float64{`model="m"`: 1, `model="other"`: 300, `model="none"`: 300} {
		if got := testkit.Metric(t, m, name, label); got != want {
			t.Errorf("%v requests with %s, want %v", got, label, want)
		}
	}
}

func TestMetricsOfAStream(t *testing.T) {
	answer := testkit.SSE("a", "[DONE]")
	r := newRig(t, Config{}, testkit.NewWorker(t, testkit.Script{testkit.Send(answer)}))
	a := r.post(chat, streamBody)
	r.stop()
	m := r.metrics()
	for name, want := range map[string]float64{
		"rhizome_gateway_requests_total":                 1,
		"rhizome_gateway_ttft_seconds_count":             1,
		"rhizome_gateway_request_duration_seconds_count": 1,
		"rhizome_gateway_body_bytes_total":               float64(len(streamBody) + len(a.body)),
		"rhizome_gateway_retries_total":                  0,
	} {
		if got := testkit.Metric(t, m, name); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	if got := testkit.Metric(t, m, "rhizome_gateway_ttft_seconds_sum"); got <= 0 || got > (10*time.Second).Seconds() {
		t.Errorf("TTFT is %v s", got)
	}
}
