package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rhizome-router/rhizome/engine/emulator"
	"github.com/rhizome-router/rhizome/engine/model"
	"github.com/rhizome-router/rhizome/internal/testkit"
	"github.com/rhizome-router/rhizome/route"
)

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" { // see startProcess
		main()
	}
	goleak.VerifyTestMain(m)
}

func TestDemoEndsWithASummary(t *testing.T) {
	for _, c := range []struct {
		flags            string
		restarts         int
		least, most, off float64 // predicted/actual, and the share of the error
	}{
		{"", 0, 0.9, 1.1, 0.1},
		{"--stress", 1, 0.9, 1.1, 0.1},
		{"--replicas 3", 0, 0.5, 1.5, 0.6}, // what is learned of texts is not shared
	} {
		var out, errs bytes.Buffer
		if code := run(t.Context(), append([]string{"demo", "--once", "--duration", "3s", "--json"}, strings.Fields(c.flags)...), &out, &errs); code != 0 {
			t.Fatalf("%s: exit %d: %s", c.flags, code, errs.String())
		}
		var s struct {
			Requests, Failed *int
			HBM              *int     `json:"hit_hbm_tokens"`
			Tier             *int     `json:"hit_tier_tokens"`
			Predicted        *float64 `json:"cached_tokens_predicted"`
			Actual           *float64 `json:"cached_tokens_actual"`
			AbsError         *float64 `json:"cached_tokens_abs_error"`
			TTFT             *float64 `json:"ttft_mean_ms"`
			Restarts         int      `json:"worker_restarts"`
		}
		if err := json.Unmarshal(out.Bytes(), &s); err != nil {
			t.Fatalf("%v in %s", err, out.String())
		}
		if s.Requests == nil || s.Failed == nil || s.HBM == nil || s.Tier == nil || s.Predicted == nil || s.Actual == nil || s.AbsError == nil || s.TTFT == nil {
			t.Fatalf("a key is missing: %s", out.String())
		}
		if *s.Requests == 0 || *s.Failed != 0 || *s.HBM == 0 || *s.TTFT <= 0 || s.Restarts != c.restarts || errs.Len() > 0 {
			t.Errorf("%s: summary %s%s", c.flags, out.String(), errs.String())
		}
		if all := *s.Predicted / *s.Actual; all < c.least || all > c.most || *s.AbsError > c.off**s.Actual {
			t.Errorf("%s: predicted %v cached tokens, actual %v, off by %v", c.flags, *s.Predicted, *s.Actual, *s.AbsError)
		}
	}
}

// served is a router started by its command line, in front of real workers.
type served struct {
	data, admin string
	stderr      *lines
	process     *os.Process // of its own; nil if it is this one
	stop        func() int  // asks for the end and returns the exit code
}

// lines collects what a command writes while it runs.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
	more chan struct{} // signalled on each write
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.Write(p)
	select {
	case l.more <- struct{}{}:
	default:
	}
	return len(p), nil
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// await waits until what was written matches, and returns the submatches.
func (l *lines) await(t *testing.T, pattern string) []string {
	t.Helper()
	re := regexp.MustCompile(pattern)
	deadline := time.After(20 * time.Second)
	for {
		if m := re.FindStringSubmatch(l.String()); m != nil {
			return m
		}
		select {
		case <-l.more:
		case <-deadline:
			t.Fatalf("never wrote %q: %s", pattern, l.String())
		}
	}
}

func serve(t *testing.T, workers int, more ...string) served {
	t.Helper()
	preset, err := model.PresetByName("llama3-8b-h100")
	if err != nil {
		t.Fatal(err)
	}
	group, err := emulator.StartGroup(t.Context(), emulator.GroupConfig{Workers: workers, AnyPorts: true,
		Config: emulator.Config{Model: "m", Preset: preset, Speedup: 50}})
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--seed", "1"}
	for _, spec := range group.Specs() {
		args = append(args, "--worker", spec)
	}
	ctx, cancel := context.WithCancel(t.Context())
	stderr := &lines{more: make(chan struct{}, 1)}
	ended := make(chan int, 1)
	go func() { ended <- run(ctx, append(args, more...), io.Discard, stderr) }()
	s := served{stderr: stderr}
	var once sync.Once
	code := 0
	s.stop = func() int {
		once.Do(func() { cancel(); code = <-ended; group.Close() })
		return code
	}
	t.Cleanup(func() { s.stop(); http.DefaultClient.CloseIdleConnections() })
	m := stderr.await(t, `msg=serving data=(\S+) admin=(\S+)`)
	s.data, s.admin = m[1], m[2]
	s.awaitReady(t)
	return s
}

func (s *served) awaitReady(t *testing.T) {
	t.Helper()
	for range 400 {
		r, err := http.Get(s.data + "/readyz")
		if err == nil {
			r.Body.Close()
			if r.StatusCode == http.StatusOK {
				return
			}
		}
		select {
		case <-time.After(25 * time.Millisecond):
		case <-t.Context().Done():
		}
	}
	t.Fatalf("never ready: %s", s.stderr)
}

// awaitAdmin waits until an admin path answers with a text.
func (s *served) awaitAdmin(t *testing.T, path, want string) {
	t.Helper()
	var last []byte
	for range 400 {
		r, err := http.Get(s.admin + path)
		if err != nil {
			t.Fatal(err)
		}
		last, err = io.ReadAll(r.Body)
		r.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(last, []byte(want)) {
			return
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-t.Context().Done():
		}
	}
	t.Fatalf("%s never said %s: %s", path, want, last)
}

// ask sends one request and returns its response, read to the end.
func (s *served) ask(t *testing.T, path, body string) (*http.Response, string) {
	t.Helper()
	r, err := http.Post(s.data+path, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r, string(text)
}

func TestServeRoutesAndExplains(t *testing.T) {
	s := serve(t, 3)
	ids := make([]string, 2000)
	for i := range ids {
		ids[i] = fmt.Sprint(i)
	}
	body := `{"model":"m","max_tokens":4,"prompt":[` + strings.Join(ids, ",") + `]}`
	first, _ := s.ask(t, "/v1/completions", body)
	worker := first.Header.Get("x-rhizome-worker")
	if first.StatusCode != http.StatusOK || worker == "" {
		t.Fatalf("%s, worker %q", first.Status, worker)
	}
	s.awaitAdmin(t, "/workers", `"hbm": 2000`) // its events have come
	second, text := s.ask(t, "/v1/completions", body)
	if second.Header.Get("x-rhizome-worker") != worker || !strings.Contains(text, `"cached_tokens":1984`) {
		t.Errorf("the same prompt went to %s (first %s): %s", second.Header.Get("x-rhizome-worker"), worker, text)
	}
	dry, err := http.Post(s.admin+"/v1/route", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer dry.Body.Close()
	var there struct {
		Worker       string `json:"worker"`
		CachedTokens int    `json:"cached_tokens"`
	}
	if err := json.NewDecoder(dry.Body).Decode(&there); err != nil || there.CachedTokens != 1984 {
		t.Errorf("where it would go: %d, %+v, %v", dry.StatusCode, there, err)
	}

	var out, errs bytes.Buffer
	id := second.Header.Get("x-request-id")
	if code := run(t.Context(), []string{"explain", id, "--admin", s.admin}, &out, &errs); code != 0 {
		t.Fatalf("explain: exit %d: %s", code, errs.String())
	}
	for _, want := range []string{"2000 prompt tokens (exact)", "events", "predicted", "1984", "(completed)", "█"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("explain says nothing of %q:\n%s", want, out.String())
		}
	}
	out.Reset()
	if code := run(t.Context(), []string{"explain", id, "--json", "--admin", s.admin}, &out, &errs); code != 0 {
		t.Fatalf("explain --json: exit %d", code)
	}
	var e route.Explanation
	if err := json.Unmarshal(out.Bytes(), &e); err != nil || len(e.Candidates) != 3 || e.ActualCachedTokens != 1984 {
		t.Errorf("explain --json: %v, %s", err, out.String())
	}
	if there.Worker != e.Worker {
		t.Errorf("it went to %s, and would go to %s", e.Worker, there.Worker)
	}
	out.Reset()
	if code := run(t.Context(), []string{"explain", "--last", "--admin", s.admin}, &out, &errs); code != 0 || !strings.Contains(out.String(), id) || !strings.Contains(out.String(), "completed") {
		t.Errorf("explain --last: exit %d: %s%s", code, out.String(), errs.String())
	}
	errs.Reset()
	if code := run(t.Context(), []string{"explain", "nobody", "--admin", s.admin}, &out, &errs); code != 1 || !strings.Contains(errs.String(), "knows no request") {
		t.Errorf("an unknown id: exit %d, %s", code, errs.String())
	}
	out.Reset()
	if code := run(t.Context(), []string{"ctl", "index", "--admin", s.admin}, &out, &errs); code != 0 {
		t.Fatalf("ctl index: exit %d: %s", code, errs.String())
	}
	if strings.Count(out.String(), "live") != 3 || !strings.Contains(out.String(), "2000") || !strings.Contains(out.String(), "blocks, held") {
		t.Errorf("ctl index:\n%s", out.String())
	}
	if code := s.stop(); code != 0 {
		t.Errorf("serve ended with %d: %s", code, s.stderr)
	}
}

func TestServeAnswersAsOpenAIDoes(t *testing.T) {
	s := serve(t, 2)
	r, err := http.Get(s.data + "/v1/models")
	if err != nil {
		t.Fatal(err)
	}
	models, err := io.ReadAll(r.Body)
	r.Body.Close()
	if err != nil || !strings.Contains(string(models), `"id":"m"`) {
		t.Errorf("models: %v %s", err, models)
	}
	for _, c := range []struct {
		path, body string
		status     int
		want       string
	}{
		{"/v1/chat/completions", `{"model":"m","max_tokens":3,"messages":[{"role":"user","content":"hi"}]}`, 200, `"finish_reason":"length"`},
		{"/v1/chat/completions", `{"model":"m","stream":true,"max_tokens":3,"messages":[{"role":"user","content":"hi"}]}`, 200, "data: [DONE]"},
		{"/v1/embeddings", `{"model":"m","input":"hi"}`, 200, `"embedding":`},
		{"/v1/chat/completions", `{"model":"other","messages":[]}`, 404, "model_not_found"},
		{"/v1/chat/completions", `{"model":"m",,}`, 400, "byte 13"},
	} {
		r, text := s.ask(t, c.path, c.body)
		if r.StatusCode != c.status || !strings.Contains(text, c.want) {
			t.Errorf("%s %s: %s %s", c.path, c.body, r.Status, text)
		}
	}
	r, err = http.Get(s.admin + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	metrics, err := io.ReadAll(r.Body)
	r.Body.Close()
	if err != nil || !strings.Contains(string(metrics), `rhizome_route_ended_total{result="completed"} 3`) ||
		strings.Count(string(metrics), `rhizome_worker_events_live{`) != 2 {
		t.Errorf("metrics: %v\n%s", err, metrics)
	}
}

// Before any worker answered, no model can be called unknown.
func TestServeBeforeItsWorkers(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	stderr := &lines{more: make(chan struct{}, 1)}
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, []string{"serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--worker", "http://127.0.0.1:1"}, io.Discard, stderr)
	}()
	s := served{data: stderr.await(t, `msg=serving data=(\S+)`)[1]}
	r, text := s.ask(t, "/v1/completions", `{"model":"m","prompt":"hi"}`)
	if r.StatusCode != http.StatusServiceUnavailable || r.Header.Get("Retry-After") == "" {
		t.Errorf("%s, Retry-After %q: %s", r.Status, r.Header.Get("Retry-After"), text)
	}
	stderr.await(t, `level=WARN msg="worker does not answer" worker=http://127.0.0.1:1`)
	cancel()
	if code := <-ended; code != 0 {
		t.Errorf("exit %d: %s", code, stderr)
	}
	http.DefaultClient.CloseIdleConnections()
}

// Node's own fetch reads the stream as an OpenAI client would.
func TestNodeReadsAStream(t *testing.T) {
	node := testkit.Node(t)
	s := serve(t, 2)
	script := `
const r = await fetch(process.argv[1] + "/v1/chat/completions", {method: "POST", headers: {"content-type": "application/json"},
  body: JSON.stringify({model: "m", stream: true, max_tokens: 5, stream_options: {include_usage: true},
    messages: [{role: "user", content: "grüße 🌍"}]})});
let text = "", usage = null, done = false, rest = "";
for await (const bytes of r.body.pipeThrough(new TextDecoderStream())) {
  rest += bytes;
  let end;
  while ((end = rest.indexOf("\n\n")) >= 0) {
    const data = rest.slice(0, end).replace(/^data: /, "");
    rest = rest.slice(end + 2);
    if (data === "[DONE]") { done = true; continue; }
    const chunk = JSON.parse(data);
    text += chunk.choices[0]?.delta?.content ?? "";
    usage = chunk.usage ?? usage;
  }
}
console.log(JSON.stringify({status: r.status, done, length: text.length, usage}));`
	out, err := exec.CommandContext(t.Context(), node, "--input-type=module", "-e", script, s.data).CombinedOutput()
	if err != nil {
		t.Fatalf("node: %v\n%s", err, out)
	}
	var got struct {
		Status, Length int
		Done           bool
		Usage          struct {
			Completion int `json:"completion_tokens"`
		}
	}
	if err := json.Unmarshal(out, &got); err != nil || got.Status != 200 || !got.Done || got.Length == 0 || got.Usage.Completion != 5 {
		t.Errorf("node saw %s (%v)", out, err)
	}
}

func TestBadCommandLines(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"serve"}, 1, "name at least one with --worker"},
		{[]string{"serve", "--worker", "ftp://h"}, 1, "http"},
		{[]string{"serve", "--worker", "http://h:1", "--policy", "fastest"}, 2, "round-robin"},
		{[]string{"serve", "--worker", "http://h:1,preset=none"}, 1, "none"},
		{[]string{"serve", "--worker", "http://h:1", "--admin", "0.0.0.0:0"}, 1, "token"},
		{[]string{"serve", "--worker", "http://h:1", "--listen", "127.0.0.1:99999"}, 1, "data port"},
		{[]string{"explain", "x", "--admin", "http://"}, 1, "no address"},
		{[]string{"explain", "x", "--admin", "127.0.0.1:1"}, 1, "127.0.0.1:1"},
		{[]string{"explain", ""}, 1, "no request id"},
		{[]string{"dance"}, 2, "rhizome --help"},
		{[]string{"version"}, 0, ""},
		{[]string{"--help"}, 0, ""},
	} {
		var out, errs bytes.Buffer
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		code := run(ctx, c.args, &out, &errs)
		cancel()
		if code != c.code || !strings.Contains(errs.String(), c.want) {
			t.Errorf("%v: exit %d, want %d with %q: %s", c.args, code, c.code, c.want, errs.String())
		}
	}
}
