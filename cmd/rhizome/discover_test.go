package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rhizome-router/rhizome/internal/testkit"
)

// ctl runs rhizome ctl workers against a router, and returns what it printed.
func (s *served) ctl(t *testing.T, code int, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	if got := run(t.Context(), append(append([]string{"ctl", "workers"}, args...), "--admin", s.admin), &out, &errs); got != code {
		t.Fatalf("ctl workers %v: exit %d: %s%s", args, got, out.String(), errs.String())
	}
	return out.String() + errs.String()
}

// complete asks for a short stream and returns the status and the worker.
func (s *served) complete(t *testing.T) (status int, worker string) {
	t.Helper()
	r, _ := s.ask(t, "/v1/completions", `{"model":"m","stream":true,"prompt":"hi"}`)
	return r.StatusCode, r.Header.Get("x-rhizome-worker")
}

// What is decided by ctl holds over reloads, whatever the file says.
func TestCtlDecidesOnWorkers(t *testing.T) {
	a, b, c := newGatedWorker(t), newGatedWorker(t), newGatedWorker(t)
	for _, w := range []*gatedWorker{a, b, c} {
		w.release()
	}
	file := filepath.Join(t.TempDir(), "rhizome.yaml")
	text := "workers: [" + a.url + ", " + b.url + "]\n"
	write(t, file, text)
	s := serveFile(t, file)
	healthy := func(url string) {
		t.Helper()
		s.awaitAdmin(t, "/metrics", `rhizome_worker_healthy{rank="",worker="`+url+`"} 1`)
	}
	healthy(a.url)
	healthy(b.url)
	if out := s.ctl(t, 0, "add", c.url); !strings.Contains(out, c.url) {
		t.Errorf("add printed %s", out)
	}
	healthy(c.url)
	s.ctl(t, 0, "drain", a.url)
	s.ctl(t, 0, "remove", strings.TrimPrefix(b.url, "http://"))
	only := func(wanted *gatedWorker) {
		t.Helper()
		before := []int{len(a.begun), len(b.begun), len(c.begun)}
		if status, _ := s.complete(t); status != http.StatusOK {
			t.Fatalf("status %d", status)
		}
		after := []int{len(a.begun), len(b.begun), len(c.begun)}
		for i, w := range []*gatedWorker{a, b, c} {
			if (after[i] > before[i]) != (w == wanted) {
				t.Fatalf("it went elsewhere: %v, then %v", before, after)
			}
		}
	}
	only(c)
	if out := s.ctl(t, 0); !strings.Contains(out, "draining (admin)") || strings.Contains(out, b.url[7:]) || strings.Count(out, "\n") != 3 {
		t.Errorf("the list is\n%s", out)
	}
	write(t, file, text+"route: {policy: random}\n")
	s.stderr.await(t, `msg="configuration reloaded"`)
	for range 4 {
		only(c)
	}
	s.ctl(t, 0, "remove", c.url)
	if status, _ := s.complete(t); status != http.StatusServiceUnavailable {
		t.Errorf("with all drained or removed: %d", status)
	}
	s.ctl(t, 0, "undrain", a.url)
	only(a)
	s.ctl(t, 0, "add", b.url)
	healthy(b.url)
	for _, bad := range [][]string{{"drain", "http://nobody:1"}, {"add", "http://169.254.169.254"}, {"add", "http://u:p@h:1"}, {"add", s.admin}, {"add", s.data}} {
		if out := s.ctl(t, 1, bad...); strings.Contains(out, "u:p@") {
			t.Errorf("%v printed %s", bad, out)
		}
	}
	if code := s.stop(); code != 0 {
		t.Errorf("exit %d", code)
	}
}

// sleepyWorker has its port open long before it lists its model.
type sleepyWorker struct {
	url     string
	loaded  atomic.Bool
	asked   atomic.Int64 // for its models
	early   atomic.Int64 // requests before it was loaded
	answers atomic.Int64
}

func newSleepyWorker(t *testing.T) *sleepyWorker {
	w := new(sleepyWorker)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/models", func(rw http.ResponseWriter, _ *http.Request) {
		w.asked.Add(1)
		if w.loaded.Load() {
			io.WriteString(rw, `{"data":[{"id":"m"}]}`)
		} else {
			io.WriteString(rw, `{"data":[]}`)
		}
	})
	mux.HandleFunc("POST /v1/completions", func(rw http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		if !w.loaded.Load() {
			w.early.Add(1)
		}
		w.answers.Add(1)
		rw.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(rw, "data: {\"choices\":[{\"text\":\"a\"}]}\n\ndata: [DONE]\n\n")
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	w.url = server.URL
	return w
}

// TestBR24_ScaledToZeroIsTheSameOnEveryReplica: a configured model without
// workers is 503 with Retry-After, an unknown one 404, on every replica, also on
// one that was just started; a worker gets requests once it lists the model.
func TestBR24_ScaledToZeroIsTheSameOnEveryReplica(t *testing.T) {
	dir := t.TempDir()
	list, file := filepath.Join(dir, "workers.yaml"), filepath.Join(dir, "rhizome.yaml")
	write(t, list, "[]")
	write(t, file, "discovery: {files: ["+list+"]}\ngateway: {models: {m: {}}}\n")
	replicas := []served{serveFile(t, file), serveFile(t, file)}
	check := func() {
		t.Helper()
		for i := range 20 {
			s := &replicas[i%2]
			for model, want := range map[string]int{"m": 503, "nobody": 404} {
				r, body := s.ask(t, "/v1/completions", `{"model":"`+model+`","prompt":"hi"}`)
				if r.StatusCode != want || (want == 503) != (r.Header.Get("Retry-After") != "") || want == 404 && !strings.Contains(body, "model_not_found") {
					t.Fatalf("replica %d on %s: %d %q %s", i%2, model, r.StatusCode, r.Header.Get("Retry-After"), body)
				}
			}
		}
	}
	ready := func(s *served) {
		t.Helper()
		for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
			r, err := http.Get(s.data + "/readyz")
			if err != nil {
				t.Fatal(err)
			}
			r.Body.Close()
			if r.StatusCode == http.StatusOK {
				return
			}
			if time.Now().After(deadline) {
				t.Fatal("a replica whose sources say that there is nobody is never ready")
			}
		}
	}
	ready(&replicas[0])
	ready(&replicas[1])
	check()
	replicas[1].stop()
	replicas[1] = serveFile(t, file)
	ready(&replicas[1])
	check()

	w := newSleepyWorker(t)
	write(t, list, "["+w.url+"]")
	for i := range replicas {
		replicas[i].awaitAdmin(t, "/workers", w.url)
	}
	for deadline := time.Now().Add(20 * time.Second); w.asked.Load() < 4; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nobody asks the worker")
		}
	}
	for i := range replicas {
		if status, _ := replicas[i].complete(t); status != 503 {
			t.Errorf("before the model is listed: %d", status)
		}
	}
	w.loaded.Store(true)
	for i := range replicas {
		replicas[i].awaitAdmin(t, "/metrics", `rhizome_worker_healthy{rank="",worker="`+w.url+`"} 1`)
		if status, _ := replicas[i].complete(t); status != 200 {
			t.Errorf("after it is listed: %d", status)
		}
	}
	if w.early.Load() != 0 || w.answers.Load() != 2 {
		t.Errorf("%d requests came early, %d in all", w.early.Load(), w.answers.Load())
	}
}

// TestBR42_ATerminatingPodFinishesWhatItHas: from the API's word to the client:
// a pod that terminates gets nothing new, its stream runs to its end, and it is
// forgotten when the pod is gone; one that is not ready comes back.
func TestBR42_ATerminatingPodFinishesWhatItHas(t *testing.T) {
	a, b := newGatedWorker(t), newGatedWorker(t)
	t.Cleanup(a.release)
	b.release()
	k := testkit.NewKube(t)
	pod := func(name string, w *gatedWorker) testkit.Pod {
		host, port, _ := strings.Cut(strings.TrimPrefix(w.url, "http://"), ":")
		p := testkit.Pod{Name: name, UID: name, IP: host, Labels: map[string]string{"app": "llm"}}
		fmt.Sscan(port, &p.Port)
		return p
	}
	first, second := pod("a", a), pod("b", b)
	k.SetPod(first)
	file := filepath.Join(t.TempDir(), "rhizome.yaml")
	write(t, file, fmt.Sprintf("discovery:\n  kubernetes: {server: %q, token_file: %q, ca_file: %q, pods: [{selector: app=llm, pool: {engine: vllm}}]}\n", k.URL, k.TokenFile, k.CAFile))
	s := serveFile(t, file)
	s.awaitAdmin(t, "/workers", `"m"`)
	_, rest := s.begin(t)
	<-a.begun
	k.SetPod(second)
	s.awaitAdmin(t, "/metrics", `rhizome_worker_healthy{rank="",worker="`+b.url+`"} 1`)
	first.Terminating = true
	k.SetPod(first)
	s.awaitAdmin(t, "/workers", `"draining_by": "terminating"`)
	for range 4 {
		if status, _ := s.complete(t); status != http.StatusOK {
			t.Fatalf("status %d", status)
		}
	}
	second.NotReady = true
	k.SetPod(second)
	s.awaitAdmin(t, "/workers", `"draining_by": "not ready"`)
	if status, _ := s.complete(t); status != http.StatusServiceUnavailable {
		t.Errorf("with one pod terminating and one not ready: %d", status)
	}
	second.NotReady = false
	k.SetPod(second)
	s.awaitAdmin(t, "/metrics", `rhizome_worker_grade{rank="",worker="`+b.url+`"} 0`)
	if status, _ := s.complete(t); status != http.StatusOK {
		t.Errorf("with one ready again: %d", status)
	}
	if len(a.begun) != 0 {
		t.Errorf("the terminating pod got %d more requests", len(a.begun))
	}
	k.Delete("pods", "a")
	s.awaitAdmin(t, "/metrics", `rhizome_discovery_workers{source="kubernetes:/app=llm"} 1`)
	a.release()
	end, err := io.ReadAll(rest)
	if err != nil || !strings.HasSuffix(string(end), "data: [DONE]\n\n") {
		t.Errorf("the stream in flight ended with %q, %v", end, err)
	}
	if code := s.stop(); code != 0 {
		t.Errorf("exit %d: %s", code, s.stderr)
	}
}
