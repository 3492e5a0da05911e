package clients

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rhizome-router/rhizome/internal/testkit"
)

// want is what a client must see: members by name. A function decides where
// libraries may differ.
type want map[string]any

// failed is an error whose kind is the library's affair.
func failed(v any) bool { s, ok := v.(string); return ok && s != "" }

// oneOf accepts any of the values.
func oneOf(values ...any) func(any) bool {
	return func(v any) bool { return slices.Contains(values, v) }
}

// key is what the clients send as theirs; nothing may repeat it. limitedKey is
// one that may do less, for each library its own.
const key = "sk-canary-of-the-caller"

func limitedKey(library string) string { return key + "-of-" + library }

// scenarios say what each must have seen, whatever the language.
var scenarios = map[string]want{
	"models":                   {"listed": true, "one": "m"},
	"chat":                     {"text": true, "usage": 5.0},
	"stream":                   {"text": true, "finish": "length", "usage": 5.0},
	"completion":               {"text": true, "usage": 3.0},
	"embeddings":               {"vectors": 2.0},
	"large":                    {"text": "true"},
	"agent":                    {"text": "all told", "calls": 3.0, "rounds": 3.0},
	"responses":                {"text": "fine", "finish": "completed"},
	"messages":                 {"text": "half fine", "usage": 2.0},
	"unknown_model":            {"error": oneOf("NotFoundError", "Error"), "status": 404.0, "code": "model_not_found"},
	"invalid":                  {"error": oneOf("BadRequestError"), "status": 400.0, "code": "invalid_json"},
	"messages_unknown":         {"error": "NotFoundError", "status": 404.0},
	"wrong_key":                {"error": oneOf("AuthenticationError", "Error"), "status": 401.0, "code": "invalid_api_key"},
	"messages_wrong_key":       {"error": "AuthenticationError", "status": 401.0},
	"forbidden":                {"error": oneOf("PermissionDeniedError", "Error"), "status": 403.0},
	"rate_limited":             {"error": "RateLimitError", "status": 429.0, "retry_after": "1"},
	"rate_limited_then_served": {"text": true},
	"unauthorized":             {"error": oneOf("AuthenticationError", "Error"), "status": 401.0, "code": "scripted"},
	"limited":                  {"error": oneOf("RateLimitError", "Error"), "status": 429.0, "code": "scripted", "retry_after": "7"},
	"limited_then_served":      {"text": "served", "waited": true},
	"overloaded":               {"error": oneOf("InternalServerError", "Error"), "status": 503.0, "code": "scripted", "retry_after": "3"},
	"dies":                     {"error": failed, "text": "half"},
	"dies_before":              {"error": failed, "status": 502.0, "text": ""},
	"messages_dies":            {"error": failed, "text": "half "},
	"cut_short":                {"error": failed},
	"stalls":                   {"error": failed},
	"leaves":                   {"text": "half"},
}

// TestClients plays all scenarios with all libraries at once, on one router.
func TestClients(t *testing.T) {
	dir := os.Getenv("RHIZOME_TEST_CLIENTS")
	if dir == "" {
		t.Skip("the libraries are not installed: make test-clients")
	}
	testkit.AtRest(t, testkit.Rest{})
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	s := newScripted(t)
	r := newRouter(t, s, "python", "node", "go")
	python := filepath.Join(dir, "python", "bin", "python")
	var wg sync.WaitGroup
	for name, command := range map[string][]string{
		"python": {python, "python/check.py"},
		"node":   {testkit.Node(t), filepath.Join(dir, "node", "check.mjs")},
		"go":     {filepath.Join(dir, "golang")},
	} {
		wg.Go(func() { play(t, name, append(command, r.data, key, limitedKey(name))) })
	}
	wg.Go(func() { curl(t, r) })
	wg.Wait()

	// Each of the three left twice before the end, and their workers know.
	testkit.Until(t, "the workers of clients that left are told", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.left["leaves"] == 3 && s.left["stalls"]+s.left["silent"] == 3
	})
	testkit.Until(t, "nothing is in flight", func() bool {
		return testkit.Metric(t, get(t, r.admin+"/metrics"), "rhizome_gateway_in_flight_requests") == 0
	})
	metrics := get(t, r.admin+"/metrics")
	testkit.Idle(t, metrics, "rhizome_gateway_in_flight_requests", "rhizome_gateway_buffered_body_bytes")
	for _, page := range []string{metrics, get(t, r.admin+"/workers"), get(t, r.admin+"/config"), r.process.String()} {
		if strings.Contains(page, key) {
			t.Errorf("a caller's key is repeated in %.500s", page)
		}
	}
}

// play runs one library's check and holds what it saw against the scenarios.
func play(t *testing.T, name string, command []string) {
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	begun := time.Now()
	err := cmd.Run()
	t.Logf("%s took %v", name, time.Since(begun).Round(100*time.Millisecond))
	if err != nil {
		t.Errorf("%s: %v\n%s%s", name, err, out.String(), errs.String())
		return
	}
	var all map[string]map[string]any
	if err := json.Unmarshal(out.Bytes(), &all); err != nil {
		t.Errorf("%s printed %s", name, out.String())
		return
	}
	if len(all) < 10 {
		t.Errorf("%s played %d scenarios only", name, len(all))
	}
	for _, scenario := range slices.Sorted(maps.Keys(all)) {
		w, ok := scenarios[scenario]
		if !ok {
			t.Errorf("%s plays %s, which nobody expects", name, scenario)
		}
		if problem := w.differs(all[scenario]); problem != "" {
			t.Errorf("%s, %s: %s in %v", name, scenario, problem, all[scenario])
		}
	}
}

// differs says how what was seen is not what was wanted.
func (w want) differs(seen map[string]any) string {
	if _, failed := seen["error"]; failed && w["error"] == nil {
		return "an error that was not expected"
	}
	for _, name := range slices.Sorted(maps.Keys(w)) {
		v := seen[name]
		is, decides := w[name].(func(any) bool)
		if decides && !is(v) || !decides && w[name] != v {
			return fmt.Sprintf("%s is %v, want %v", name, v, w[name])
		}
	}
	return ""
}
