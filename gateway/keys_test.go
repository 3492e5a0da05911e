package gateway

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/internal/testkit"
	"github.com/rhizome-router/rhizome/route"
)

func hashOf(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])
}

// keyed is a gateway that knows three callers.
func keyed(t *testing.T) *rig {
	w := testkit.NewWorker(t)
	w.Always(testkit.Send(testkit.JSON(200, "{}")))
	return newRig(t, Config{Keys: []KeyConfig{
		{Name: "a", SHA256: hashOf("key-a"), Tenant: "t"},
		{Name: "b", SHA256: strings.ToUpper(hashOf("key-b")), Trust: "hints"},
		{Name: "c", SHA256: hashOf("key-c"), Models: []string{"other"}},
	}}, w)
}

func TestKeys(t *testing.T) {
	r := keyed(t)
	for _, c := range []struct {
		header string
		status int
		code   string
	}{
		{"X-None: 1", 401, "missing_api_key"},
		{"Authorization: Bearer nonsense", 401, "invalid_api_key"},
		{"Authorization: Basic key-a", 401, "missing_api_key"},
		{"Authorization: Bearer key-a", 200, ""},
		{"Authorization: bearer key-a", 200, ""},
		{"X-Api-Key: key-a", 200, ""},
		{"Api-Key: key-b", 200, ""},
		{"Authorization: Bearer key-c", 403, "model_not_allowed"},
		{"Authorization: Bearer " + hashOf("key-a"), 401, "invalid_api_key"},
	} {
		a := r.post(chat, plainBody, c.header)
		if a.status != c.status || !strings.Contains(a.body, c.code) || (a.status == 401) != (a.header.Get("WWW-Authenticate") != "") {
			t.Errorf("%s gave %+v, want %d %s", c.header, a, c.status, c.code)
		}
		if c.status != 200 && r.workers[0].Count() > 4 {
			t.Error("a refused request reached the worker")
		}
	}
	if a := r.post("/v1/messages", plainBody, "X-Api-Key: nonsense"); a.status != 401 || !strings.Contains(a.body, `"type":"authentication_error"`) {
		t.Errorf("the Messages API got %+v", a)
	}
	if a := ask(r.g, "GET", "/v1/models"); a.Code != 401 {
		t.Errorf("models without a key: %d", a.Code)
	}
	if a := ask(r.g, "GET", "/v1/models", "Authorization: Bearer key-c"); a.Code != 200 || strings.Contains(a.Body.String(), `"m"`) {
		t.Errorf("a caller sees models that it may not use: %s", a.Body)
	}
	if a := ask(r.g, "GET", "/healthz"); a.Code != 200 {
		t.Errorf("health needs no key: %d", a.Code)
	}
}

// TestHintsComeFromTrustedCallers: others' hints decide nothing and don't reach
// workers; what is the router's own never does.
func TestHintsComeFromTrustedCallers(t *testing.T) {
	r := keyed(t)
	hints := []string{"x-agent-workflow-id: wf", "x-rhizome-pin: 00000000000000aa", "x-expected-output-tokens: 77", "x-priority: 9", "x-agent-expected-tools: bash", "x-agent-ste: 3", "x-agent-step-id: plan", "x-tenant-id: spoof"}
	for key, trusted := range map[string]bool{"key-a": false, "key-b": true} {
		if a := r.post(chat, plainBody, append(hints, "Authorization: Bearer "+key)...); a.status != 200 {
			t.Fatalf("%s gave %+v", key, a)
		}
		q, got := r.picker.queries[len(r.picker.queries)-1], r.workers[0].Next(t).Header
		if (q.Agent.Workflow == "wf") != trusted || (q.Agent.Step == "plan") != trusted || (q.Agent.StepsToExecution == 3) != trusted || (len(q.Agent.ExpectedTools) == 1) != trusted || q.Session != "" || (q.Pin != "") != trusted || (q.ExpectedOutputTokens == 77) != trusted || (q.Tool == "bash") != trusted {
			t.Errorf("%s: query %+v", key, q)
		}
		if (got.Get("X-Priority") == "9") != trusted || (got.Get("X-Agent-Workflow-Id") != "") != trusted {
			t.Errorf("%s: the worker got %v", key, got)
		}
		for _, name := range []string{"X-Rhizome-Pin", "X-Tenant-Id", "Authorization"} {
			if got.Get(name) != "" {
				t.Errorf("%s: the worker got %s", key, name)
			}
		}
	}
}

// TestAgentContext is read within bounds, and what is out of them left out.
func TestAgentContext(t *testing.T) {
	var many []string
	for i := range 2 * route.MaxExpectedTools {
		many = append(many, fmt.Sprint("t", i))
	}
	long := strings.Repeat("x", maxHintBytes+1)
	for name, c := range map[string]struct {
		headers []string
		want    route.Agent
	}{
		"nothing":       {nil, route.Agent{StepsToExecution: -1}},
		"all":           {[]string{"x-agent-workflow-id: wf", "x-agent-step-id: plan", "x-agent-expected-tools: bash, search,bash,,", "x-agent-ste: 0"}, route.Agent{Workflow: "wf", Step: "plan", ExpectedTools: []string{"bash", "search"}}},
		"two lines":     {[]string{"x-agent-expected-tools: bash", "x-agent-expected-tools: search"}, route.Agent{ExpectedTools: []string{"bash", "search"}, StepsToExecution: -1}},
		"too long":      {[]string{"x-agent-workflow-id: " + long, "x-agent-step-id: " + long, "x-agent-expected-tools: " + long + ",bash"}, route.Agent{ExpectedTools: []string{"bash"}, StepsToExecution: -1}},
		"too many":      {[]string{"x-agent-expected-tools: " + strings.Join(many, ",")}, route.Agent{ExpectedTools: many[:route.MaxExpectedTools], StepsToExecution: -1}},
		"negative":      {[]string{"x-agent-ste: -1"}, route.Agent{StepsToExecution: -1}},
		"no number":     {[]string{"x-agent-ste: soon"}, route.Agent{StepsToExecution: -1}},
		"a long way":    {[]string{"x-agent-ste: 99999999"}, route.Agent{StepsToExecution: route.MaxStepsToExecution}},
		"out of bounds": {[]string{"x-agent-ste: 99999999999999999999999"}, route.Agent{StepsToExecution: -1}},
	} {
		r := keyed(t)
		if a := r.post(chat, plainBody, append(c.headers, "Authorization: Bearer key-b")...); a.status != 200 {
			t.Fatalf("%s gave %+v", name, a)
		}
		if got := r.picker.queries[0].Agent; !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// TestHintsInBodies decide nothing either, save for trusted callers; the header
// goes before the body, and workers get the bytes that the client sent.
func TestHintsInBodies(t *testing.T) {
	body := `{"nvext":{"agent_hints":{"osl":55,"priority":-3}},"cache_control":{"type":"ephemeral","ttl":"1h"},` + plainBody[1:]
	for _, c := range []struct {
		key, header string
		tokens      int
		hints       route.Hints
		tenant      string
	}{
		{"key-a", "x-other: 1", 0, route.Hints{}, "t"},
		{"key-b", "x-other: 1", 55, route.Hints{Priority: -3, CacheTTL: time.Hour}, "b"},
		{"key-b", "x-expected-output-tokens: 77", 77, route.Hints{Priority: -3, CacheTTL: time.Hour}, "b"},
		{"key-b", "x-priority: high", 55, route.Hints{Priority: -3, CacheTTL: time.Hour}, "b"},
		{"key-b", "x-priority: 99999999", 55, route.Hints{Priority: maxHintPriority, CacheTTL: time.Hour}, "b"},
	} {
		r := keyed(t)
		if a := r.post(chat, body, "Authorization: Bearer "+c.key, c.header); a.status != 200 {
			t.Fatalf("%s gave %+v", c.key, a)
		}
		if got := r.workers[0].Next(t).Body; got != body {
			t.Errorf("%s: the worker got %s", c.key, got)
		}
		if q := r.picker.queries[0]; q.ExpectedOutputTokens != c.tokens || q.Hints != c.hints || q.Tenant != c.tenant {
			t.Errorf("%+v: query %+v", c, q)
		}
	}
}

// TestBR40_ALimitOfRequestsAtATime holds as long as the requests last, not as
// long as their heads take.
func TestBR40_ALimitOfRequestsAtATime(t *testing.T) {
	hold := make(chan struct{})
	stream := testkit.Script{testkit.Send(testkit.SSEHead(), testkit.Chunk("data: 1\n\n")), testkit.Wait(hold),
		testkit.Send(testkit.Chunk("data: [DONE]\n\n"), testkit.Chunk(""))}
	r := newRig(t, Config{Keys: []KeyConfig{{Name: "a", SHA256: hashOf("k"), MaxInFlight: 2}}}, testkit.NewWorker(t, stream, stream))
	const auth = "Authorization: Bearer k"
	var streams []*http.Response
	for range 2 {
		req, _ := http.NewRequest("POST", r.url+chat, strings.NewReader(streamBody))
		req.Header.Set("Authorization", "Bearer k")
		resp, err := r.client.Do(req) // its head has come
		if err != nil {
			t.Fatal(err)
		}
		streams = append(streams, resp)
	}
	if a := r.post(chat, plainBody, auth); a.status != 429 || a.header.Get("Retry-After") == "" || !strings.Contains(a.body, "rate_limit_exceeded") {
		t.Errorf("the third got %+v", a)
	}
	// The same tenant under another config is still the same tenant.
	next, err := r.g.With(Config{Keys: []KeyConfig{{Name: "a", SHA256: hashOf("k"), MaxInFlight: 2, RequestsPerSecond: 1000}}})
	if err != nil {
		t.Fatal(err)
	}
	if a := ask(next, "POST", chat, auth); a.Code != 429 {
		t.Errorf("another config forgot the streams: %d", a.Code)
	}
	close(hold)
	for _, s := range streams {
		var sink strings.Builder
		s.Write(&sink)
		s.Body.Close()
	}
	r.workers[0].Always(testkit.Send(testkit.JSON(200, "{}")))
	r.client.CloseIdleConnections()
	if l := r.g.limits.byTenant["a"]; l == nil {
		t.Fatal("no limiter")
	}
}

func TestALimitOfRequestsPerSecond(t *testing.T) {
	l := newLimiters().of("t", rate{perSecond: 2})
	now := clock.Instant(time.Hour)
	enter := func() error { err := l.enter(now); return err }
	for i := range 2 {
		if err := enter(); err != nil {
			t.Fatalf("request %d of a burst: %v", i, err)
		}
	}
	err, ok := enter().(*limitError)
	if !ok || err.retryAfter <= 0 || err.retryAfter > 500*time.Millisecond {
		t.Fatalf("beyond the burst: %v", err)
	}
	now = now.Add(err.retryAfter)
	if err := enter(); err != nil {
		t.Errorf("after the time it was told: %v", err)
	}
	now = now.Add(time.Hour)
	for i := range 3 {
		if err := enter(); (err != nil) != (i == 2) {
			t.Errorf("request %d after a long pause: %v", i, err)
		}
	}
}

func TestKeyConfigs(t *testing.T) {
	good := KeyConfig{Name: "a", SHA256: hashOf("a")}
	for want, keys := range map[string][]KeyConfig{
		"":                    {good, {Name: "b", SHA256: hashOf("b"), Trust: "hints", MaxInFlight: 3, RequestsPerSecond: 0.5}},
		"sha256 must be":      {{Name: "a", SHA256: "key"}},
		"the same sha256":     {good, {Name: "b", SHA256: strings.ToUpper(hashOf("a"))}},
		"name is missing":     {{SHA256: hashOf("a")}},
		"two keys have":       {good, {Name: "a", SHA256: hashOf("b")}},
		"trust is":            {{Name: "a", SHA256: hashOf("a"), Trust: "all"}},
		"max_in_flight is -1": {{Name: "a", SHA256: hashOf("a"), MaxInFlight: -1}},
		"requests_per_second": {{Name: "a", SHA256: hashOf("a"), RequestsPerSecond: -1}},
	} {
		err := Config{Keys: keys}.Validate()
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%+v gave %v, want %q", keys, err, want)
		}
	}
}

// TestWorkersDoNotSayWhichPagesMayRead: engines allow every origin; where the
// router has a list, a page that is not in it can't read an answer, and caches
// know what the answer depends on.
func TestWorkersDoNotSayWhichPagesMayRead(t *testing.T) {
	w := testkit.NewWorker(t)
	w.Always(testkit.Send(testkit.JSON(200, "{}", "Access-Control-Allow-Origin: *", "Vary: Accept")))
	r := newRig(t, Config{CORS: CORSConfig{Origins: []string{"https://chat.example"}}}, w)
	for origin, want := range map[string]string{"https://evil.example": "", "https://chat.example": "https://chat.example"} {
		a := r.post(chat, plainBody, "Origin: "+origin, "Content-Type: text/plain")
		if got := a.header.Get("Access-Control-Allow-Origin"); a.status != 200 || got != want {
			t.Errorf("%s: allowed %q, want %q", origin, got, want)
		}
		if got := strings.Join(a.header.Values("Vary"), ","); got != "Origin,Accept" {
			t.Errorf("%s: Vary is %s", origin, got)
		}
	}
}

// TestBR35_PreflightComesBeforeKeys: a browser asks without a key, and can read
// every answer, refusals too; there is one Allow-Origin however many spoke.
func TestBR35_PreflightComesBeforeKeys(t *testing.T) {
	w := testkit.NewWorker(t)
	w.Always(testkit.Send(testkit.JSON(200, "{}", "Access-Control-Allow-Origin: *", "X-Custom: 1")))
	r := newRig(t, Config{Keys: []KeyConfig{{Name: "a", SHA256: hashOf("k")}}, CORS: CORSConfig{Origins: []string{"https://chat.example"}}}, w)
	preflight := []string{"Access-Control-Request-Method: POST", "Access-Control-Request-Headers: authorization, content-type"}
	a := ask(r.g, "OPTIONS", chat, append(preflight, "Origin: https://chat.example")...)
	if a.Code != 204 || a.Header().Get("Access-Control-Allow-Origin") != "https://chat.example" ||
		a.Header().Get("Access-Control-Allow-Headers") != "authorization, content-type" || !strings.Contains(a.Header().Get("Access-Control-Allow-Methods"), "POST") {
		t.Errorf("preflight gave %d %v", a.Code, a.Header())
	}
	if a := ask(r.g, "OPTIONS", chat, append(preflight, "Origin: https://evil.example")...); a.Header().Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("a stranger's preflight gave %v", a.Header())
	}
	for _, c := range []struct {
		auth   string
		status int
	}{{"Bearer wrong", 401}, {"Bearer k", 200}} {
		a := r.post(chat, plainBody, "Origin: https://chat.example", "Authorization: "+c.auth)
		if got := a.header.Values("Access-Control-Allow-Origin"); a.status != c.status || len(got) != 1 || got[0] != "https://chat.example" {
			t.Errorf("%s gave %d %q", c.auth, a.status, got)
		}
	}
	if w.Count() != 1 {
		t.Errorf("%d requests reached the worker", w.Count())
	}
	off := newRig(t, Config{}, w)
	if a := ask(off.g, "OPTIONS", chat, append(preflight, "Origin: https://chat.example")...); a.Code != 405 || a.Header().Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("where CORS is off: %d %v", a.Code, a.Header())
	}
	if a := off.post(chat, plainBody, "Origin: https://x.example"); a.header.Get("Access-Control-Allow-Origin") != "*" {
		t.Errorf("the worker's own answer was dropped: %v", a.header)
	}
}

// TestDrainDelay: the listener stays open for the delay while /readyz says no.
func TestDrainDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := memRig(t, Config{}, testkit.Script{testkit.Send(testkit.JSON(200, "{}"))})
		mem := testkit.NewNet()
		ln := mem.Listen("front:80")
		ctx, stop := contextWithCancel(t)
		result := make(chan error, 1)
		go func() { result <- Config{DrainDelay: 5 * time.Second}.Serve(ctx, ln, r.g, time.Second, discard) }()
		client := &http.Client{Transport: &http.Transport{DialContext: mem.Dial}}
		defer client.CloseIdleConnections()
		stop()
		r.g.Drain()
		time.Sleep(4 * time.Second) // of virtual time
		resp, err := client.Post("http://front:80"+chat, "application/json", strings.NewReader(plainBody))
		if err != nil || resp.StatusCode != 200 || !resp.Close {
			t.Errorf("within the delay: %v %v", resp, err)
		}
		resp.Body.Close()
		if resp, err := client.Get("http://front:80/readyz"); err != nil || resp.StatusCode != 503 {
			t.Errorf("ready within the delay: %v %v", resp, err)
		} else {
			resp.Body.Close()
		}
		time.Sleep(2 * time.Second)
		if resp, err := client.Get("http://front:80/healthz"); err == nil {
			resp.Body.Close()
			t.Error("the listener is open after the delay")
		}
		if err := <-result; err != nil {
			t.Error(err)
		}
	})
}
