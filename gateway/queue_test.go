package gateway

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rhizome-router/rhizome/engine"
	"github.com/rhizome-router/rhizome/prompt"
	"github.com/rhizome-router/rhizome/route"
)

// saturated is a gateway all of whose workers are busy for half a minute, until
// what keeps them so is released.
type saturated struct {
	g      *Gateway
	router *route.Router
	fleet  *quietFleet
	busy   []*route.Decision
	sent   int // requests that workers got

	serving sync.WaitGroup
}

func newSaturated(t *testing.T, queue route.QueueConfig) *saturated {
	t.Helper()
	s := new(saturated)
	s.g, s.fleet, s.router = newAsked(t, Config{})
	s.g.do = func(_ *engine.Worker, r *http.Request) (*http.Response, error) {
		s.sent++
		r.Body.Close()
		return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"application/json"}}, ContentLength: 2, Body: io.NopCloser(strings.NewReader("{}"))}, nil
	}
	for range s.fleet.members {
		d, err := s.router.Decide(route.Query{Prompt: &prompt.Request{Model: "m", Stream: true, N: 1, Prompts: 1, Tokens: make([]uint32, 200_000)}})
		if err != nil {
			t.Fatal(err)
		}
		s.busy = append(s.busy, d)
	}
	cfg := route.DefaultConfig()
	cfg.Queue = queue
	s.router.Reconfigure(cfg)
	return s
}

// post sends a request that nobody waits for.
func (s *saturated) post(ctx context.Context, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(ctx, "POST", path, strings.NewReader(plainBody))
	r.Header.Set("Content-Type", "application/json")
	s.serving.Go(func() {
		defer func() {
			if e := recover(); e != nil && e != http.ErrAbortHandler {
				panic(e)
			}
		}()
		s.g.ServeHTTP(w, r)
	})
	synctest.Wait()
	return w
}

// end releases all, and sees that nothing is left behind.
func (s *saturated) end(t *testing.T) {
	t.Helper()
	for _, d := range s.busy {
		s.router.Done(d, route.Outcome{Result: route.Cancelled})
	}
	s.serving.Wait()
	s.g.Close()
	if n, q := s.fleet.inFlight(), s.router.QueueStats(); n != 0 || q.Waiting != 0 {
		t.Errorf("%d in flight, %d waiting at the end", n, q.Waiting)
	}
	if n := s.g.buffered.Load(); n != 0 {
		t.Errorf("%d bytes of bodies are still accounted for", n)
	}
}

// refused sees that w is a refusal of that status and code, with advice.
func refused(t *testing.T, w *httptest.ResponseRecorder, status int, code string) {
	t.Helper()
	var body struct {
		Error struct{ Type, Code, Message string }
	}
	err := json.Unmarshal(w.Body.Bytes(), &body)
	after, _ := strconv.Atoi(w.Header().Get("Retry-After"))
	if err != nil || w.Code != status || body.Error.Code != code || body.Error.Message == "" || after < 1 || after > 60 {
		t.Errorf("want %d %s, got %d %s, retry after %q", status, code, w.Code, w.Body, w.Header().Get("Retry-After"))
	}
}

func TestQueueWaitsForAWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSaturated(t, route.DefaultQueue())
		w := s.post(t.Context(), chat)
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if s.sent != 0 || s.router.QueueStats().Waiting != 1 {
			t.Fatalf("%d sent, %+v", s.sent, s.router.QueueStats())
		}
		s.router.Done(s.busy[1], route.Outcome{Result: route.Cancelled})
		s.serving.Wait()
		if w.Code != 200 || w.Body.String() != "{}" || w.Header().Get(headerWorker) != s.busy[1].Target.String() {
			t.Errorf("got %d %s from %s", w.Code, w.Body, w.Header().Get(headerWorker))
		}
		if e, ok := s.router.Explain(w.Header().Get(headerRequestID)); !ok || e.WaitedMillis != 3000 {
			t.Errorf("explained with a wait of %v ms", e.WaitedMillis)
		}
		s.end(t)
	})
}

func TestQueueRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := route.DefaultQueue()
		limits.MaxRequests = 2
		s := newSaturated(t, limits)
		first, second := s.post(t.Context(), chat), s.post(t.Context(), "/v1/messages")
		full := s.post(t.Context(), chat)
		refused(t, full, 429, "queue_full")
		if strings.Contains(full.Body.String(), "127.0.0.1") {
			t.Error("a client is told of workers")
		}
		time.Sleep(limits.MaxWait)
		synctest.Wait()
		refused(t, first, 429, "queue_timeout")
		if !strings.Contains(second.Body.String(), `"rate_limit_error"`) || second.Code != 429 {
			t.Errorf("a client of the Messages API got %d %s", second.Code, second.Body)
		}
		s.end(t)
		if s.sent != 0 {
			t.Errorf("%d were sent", s.sent)
		}
	})
}

// A client that goes away leaves at once, also when a worker is found for it in
// that very moment.
func TestQueueForgetsClientsThatLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSaturated(t, route.DefaultQueue())
		ctx, cancel := context.WithCancel(t.Context())
		s.post(ctx, chat)
		cancel()
		s.serving.Wait()
		if q := s.router.QueueStats(); q.Left != 1 || q.Waiting != 0 {
			t.Errorf("%+v", q)
		}
		ctx, cancel = context.WithCancel(t.Context())
		s.post(ctx, chat)
		cancel()
		s.router.Done(s.busy[0], route.Outcome{Result: route.Cancelled})
		s.end(t)
	})
}

// A gateway that drains refuses those that wait, and lets nobody wait any more.
func TestQueueEndsWithTheGateway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSaturated(t, route.DefaultQueue())
		w := s.post(t.Context(), chat)
		s.g.Drain()
		s.serving.Wait()
		refused(t, w, 503, "shutting_down")
		if late := s.post(t.Context(), chat); late.Code != 200 {
			t.Errorf("a late request got %d %s", late.Code, late.Body)
		}
		s.end(t)
	})
}

// The queue counts the weight of a caller's key.
func TestQueueKnowsTheCallersWeight(t *testing.T) {
	bad := Config{Keys: []KeyConfig{{Name: "a", SHA256: hashOf("key-a"), Weight: -1}}}
	if err := bad.Validate(); err == nil {
		t.Error("a weight below 0 is good")
	}
	r := keyed(t)
	g, err := r.g.With(Config{Keys: []KeyConfig{{Name: "a", SHA256: hashOf("key-a"), Weight: 2.5}}})
	if err != nil {
		t.Fatal(err)
	}
	*r.g = *g
	if a := r.post(chat, plainBody, "Authorization: Bearer key-a"); a.status != 200 || r.picker.queries[0].Weight != 2.5 {
		t.Errorf("%+v, query %+v", a, r.picker.queries)
	}
}
