package gateway

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/rhizome-router/rhizome/internal/testkit"
	"github.com/rhizome-router/rhizome/kv"
)

// refusing returns a worker that nothing listens for any more.
func refusing(t testing.TB) *testkit.Worker {
	w := testkit.NewWorker(t)
	w.Close()
	return w
}

func TestRetryOnAnotherWorker(t *testing.T) {
	ok := testkit.Send(testkit.JSON(200, `{"ok":true}`))
	fin, rst := testkit.NewWorker(t), testkit.NewWorker(t)
	fin.Always(testkit.FIN())
	rst.Always(testkit.RST())
	for name, first := range map[string]*testkit.Worker{"fin": fin, "rst": rst, "refused": refusing(t)} {
		t.Run(name, func(t *testing.T) {
			second, third := testkit.NewWorker(t, testkit.Script{ok}), testkit.NewWorker(t, testkit.Script{ok})
			r := newRig(t, Config{}, first, second, third)
			// An idempotency key must not make the transport repeat by itself.
			a := r.post(chat, plainBody, "Idempotency-Key: k1")
			if a.err != nil || a.status != 200 || a.body != `{"ok":true}` {
				t.Errorf("got %+v", a)
			}
			if first != r.workers[0] || second.Count() != 1 || third.Count() != 0 {
				t.Errorf("second worker asked %d times, third %d", second.Count(), third.Count())
			}
			if name != "refused" && first.Count() != 1 {
				t.Errorf("first worker asked %d times", first.Count())
			}
			r.stop()
			if res := r.picker.results(); res != "failed completed" {
				t.Errorf("results %q", res)
			}
			q := r.picker.queries
			if len(q) != 2 || len(q[1].Exclude) != 1 || q[1].Exclude[0] != (kv.Target{Worker: r.picker.workers[0].ID, Rank: kv.NoRank}) {
				t.Errorf("queries %+v", q)
			}
			kind := map[string]string{"fin": "reset", "rst": "reset", "refused": "connect"}[name]
			if n := testkit.Metric(t, r.metrics(), "rhizome_gateway_upstream_failures_total", fmt.Sprintf("kind=%q", kind)); n != 1 {
				t.Errorf("%v failures of kind %s", n, kind)
			}
		})
	}
}

func TestRetryHasBounds(t *testing.T) {
	for _, c := range []struct {
		name     string
		workers  int
		attempts int
		answer   int
	}{
		{"no more than MaxAttempts", 5, 3, 502},
		{"no more than there are workers", 2, 2, 502},
		{"nobody at all", 0, 0, 503},
	} {
		t.Run(c.name, func(t *testing.T) {
			var workers []*testkit.Worker
			for range c.workers {
				workers = append(workers, refusing(t))
			}
			r := newRig(t, Config{}, workers...)
			if a := r.post(chat, plainBody); a.status != c.answer {
				t.Errorf("got %+v", a)
			}
			if n := len(r.picker.outcomes); n != c.attempts {
				t.Errorf("%d attempts, want %d", n, c.attempts)
			}
		})
	}
}

func TestRetryBudget(t *testing.T) {
	b := newRetryBudget(0.2)
	for range retryBurst {
		if !b.take() {
			t.Fatal("a fresh budget refuses its burst")
		}
	}
	allowed := 0
	for range 1000 {
		b.add()
		if b.take() {
			allowed++
		}
	}
	if allowed < 198 || allowed > 200 {
		t.Errorf("%d retries for 1000 requests at a share of 0.2", allowed)
	}

	r := newRig(t, Config{}, refusing(t), testkit.NewWorker(t))
	r.workers[1].Always(testkit.Send(testkit.JSON(200, "{}")))
	served := 0
	for range 100 {
		if a := r.post(chat, plainBody); a.status == 200 {
			served++
		}
	}
	if served < retryBurst+18 || served > retryBurst+20 {
		t.Errorf("%d of 100 requests were retried, want the burst of %d and a fifth of the rest", served, retryBurst)
	}
	if n := testkit.Metric(t, r.metrics(), "rhizome_gateway_retries_denied_total"); int(n) != 100-served {
		t.Errorf("%v retries denied, want %d", n, 100-served)
	}
}

// TestBR65_AWorkerWithoutRoom: one that says when to come again has begun
// nothing, so another is asked; if none takes the request, its own answer is
// given, with all it says.
func TestBR65_AWorkerWithoutRoom(t *testing.T) {
	full := testkit.Send(testkit.JSON(429, `{"detail":"full"}`, "Retry-After: 30", "X-Ratelimit-Reset: 1s"))
	ok := testkit.Send(testkit.JSON(200, "{}"))
	long := testkit.Send(testkit.JSON(503, strings.Repeat(" ", maxKeptBytes+1), "Retry-After: 30"))
	for _, c := range []struct {
		name    string
		scripts []testkit.Step
		status  int
		results string
	}{
		{"another takes it", []testkit.Step{full, ok}, 200, "busy completed"},
		{"nobody takes it", []testkit.Step{full, full}, 429, "busy busy"},
		{"the other is gone", []testkit.Step{full, testkit.RST()}, 429, "busy failed"},
		{"the other fails", []testkit.Step{full, testkit.Send(testkit.JSON(500, "{}"))}, 500, "busy failed"},
		{"nobody else is there", []testkit.Step{full}, 429, "busy"},
		{"its answer is long", []testkit.Step{long, ok}, 503, "busy"},
	} {
		for _, body := range []string{plainBody, streamBody} {
			var workers []*testkit.Worker
			for _, s := range c.scripts {
				workers = append(workers, testkit.NewWorker(t, testkit.Script{s}))
			}
			r := newRig(t, Config{}, workers...)
			a := r.post(chat, body)
			if a.status != c.status || a.err != nil {
				t.Errorf("%s: got %+v", c.name, a)
			}
			if c.status == 429 && (a.body != `{"detail":"full"}` || a.header.Get("Retry-After") != "30" || a.header.Get("X-Ratelimit-Reset") != "1s" || a.header.Get(headerWorker) == "") {
				t.Errorf("%s: the answer became %+v", c.name, a)
			}
			r.stop()
			if res := r.picker.results(); c.name != "the other fails" && body == plainBody && res != c.results || r.picker.outcomes[0].RetryAfter != 30*time.Second {
				t.Errorf("%s: results %q, first %+v", c.name, res, r.picker.outcomes[0])
			}
		}
	}
}

// TestNoRetryOnceTheWorkerSpoke: what was begun is never begun again, and no
// other status code is retried.
func TestNoRetryOnceTheWorkerSpoke(t *testing.T) {
	for answer, want := range map[string]struct {
		status  int
		results string
	}{
		"SSH-2.0-OpenSSH\r\n":               {502, "failed"},
		testkit.Head(101, "Upgrade: x"):     {502, "failed"},
		"HTTP/1.1 099 Odd\r\n\r\n":          {502, "failed"},
		testkit.JSON(500, "{}"):             {500, "failed"},
		testkit.JSON(501, "{}"):             {501, "rejected"},
		testkit.JSON(503, "{}"):             {503, "busy"},
		testkit.JSON(429, "{}"):             {429, "busy"},
		testkit.JSON(400, "{}"):             {400, "rejected"},
		testkit.JSON(422, `{"detail":"x"}`): {422, "rejected"},
	} {
		other := testkit.NewWorker(t)
		r := newRig(t, Config{}, testkit.NewWorker(t, testkit.Script{testkit.Send(answer), testkit.FIN()}), other)
		if a := r.post(chat, plainBody); a.status != want.status || other.Count() != 0 {
			t.Errorf("%q gave %+v and %d retries", answer, a, other.Count())
		}
		r.stop()
		if res := r.picker.results(); res != want.results {
			t.Errorf("%q: results %q, want %q", answer, res, want.results)
		}
	}
}

// TestEveryDecisionIsDoneOnce throws random failures of workers and clients at
// a gateway; the rig's own check then counts decisions, bytes and requests.
func TestEveryDecisionIsDoneOnce(t *testing.T) {
	sends := rapid.SampledFrom([]string{
		"", testkit.JSON(200, "{}"), testkit.SSE("a", "[DONE]"), testkit.SSE("a"), testkit.JSON(500, "{}"), testkit.JSON(429, "{}"),
		"junk\r\n\r\n", testkit.SSEHead(), testkit.Head(200, "Content-Length: 9") + "x",
	})
	rapid.Check(t, func(rt *rapid.T) {
		var plans []testkit.Script
		for range rapid.IntRange(1, 4).Draw(rt, "workers") {
			plan := testkit.Script{testkit.Send(sends.Draw(rt, "sends")), testkit.FIN()}
			if rapid.Bool().Draw(rt, "keep the connection") {
				plan = testkit.Script{testkit.Send(testkit.SSE("a", "[DONE]"))}
			}
			plans = append(plans, plan)
		}
		body := rapid.SampledFrom([]string{plainBody, streamBody, `{"model":"x"}`, "{", ""}).Draw(rt, "body")
		hangUp := rapid.IntRange(0, 3).Draw(rt, "hang up after reads")
		r := memRig(t, Config{}, plans...)
		for range 2 {
			resp, err := r.client.Post(r.url+chat, "application/json", strings.NewReader(body))
			if err != nil {
				continue
			}
			if hangUp > 0 {
				io.ReadFull(resp.Body, make([]byte, hangUp))
			} else {
				io.Copy(io.Discard, resp.Body)
			}
			resp.Body.Close()
		}
		r.check()
		for _, w := range r.workers {
			w.Close()
		}
		if len(r.picker.outcomes)+len(r.picker.open) > 6 {
			rt.Fatalf("%d attempts for 2 requests", len(r.picker.outcomes))
		}
	})
}

// TestBR09_AbortsLeaveNothingBehind cuts connections from the client's side
// at random bytes, also inside the request.
func TestBR09_AbortsLeaveNothingBehind(t *testing.T) {
	r := newRig(t, Config{}, testkit.NewWorker(t))
	r.workers[0].Always(testkit.Send(testkit.SSEHead(), testkit.Chunk("data: x\n\n")), testkit.Stall())
	request := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: r\r\nContent-Length: %d\r\n\r\n%s", chat, len(streamBody), streamBody)
	for i := range 40 {
		c, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(c, request[:min(len(request), i*7)])
		if i*7 >= len(request) {
			io.ReadFull(c, make([]byte, 20)) // hang up inside the response
		}
		c.Close()
	}
	r.stop()
	for _, o := range r.picker.outcomes {
		if o.Result.String() != "cancelled" {
			t.Errorf("a hung-up client is %s", o.Result)
		}
	}
	if n := testkit.Metric(t, r.metrics(), "rhizome_gateway_upstream_failures_total"); n != 0 {
		t.Errorf("%v failures counted against the worker", n)
	}
}
