package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rhizome-router/rhizome/kv"
)

func newWorker(t testing.TB, serve http.HandlerFunc) *Worker {
	t.Helper()
	srv := httptest.NewServer(serve)
	t.Cleanup(srv.Close)
	w, err := NewWorker("c", Spec{URL: srv.URL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return w
}

// What the client sent is what the worker gets, but for the host; what the
// worker answers is what comes back.
func TestDoChangesNothing(t *testing.T) {
	w := newWorker(t, func(rw http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.Header.Get("Accept-Encoding") != "" || r.Header.Get("X-A") != "1" || string(body) != "{ }" || r.URL.RawQuery != "a=%2F" {
			t.Errorf("the worker got %v %q %v", r.URL, body, r.Header)
		}
		rw.Header().Set("Content-Encoding", "gzip") // a lie, to see that nobody unpacks
		http.Redirect(rw, r, "http://elsewhere.invalid/", http.StatusTemporaryRedirect)
	})
	req := httptest.NewRequest("POST", "http://front/v1/chat%2Fx?a=%2F", strings.NewReader("{ }"))
	req.Header.Set("X-A", "1")
	req.Header.Set("Expect", "100-continue")
	resp, err := w.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusTemporaryRedirect || resp.Header.Get("Content-Encoding") != "gzip" {
		t.Errorf("got %v %v", resp.Status, resp.Header)
	}
	if req.URL.Host != "front" || req.Host != "front" {
		t.Errorf("the caller's request was changed: %v, %v", req.URL, req.Host)
	}
}

func TestDoErrors(t *testing.T) {
	hangUp := newWorker(t, func(rw http.ResponseWriter, r *http.Request) { panic(http.ErrAbortHandler) })
	req := func() *http.Request { return httptest.NewRequest("POST", "http://front/x", strings.NewReader("{}")) }
	_, err := hangUp.Do(req())
	if err == nil || errors.Is(err, ErrConnect) || !strings.Contains(err.Error(), hangUp.Spec.URL) {
		t.Errorf("broken after the connect: %v", err)
	}

	for _, scheme := range []string{"http", "https"} {
		gone, err := NewWorker("c", Spec{URL: strings.Replace(hangUp.Spec.URL, "http", scheme, 1)})
		if err != nil {
			t.Fatal(err)
		}
		if scheme == "http" { // a port nobody listens on; with TLS, one that doesn't speak it
			srv := httptest.NewServer(nil)
			srv.Close()
			gone, err = NewWorker("c", Spec{URL: srv.URL})
			if err != nil {
				t.Fatal(err)
			}
		}
		if _, err := gone.Do(req()); !errors.Is(err, ErrConnect) {
			t.Errorf("%s: %v, want ErrConnect", scheme, err)
		}
		gone.Close()
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := hangUp.Do(req().WithContext(ctx)); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestWorkerIdentity(t *testing.T) {
	a, err := NewWorker("c", Spec{URL: "http://H:80/"})
	if err != nil {
		t.Fatal(err)
	}
	b, err := NewWorker("c", Spec{URL: "http://h", ID: "w"})
	if err != nil {
		t.Fatal(err)
	}
	if a.ID != kv.WorkerIDOf("c", "http://h:80") || b.ID != kv.WorkerIDOf("c", "w") {
		t.Errorf("ids %v and %v", a.ID, b.ID)
	}
	if _, err := NewWorker("c", Spec{URL: "h"}); err == nil {
		t.Error("a bad spec makes no worker")
	}
}

func TestModels(t *testing.T) {
	answer, status := "", http.StatusOK
	w := newWorker(t, func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/models" {
			t.Errorf("asked for %s", r.URL)
		}
		rw.WriteHeader(status)
		io.WriteString(rw, answer)
	})
	answer = `{"object":"list","data":[{"id":"org/m","max_model_len":32768,"permission":[{}]},{"id":"lora","parent":"org/m","max_model_len":null}]}`
	got, err := w.Models(t.Context())
	if want := []Model{{"org/m", 32768}, {"lora", 0}}; err != nil || !cmp.Equal(got, want) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
	for bad, want := range map[string]string{
		"{":                                   "unexpected end of JSON",
		`{"data":[{}]}`:                       "without id",
		`{"data":"x"}`:                        "cannot unmarshal",
		strings.Repeat(" ", maxModelsBytes+1): "more than",
		`{"data":[` + strings.Repeat(`{"id":"a"},`, maxModels) + `{"id":"a"}]}`: "at most 4096",
	} {
		answer = bad
		if _, err := w.Models(t.Context()); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), w.Spec.URL) {
			t.Errorf("%.20q: %v, want %q", bad, err, want)
		}
	}
	status = http.StatusServiceUnavailable
	if _, err := w.Models(t.Context()); err == nil || !strings.Contains(err.Error(), "503") {
		t.Errorf("%v", err)
	}
}

// A worker that doesn't answer is given up when the context says so.
func TestModelsTimeout(t *testing.T) {
	stuck := make(chan struct{})
	w := newWorker(t, func(http.ResponseWriter, *http.Request) { <-stuck })
	defer close(stuck)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := w.Models(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
}

// A worker's token goes with every request, whatever the request says, can
// change, and shows nowhere.
func TestToken(t *testing.T) {
	got := make(chan string, 8)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got <- r.Header.Get("Authorization")
		io.WriteString(w, `{"data":[{"id":"m"}]}`)
	}))
	defer server.Close()
	w, err := NewWorker("c", Spec{URL: server.URL, Token: "s3cret"})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if text := fmt.Sprintf("%v %+v %#v", w.Spec, w.Spec, w.Spec); strings.Contains(text, "s3cret") {
		t.Errorf("the spec shows its token: %s", text)
	}
	do := func(want string) {
		t.Helper()
		q := httptest.NewRequest("POST", "/v1/completions", nil)
		q.Header.Set("Authorization", "Bearer caller")
		r, err := w.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, r.Body)
		r.Body.Close()
		if sent := <-got; sent != want || q.Header.Get("Authorization") != "Bearer caller" {
			t.Errorf("the worker got %q, want %q; the request has %q", sent, want, q.Header.Get("Authorization"))
		}
	}
	do("Bearer s3cret")
	if _, err := w.Models(t.Context()); err != nil || <-got != "Bearer s3cret" {
		t.Errorf("a probe went without the token: %v", err)
	}
	w.SetToken("next")
	do("Bearer next")
	w.SetToken("")
	do("Bearer caller")
	if _, err := NewWorker("c", Spec{URL: server.URL, Token: "s3cret\n"}); err == nil || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("a token with a line break: %v", err)
	}
}
