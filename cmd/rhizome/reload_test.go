package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// gatedWorker is a worker whose streams begin at once and end when they may.
type gatedWorker struct {
	url   string
	begun chan struct{} // gets one for each stream that has begun
	end   chan struct{} // closed: streams end
}

func newGatedWorker(t *testing.T) *gatedWorker {
	w := &gatedWorker{begun: make(chan struct{}, 16), end: make(chan struct{})}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/models", func(rw http.ResponseWriter, _ *http.Request) {
		io.WriteString(rw, `{"object":"list","data":[{"id":"m","object":"model"}]}`)
	})
	mux.HandleFunc("POST /v1/completions", func(rw http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		rw.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(rw, "data: {\"choices\":[{\"text\":\"a\"}]}\n\n")
		rw.(http.Flusher).Flush()
		w.begun <- struct{}{}
		select {
		case <-w.end:
			io.WriteString(rw, "data: [DONE]\n\n")
		case <-r.Context().Done():
		}
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	w.url = server.URL
	return w
}

// release lets the streams end; a second call does nothing.
func (w *gatedWorker) release() {
	select {
	case <-w.end:
	default:
		close(w.end)
	}
}

// serveFile starts a router by a configuration file.
func serveFile(t *testing.T, file string, more ...string) served {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	stderr := &lines{more: make(chan struct{}, 1)}
	ended := make(chan int, 1)
	args := append([]string{"serve", "--config", file, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"}, more...)
	go func() { ended <- run(ctx, args, io.Discard, stderr) }()
	s := served{stderr: stderr}
	var once sync.Once
	code := 0
	s.stop = func() int {
		once.Do(func() { cancel(); code = <-ended })
		return code
	}
	t.Cleanup(func() { s.stop(); http.DefaultClient.CloseIdleConnections() })
	m := stderr.await(t, `msg=serving data=(\S+) admin=(\S+)`)
	s.data, s.admin = m[1], m[2]
	return s
}

// write replaces a file as an editor does, by renaming a new one.
func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
}

// begin asks for a stream and returns its body once it has begun.
func (s *served) begin(t *testing.T) (*http.Response, *bufio.Reader) {
	t.Helper()
	r, err := http.Post(s.data+"/v1/completions", "application/json", strings.NewReader(`{"model":"m","stream":true,"prompt":"hi"}`))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Body.Close() })
	body := bufio.NewReader(r.Body)
	if line, err := body.ReadString('\n'); err != nil || r.StatusCode != http.StatusOK || !strings.Contains(line, "choices") {
		t.Fatalf("%s, %q, %v", r.Status, line, err)
	}
	return r, body
}

// A worker taken out of the file gets nothing new, and ends what it has.
func TestReloadTakesOutAWorkerInUse(t *testing.T) {
	a, b := newGatedWorker(t), newGatedWorker(t)
	t.Cleanup(a.release)
	t.Cleanup(b.release)
	file := filepath.Join(t.TempDir(), "rhizome.yaml")
	write(t, file, "workers:\n  - url: "+a.url+"\n")
	s := serveFile(t, file)
	s.awaitAdmin(t, "/workers", `"m"`)
	running, rest := s.begin(t)
	<-a.begun
	s.awaitAdmin(t, "/metrics", `rhizome_worker_in_flight_requests{rank="",worker="`+a.url+`"} 1`)

	write(t, file, "workers:\n  - url: "+b.url+"\n")
	s.stderr.await(t, `msg="configuration reloaded"`)
	s.awaitAdmin(t, "/workers", `"m"`) // of the new one: the other is not listed any more
	b.release()
	for range 5 {
		r, body := s.ask(t, "/v1/completions", `{"model":"m","stream":true,"prompt":"hi"}`)
		if r.Header.Get("x-rhizome-worker") != running.Header.Get("x-rhizome-worker") && strings.HasSuffix(body, "data: [DONE]\n\n") {
			continue
		}
		t.Fatalf("a new request went to %s: %s", r.Header.Get("x-rhizome-worker"), body)
	}
	if len(a.begun) != 0 {
		t.Errorf("the worker taken out got %d more requests", len(a.begun))
	}
	a.release()
	end, err := io.ReadAll(rest)
	if err != nil || !strings.HasSuffix(string(end), "data: [DONE]\n\n") {
		t.Errorf("the request in flight ended with %q, %v", end, err)
	}

	write(t, file, "workers:\n  - url: "+a.url+"\n  - url: "+b.url+"\n") // and back
	s.awaitAdmin(t, "/metrics", `rhizome_worker_healthy{rank="",worker="`+a.url+`"} 1`)
	s.awaitAdmin(t, "/metrics", `rhizome_worker_in_flight_requests{rank="",worker="`+a.url+`"} 0`)
	if code := s.stop(); code != 0 {
		t.Errorf("exit %d: %s", code, s.stderr)
	}
}

// A bad file changes nothing, is told once, and a good one takes over.
func TestReloadIsAllOrNothing(t *testing.T) {
	a := newGatedWorker(t)
	a.release()
	file := filepath.Join(t.TempDir(), "rhizome.yaml")
	good := "workers: [" + a.url + "]\ngateway:\n  max_body_bytes: %d\n"
	write(t, file, fmt.Sprintf(good, 1000))
	s := serveFile(t, file)
	s.awaitAdmin(t, "/workers", `"m"`)
	s.awaitAdmin(t, "/metrics", "rhizome_config_last_reload_successful 1")
	status := func() int {
		r, _ := s.ask(t, "/v1/completions", `{"model":"m","stream":true,"prompt":"hi there"}`)
		return r.StatusCode
	}

	for _, bad := range []struct{ text, want string }{
		{fmt.Sprintf(good, 10) + "  max_atempts: 2\n", `gateway: unknown key \\"max_atempts\\": did you mean max_attempts`},
		{fmt.Sprintf(good, 10) + "fleet: {cluster: other}\n", `fleet.cluster can't change while the router runs \(from default to other\)`},
		{"workers: []\ngateway: {max_body_bytes: 10}\n", "no workers are left"},
		{fmt.Sprintf(good, 10) + "  - [\n", "non-map value is specified"},
		{"# being written\n", "the file holds no setting"},
	} {
		write(t, file, bad.text)
		s.stderr.await(t, bad.want)
		s.awaitAdmin(t, "/metrics", "rhizome_config_last_reload_successful 0")
		if got := status(); got != http.StatusOK {
			t.Errorf("after %q a request gave %d: a part of it is in force", bad.text, got)
		}
	}
	s.awaitAdmin(t, "/config", "the file holds no setting")

	write(t, file, fmt.Sprintf(good, 10))
	s.stderr.await(t, `msg="configuration reloaded"`)
	s.awaitAdmin(t, "/metrics", "rhizome_config_last_reload_successful 1")
	s.awaitAdmin(t, "/config", `"key": "gateway.max_body_bytes",
      "value": "10",
      "from": "file",
      "at": "`+file+`:3:19"`)
	if got := status(); got != http.StatusRequestEntityTooLarge {
		t.Errorf("the new limit gave %d", got)
	}
	if n := strings.Count(s.stderr.String(), "configuration not reloaded"); n != 5 {
		t.Errorf("5 bad files were told %d times:\n%s", n, s.stderr)
	}
}

// A hang-up reads the file at once.
func TestReloadOnHangup(t *testing.T) {
	a := newGatedWorker(t)
	file := filepath.Join(t.TempDir(), "rhizome.yaml")
	write(t, file, "workers: ["+a.url+"]\n")
	s := serveFile(t, file)
	if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	s.stderr.await(t, `asked by a hang-up[\s\S]*msg="configuration reloaded"`)
	write(t, file, "workers: ["+a.url+"]\nroute: {policy: random}\n")
	if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	s.awaitAdmin(t, "/config", `"value": "random"`)
}

// Kubernetes changes a mounted ConfigMap by swapping a link to a directory.
func TestReloadOnLinkSwap(t *testing.T) {
	a := newGatedWorker(t)
	dir := t.TempDir()
	version := func(name, text string) {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, name, "rhizome.yaml"), text)
		if err := os.Symlink(name, filepath.Join(dir, "..data_tmp")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	version("..1", "workers: ["+a.url+"]\n")
	file := filepath.Join(dir, "rhizome.yaml")
	if err := os.Symlink(filepath.Join("..data", "rhizome.yaml"), file); err != nil {
		t.Fatal(err)
	}
	s := serveFile(t, file)
	version("..2", "workers: ["+a.url+"]\nroute: {policy: random}\n")
	s.awaitAdmin(t, "/config", `"value": "random"`)
	if err := os.RemoveAll(filepath.Join(dir, "..1")); err != nil {
		t.Fatal(err)
	}
	version("..3", "workers: ["+a.url+"]\nroute: {policy: sticky}\n")
	s.awaitAdmin(t, "/config", `"value": "sticky"`)
}

// A secret's file is followed too, and the secret shows nowhere.
func TestReloadOfASecret(t *testing.T) {
	a := newGatedWorker(t)
	dir := t.TempDir()
	file, secret := filepath.Join(dir, "rhizome.yaml"), filepath.Join(dir, "token")
	write(t, secret, "s3cret-one\n")
	write(t, file, "workers: ["+a.url+"]\ngateway: {admin: {token: \"file:"+secret+"\"}}\n")
	s := serveFile(t, file)
	config := func(token string) (int, string) {
		q, err := http.NewRequestWithContext(t.Context(), "GET", s.admin+"/config", nil)
		if err != nil {
			t.Fatal(err)
		}
		q.Header.Set("Authorization", "Bearer "+token)
		r, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		return r.StatusCode, string(body)
	}
	status, body := config("s3cret-one")
	if status != http.StatusOK || strings.Contains(body, "s3cret") || !strings.Contains(body, "file:"+secret) {
		t.Errorf("/config: %d %s", status, body)
	}
	write(t, secret, "s3cret-two\n")
	s.stderr.await(t, `msg="configuration reloaded"`)
	if status, _ := config("s3cret-one"); status != http.StatusUnauthorized {
		t.Errorf("the old token gave %d", status)
	}
	if status, _ := config("s3cret-two"); status != http.StatusOK {
		t.Errorf("the new token gave %d", status)
	}
	s.stop()
	if strings.Contains(s.stderr.String(), "s3cret") {
		t.Errorf("the log shows a secret:\n%s", s.stderr)
	}
}

// Callers' keys, by files of their hashes, and settings of models change live.
func TestReloadOfKeysAndModels(t *testing.T) {
	a := newGatedWorker(t)
	a.release()
	dir := t.TempDir()
	file := filepath.Join(dir, "rhizome.yaml")
	write(t, file, "workers: ["+a.url+"]\n")
	s := serveFile(t, file)
	s.awaitAdmin(t, "/workers", `"m"`)
	if r, body := s.ask(t, "/v1/completions", `{"model":"alias","stream":true,"prompt":"hi"}`); r.StatusCode != http.StatusNotFound {
		t.Errorf("an unknown model gave %s: %s", r.Status, body)
	}
	write(t, file, "workers: ["+a.url+"]\ngateway: {models: {alias: {to: [{model: m}]}}}\n")
	s.stderr.await(t, `msg="configuration reloaded"`)
	if r, body := s.ask(t, "/v1/completions", `{"model":"alias","stream":true,"prompt":"hi"}`); r.StatusCode != http.StatusOK {
		t.Errorf("its alias gave %s: %s", r.Status, body)
	}
	write(t, filepath.Join(dir, "hash"), fmt.Sprintf("%x\n", sha256.Sum256([]byte("hunter2"))))
	write(t, file, "workers: ["+a.url+"]\ngateway: {keys: [{name: k, sha256: \"file:"+filepath.Join(dir, "hash")+"\"}]}\n")
	s.awaitAdmin(t, "/config", `"gateway.keys[0].name"`)
	if r, _ := s.ask(t, "/v1/completions", `{"model":"m","stream":true,"prompt":"hi"}`); r.StatusCode != http.StatusUnauthorized {
		t.Errorf("without a key: %s", r.Status)
	}
}
