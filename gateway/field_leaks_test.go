package gateway_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/engine"
	"github.com/rhizome-router/rhizome/gateway"
	"github.com/rhizome-router/rhizome/internal/testkit"
)

// TestBR09_NothingLeaksAndNobodyIsFlooded: a thousand requests end in every way
// there is, panics of the handler included. Then all accounts are at zero, and a
// worker that came back with an honest zero gets no more than its part.
func TestBR09_NothingLeaksAndNobodyIsFlooded(t *testing.T) {
	hold := make(chan struct{})
	var held sync.Map // how many streams each worker has, by its place
	var calm atomic.Bool
	var workers []*testkit.Worker
	rnd := clock.Rand(9, "moods")
	var mu sync.Mutex
	for i := range 4 {
		w := testkit.NewWorker(t)
		var count atomic.Int64
		held.Store(i, &count)
		w.Choose(func(testkit.Request) testkit.Script {
			if calm.Load() {
				count.Add(1)
				return testkit.Script{testkit.Send(testkit.SSEHead(), testkit.Chunk("data: {}\n\n")), testkit.Wait(hold),
					testkit.Send(testkit.Chunk("data: [DONE]\n\n"), testkit.LastChunk())}
			}
			mu.Lock()
			defer mu.Unlock()
			return [...]testkit.Script{
				{testkit.Send(testkit.JSON(500, "{}"))}, {testkit.RST()}, {testkit.FIN()}, {testkit.Stall()}, {testkit.Stall()},
				{testkit.Send(testkit.JSON(503, "{}", "Retry-After: 1"))},
				{testkit.Send(testkit.SSEHead(), testkit.Chunk("data: {}\n\n")), testkit.Stall()},
				{testkit.Send(testkit.SSEHead(), testkit.Chunk("data: {}\n\n")), testkit.RST()},
				{testkit.Send(testkit.SSE("{}", "[DONE]"))},
			}[rnd.IntN(9)]
		})
		workers = append(workers, w)
	}
	h := openHouse(t, houseConfig{gateway: gateway.Config{ReplayBytes: 64 << 10}}, workers...)
	var calls atomic.Int64
	h.gateway.SetDo(func(w *engine.Worker, r *http.Request) (*http.Response, error) {
		if n := calls.Add(1); n%50 == 0 && !calm.Load() {
			panic(http.ErrAbortHandler) // of the handler
		}
		return w.Do(r)
	})
	var clients sync.WaitGroup
	atOnce := make(chan struct{}, 32)
	plan := clock.Rand(9, "plan")
	for i := range 1000 {
		after, size, read := time.Duration(plan.IntN(20))*time.Millisecond, plan.IntN(100)<<10, plan.IntN(2) == 0
		if i%10 > 0 {
			size = 0
		}
		atOnce <- struct{}{}
		clients.Go(func() {
			defer func() { <-atOnce }()
			h.abandoned(i, after, size, read)
		})
	}
	clients.Wait()
	testkit.Until(t, "nothing is in flight", func() bool { return testkit.Metric(t, h.metrics(), "rhizome_gateway_in_flight_requests") == 0 })
	h.atRest()

	// One worker restarts; the others' circuits close again in time.
	calm.Store(true)
	h.note()
	if err := h.fleet.SetWorkers(h.specs[:3]); err != nil {
		t.Fatal(err)
	}
	if err := h.fleet.SetWorkers(h.specs); err != nil {
		t.Fatal(err)
	}
	h.admit(3)
	for range 3 { // the others' circuits get their trials, and close
		h.now.Advance(2 * time.Minute)
		for i := range 3 {
			h.member(i).Circuit.Succeeded(h.now.Now(), h.member(i).Circuit.Begin(h.now.Now()), 1)
		}
	}
	var open []*http.Response
	for i := range 100 {
		resp, err := h.client.Post(h.url+chatPath, "application/json", strings.NewReader(strings.Replace(askedStream, "hi", strings.Repeat(fmt.Sprint(i, " words "), 200), 1)))
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, resp)
	}
	for i := range workers {
		n, _ := held.Load(i)
		if got := n.(*atomic.Int64).Load(); got < 12 || got > 38 {
			t.Errorf("worker %d has %d of 100 streams", i, got)
		}
	}
	close(hold)
	for _, resp := range open {
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			t.Error(err)
		}
		resp.Body.Close()
	}
}

// abandoned sends a streaming request of some size, reads its answer or not, and
// leaves after a while, wherever it is then.
func (h *wholeHouse) abandoned(i int, after time.Duration, size int, read bool) {
	ctx, cancel := context.WithTimeout(h.t.Context(), after)
	defer cancel()
	body := fmt.Sprintf(`{"model":"m","stream":true,"messages":[{"role":"user","content":"%d %s"}]}`, i, strings.Repeat("x", size))
	req, err := http.NewRequestWithContext(ctx, "POST", h.url+chatPath, strings.NewReader(body))
	if err != nil {
		h.t.Error(err)
		return
	}
	if resp, err := h.client.Do(req); err == nil {
		if read {
			_, _ = io.Copy(io.Discard, resp.Body) // it may break at any point
		}
		resp.Body.Close()
	}
}

// TestBR30_EveryRequestEnds: workers come and go ten times a second, one takes
// connections and says nothing, to another nobody gets a connection. Every one
// of a thousand requests ends within the limits that there are, and with the
// bubble all that was started for them.
func TestBR30_EveryRequestEnds(t *testing.T) {
	const firstByte = 2 * time.Second
	synctest.Test(t, func(t *testing.T) {
		mem := testkit.NewNet()
		var workers []*testkit.Worker
		for i := range 4 {
			w := testkit.NewWorkerOn(t, mem.Listen(fmt.Sprintf("w%d:80", i)))
			w.Always(testkit.Send(testkit.SSE("{}", "[DONE]")))
			if i == 3 {
				w.Always(testkit.Stall())
			}
			workers = append(workers, w)
		}
		h := openHouse(t, houseConfig{mem: mem, gateway: gateway.Config{FirstByteTimeout: firstByte}}, workers...)
		h.specs = append(h.specs, engine.Spec{URL: "http://hole:80", Engine: engine.VLLM})
		stop := make(chan struct{})
		var changes sync.WaitGroup
		changes.Go(func() {
			tick := time.NewTicker(100 * time.Millisecond)
			defer tick.Stop()
			for n := 0; ; n++ {
				if err := h.fleet.SetWorkers(append(h.specs[n%3:n%3+1:n%3+1], h.specs[3:]...)); err != nil {
					t.Error(err)
				}
				for i := range h.fleet.View().Members {
					h.admit(i)
				}
				select {
				case <-tick.C:
				case <-stop:
					return
				}
			}
		})
		var clients sync.WaitGroup
		var served, refused atomic.Int64
		next := make(chan int)
		for range 64 {
			clients.Go(func() {
				for i := range next {
					begun := time.Now()
					got := h.ask(chatPath, strings.Replace(askedStream, "hi", fmt.Sprint(i), 1))
					took := time.Since(begun)
					switch {
					case got.status == 200 && got.err == nil:
						served.Add(1)
					case got.status >= 500 && strings.Contains(got.body, `"code"`) && got.err == nil:
						refused.Add(1)
					default:
						t.Errorf("request %d ended as %+v", i, got)
					}
					if most := 3*connectTimeout + firstByte; took > most {
						t.Errorf("request %d took %v, more than %v", i, took, most)
					}
				}
			})
		}
		for i := range 1000 {
			next <- i
		}
		close(next)
		clients.Wait()
		close(stop)
		changes.Wait()
		if served.Load()+refused.Load() != 1000 || served.Load() < 800 {
			t.Errorf("%d were served, %d refused", served.Load(), refused.Load())
		}
		t.Logf("%d of 1000 served, %d got a reason", served.Load(), refused.Load())
	})
}
