package gateway_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rhizome-router/rhizome/fleet"
	"github.com/rhizome-router/rhizome/gateway"
	"github.com/rhizome-router/rhizome/internal/testkit"
	"github.com/rhizome-router/rhizome/route"
)

const tooLong = `{"object":"error","message":"maximum context length is 4096 tokens","code":400}`

// touchy answers by what a prompt says: 400 to one that is too long, 500 to
// poison, and 200 to all else.
func touchy(t testing.TB) *testkit.Worker {
	w := testkit.NewWorker(t)
	w.Choose(func(r testkit.Request) testkit.Script {
		switch {
		case strings.Contains(r.Body, "too long"):
			return testkit.Script{testkit.Send(testkit.JSON(400, tooLong))}
		case strings.Contains(r.Body, "poison"):
			return testkit.Script{testkit.Send(testkit.JSON(500, `{"detail":"CUDA error"}`))}
		}
		return testkit.Script{testkit.Send(testkit.JSON(200, "{}"))}
	})
	return w
}

func says(text string) string {
	return fmt.Sprintf(`{"model":"m","max_tokens":99999,"messages":[{"role":"user","content":%q}]}`, text)
}

// TestBR01_CallersFaultsOpenNothing: refusals of a caller's own making are
// neutral wherever they come, and a dying worker does not hide behind them.
func TestBR01_CallersFaultsOpenNothing(t *testing.T) {
	a, b := touchy(t), touchy(t)
	h := openHouse(t, houseConfig{gateway: gateway.Config{Keys: keysOf("x", "y")}}, a, b)
	for range 10 { // at each
		for _, w := range []*testkit.Worker{a, b} {
			if got := h.ask(chatPath, says("too long"), as("x", w.URL())...); got.status != 400 || got.body != tooLong {
				t.Fatalf("the refusal became %+v", got)
			}
		}
	}
	if g := h.grades(); g != "fit fit" {
		t.Errorf("after 20 refusals the workers are %s", g)
	}
	if got := h.ask(chatPath, says("hello"), as("x", "")...); got.status != 200 {
		t.Errorf("a valid request got %+v", got)
	}

	// Half open, a refusal gives the place of the trial back and changes nothing.
	circuit := h.member(0).Circuit
	for i := range 20 {
		circuit.Failed(h.now.Now(), false, fleet.Cause{Request: uint64(i), Caller: uint64(i)})
	}
	if g := h.grades(); g != "suspect fit" {
		t.Fatalf("after 20 failures the workers are %s", g)
	}
	h.now.Advance(time.Minute)
	for range 3 {
		if got := h.ask(chatPath, says("too long"), as("x", a.URL())...); got.status != 400 {
			t.Errorf("the trial got %+v", got)
		}
		if g := h.grades(); g != "fit fit" {
			t.Errorf("a refused trial left the workers %s", g)
		}
	}
	h.ask(chatPath, says("poison"), as("x", a.URL())...)
	if g := h.grades(); g != "suspect fit" {
		t.Errorf("the refusals closed the circuit: a failed trial left the workers %s", g)
	}

	// Between failures they are no successes.
	for i := range 8 {
		h.ask(chatPath, says(fmt.Sprint("poison ", i)), as([]string{"x", "y"}[i%2], b.URL())...)
		h.ask(chatPath, says("too long"), as("x", b.URL())...)
	}
	if g := h.grades(); g != "suspect suspect" {
		t.Errorf("failures with refusals between them left the workers %s", g)
	}
	// All are out: the least bad is asked all the same.
	if got := h.ask(chatPath, says("hello"), as("y", "")...); got.status != 200 {
		t.Errorf("with all circuits open a valid request got %+v", got)
	}
}

// TestBR01_OneClientsPoisonOpensNothing: what one client sends fails on every
// worker, the same again and again and then always another; the others are
// served as before.
func TestBR01_OneClientsPoisonOpensNothing(t *testing.T) {
	for name, poison := range map[string]func(i int) string{
		"the same":       func(int) string { return says("poison") },
		"always another": func(i int) string { return says(fmt.Sprint("poison ", i)) },
	} {
		workers := []*testkit.Worker{touchy(t), touchy(t), touchy(t)}
		h := openHouse(t, houseConfig{gateway: gateway.Config{Keys: keysOf("good", "bad")}}, workers...)
		for _, w := range workers { // whom the good caller used before
			h.ask(chatPath, says("hello"), as("good", w.URL())...)
		}
		for i := range 30 {
			before := workers[0].Count() + workers[1].Count() + workers[2].Count()
			got := h.ask(chatPath, poison(i), as("bad", workers[i%3].URL())...)
			if n := workers[0].Count() + workers[1].Count() + workers[2].Count() - before; got.status != 500 || n != 1 {
				t.Fatalf("%s: poison got %+v after %d attempts", name, got, n)
			}
		}
		if g := h.grades(); g != "fit fit fit" {
			t.Errorf("%s: the workers are %s", name, g)
		}
		if got := h.ask(chatPath, says("hello"), as("good", "")...); got.status != 200 {
			t.Errorf("%s: the other caller got %+v", name, got)
		}
	}
}

// TestBR02_ManyCancelsLeaveTheWorkerWell: twenty clients leave at each stage of
// a request, the upload included; the worker is as welcome as before.
func TestBR02_ManyCancelsLeaveTheWorkerWell(t *testing.T) {
	silent := testkit.Script{testkit.Stall()}
	begun := testkit.Script{testkit.Send(testkit.SSEHead(), testkit.Chunk("data: {}\n\n")), testkit.Stall()}
	w := testkit.NewWorker(t)
	h := openHouse(t, houseConfig{gateway: gateway.Config{ReplayBytes: 64 << 10}}, w)
	const clients = 20
	for stage, script := range map[string]testkit.Script{"before the head": silent, "after the first event": begun} {
		for range clients {
			w.Add(script)
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan reply, 1)
			go func() { done <- h.askWith(ctx, chatPath, askedStream) }()
			gone := w.Next(t).PeerGone
			cancel()
			<-gone
			if got := <-done; got.err == nil {
				t.Fatalf("%s: %+v", stage, got)
			}
		}
	}
	for i := range clients { // in the middle of the upload, once a worker was chosen for what came so far
		read, write := io.Pipe()
		ctx, cancel := context.WithCancel(t.Context())
		req, err := http.NewRequestWithContext(ctx, "POST", h.url+chatPath, read)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() {
			resp, err := h.client.Do(req)
			if err == nil {
				resp.Body.Close()
			}
			done <- err
		}()
		io.WriteString(write, `{"model":"m","stream":true,"x":"`+strings.Repeat("x", 200<<10))
		testkit.Until(t, "the request is placed", func() bool { return h.router.Stats().Requests == uint64(2*clients+i+1) })
		cancel()
		write.CloseWithError(context.Canceled) // a plain end could come before the leave, and the request were whole
		if <-done == nil {
			t.Error("a client that left got an answer")
		}
	}
	testkit.Until(t, "all count as given up by their clients", func() bool {
		return testkit.Metric(t, h.metrics(), "rhizome_gateway_requests_total", `ending="client_gone"`) == 3*clients
	})
	m := h.metrics()
	if n := testkit.Metric(t, m, "rhizome_gateway_upstream_failures_total") + testkit.Metric(t, m, "rhizome_gateway_retries_total"); n != 0 {
		t.Errorf("%v failures and retries", n)
	}
	if g := h.grades(); g != "fit" || h.member(0).Circuit.Opened() != 0 {
		t.Errorf("the worker is %s", g)
	}
	w.Always(testkit.Send(testkit.JSON(200, "{}")))
	if got := h.ask(chatPath, asked); got.status != 200 {
		t.Errorf("then a plain request got %+v", got)
	}
}

// TestBR02_TheRoutersLimitIsNoCancel: what the router cuts for its own limit
// counts as the worker's.
func TestBR02_TheRoutersLimitIsNoCancel(t *testing.T) {
	w := testkit.NewWorker(t)
	w.Always(testkit.Stall())
	h := openHouse(t, houseConfig{gateway: gateway.Config{FirstByteTimeout: 20 * time.Millisecond, Keys: keysOf("x", "y")}}, w)
	for i := range 6 {
		if got := h.ask(chatPath, strings.Replace(askedStream, "hi", fmt.Sprint(i), 1), as([]string{"x", "y"}[i%2], "")...); got.status != 504 {
			t.Errorf("got %+v", got)
		}
	}
	m := h.metrics()
	if n := testkit.Metric(t, m, "rhizome_gateway_requests_total", `ending="client_gone"`); n != 0 {
		t.Errorf("%v requests count as given up", n)
	}
	if n := testkit.Metric(t, m, "rhizome_gateway_upstream_failures_total", `kind="timeout"`); n != 6 || h.grades() != "suspect" {
		t.Errorf("%v time-outs, the worker is %s", n, h.grades())
	}
}

// TestBR04_AllBusyIsNotAllGone: when no worker answers its probes, all of them
// being busy at the same moment, requests go on to the least bad.
func TestBR04_AllBusyIsNotAllGone(t *testing.T) {
	workers := []*testkit.Worker{touchy(t), touchy(t), touchy(t), touchy(t)}
	h := openHouse(t, houseConfig{}, workers...)
	for i := range workers {
		h.member(i).SetHealthy(false)
	}
	for i := range 8 {
		if got := h.ask(chatPath, says(fmt.Sprint(i))); got.status != 200 {
			t.Errorf("got %+v", got)
		}
	}
	h.member(2).SetHealthy(true) // the first that has time again gets the next ones
	before := workers[2].Count()
	for i := range 8 {
		h.ask(chatPath, says(fmt.Sprint("then ", i)))
	}
	if n := workers[2].Count() - before; n != 8 {
		t.Errorf("the one that answers got %d of 8", n)
	}
}

// TestBR04_AGoodProbeIsNotEnough: a worker that answers every probe and no
// request is left alone after some, by what became of them.
func TestBR04_AGoodProbeIsNotEnough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := testkit.NewNet()
		mute, well := testkit.NewWorkerOn(t, mem.Listen("w0:80")), testkit.NewWorkerOn(t, mem.Listen("w1:80"))
		mute.Always(testkit.Stall())
		well.Always(testkit.Send(testkit.SSE("{}", "[DONE]")))
		h := openHouse(t, houseConfig{mem: mem, policy: route.RoundRobin, gateway: gateway.Config{FirstByteTimeout: 2 * time.Second, Keys: keysOf("x", "y")}}, mute, well)
		late := 0
		for i := range 30 {
			body := strings.Replace(askedStream, "hi", fmt.Sprint(i), 1)
			if got := h.ask(chatPath, body, as([]string{"x", "y"}[i/2%2], "")...); got.status == 504 {
				late++
			} else if got.status != 200 {
				t.Errorf("got %+v", got)
			}
		}
		if g := h.grades(); g != "suspect fit" || !h.member(0).Healthy() || late > 5 {
			t.Errorf("the workers are %s after %d requests that came to nothing", g, late)
		}
	})
}
