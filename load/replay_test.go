package load

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/workload"
)

func instant(n int) clock.Instant { return clock.Instant(n) }

// spaced returns n requests a second apart, whose prompts share the first block
// and which ask for 5 tokens.
func spaced(n int) []workload.Request {
	reqs := make([]workload.Request, n)
	for i := range reqs {
		reqs[i] = workload.Request{
			At:          time.Duration(i) * time.Second,
			InputTokens: 1000, OutputTokens: 5, HashIDs: []uint64{0, uint64(i + 1)},
		}
	}
	return reqs
}

func near(t *testing.T, what string, got Figure, want float64) {
	t.Helper()
	if math.Abs(float64(got)-want) > 0.002*math.Abs(want)+1e-9 {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// In virtual time the fakes' delays are exact, so every figure is known.
func TestReplayMeasuresKnownTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := newMemoryNet()
		defer net.close()
		fast := &fakeWorker{ttft: 10 * time.Millisecond, tpot: 2 * time.Millisecond, cached: 250}
		slow := &fakeWorker{ttft: 40 * time.Millisecond, tpot: 3 * time.Millisecond, cached: -1}
		net.serve("fast", fast)
		net.serve("slow", slow)
		var progress atomic.Int64
		report, err := Replay(t.Context(), ReplayConfig{
			Trace: spaced(20), TraceName: "spaced", Speed: 10, Seeds: []uint64{1, 2},
			Targets:   []Target{{"ours", "http://fast/"}, {"peer", "http://slow/v1"}},
			Transport: net.transport(), Progress: func(p Progress) { progress.Store(int64(p.Total)) },
		})
		if err != nil {
			t.Fatal(err)
		}
		near(t, "our mean TTFT", report.Ours.TTFTMeanMillis, 100)
		near(t, "our p99 TTFT", report.Ours.TTFTP99Millis, 100)
		near(t, "our TPOT", report.Ours.TPOTMeanMillis, 20)
		near(t, "our E2E", report.Ours.E2EMeanMillis, 180)
		near(t, "our hit share", report.Ours.HitShare, 0.25)
		near(t, "their mean TTFT", report.Against["peer"].TTFTMeanMillis, 400)
		near(t, "their hit share", report.Against["peer"].HitShare, 0)
		near(t, "ratio", report.TTFTRatio["peer"], 0.25)
		near(t, "bound", report.InfiniteCacheShare, 19.0*512/20/1000)
		near(t, "lag", report.SendLagMaxMillis, 0)
		if report.Ours.Requests != 40 || report.Ours.Errors != 0 || report.Ours.OutputTokens != 200 || len(report.PerSeed) != 2 || progress.Load() != 80 {
			t.Errorf("counts: %+v, total %d", report.Ours, progress.Load())
		}
		if report.Ours.Utilisation.Known() || report.Model != "fake-7b" {
			t.Errorf("utilisation %v, model %q", report.Ours.Utilisation, report.Model)
		}
		containsAll(t, strings.Join(report.Notes, "\n"), "peer: no answer told cached tokens", "ours: no answer carried x-emulator-speedup")

		ours, theirs := fast.requests(), slow.requests()
		for i := range ours {
			if ours[i].Body != theirs[i].Body || theirs[i].At.Sub(ours[i].At) != maxPhase {
				t.Fatalf("request %d differs between targets, or its time by other than their phase", i)
			}
		}
		if ours[0].Body == ours[20].Body {
			t.Error("the second seed sends the first one's words, which are in the caches")
		}
		if a, b := ours[0].Messages[0].Content, ours[1].Messages[0].Content; a[:workload.BlockBytes] != b[:workload.BlockBytes] || a == b || len(a) != 4000 {
			t.Error("prompts do not share their first block")
		}
		if took := ours[19].At.Sub(ours[0].At); took < 1800*time.Millisecond || took > 2200*time.Millisecond {
			t.Errorf("19 s of trace at speed 10 took %v", took)
		}
	})
}

func TestReplayHoldsTurns(t *testing.T) {
	turns := []workload.Request{
		{InputTokens: 600, OutputTokens: 1, HashIDs: []uint64{1, 90}},
		{At: time.Second, InputTokens: 1100, OutputTokens: 1, HashIDs: []uint64{1, 2, 91}},
		{At: time.Second + 1, InputTokens: 600, OutputTokens: 1, HashIDs: []uint64{8, 92}},
	}
	for _, hold := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			net := newMemoryNet()
			defer net.close()
			w := &fakeWorker{ttft: time.Minute}
			net.serve("w", w)
			if _, err := Replay(t.Context(), ReplayConfig{
				Trace: turns, Targets: []Target{{"ours", "http://w"}}, Hold: hold, Transport: net.transport(), Model: "m",
			}); err != nil {
				t.Fatal(err)
			}
			last := w.requests()[2]
			if isSecondTurn := len(last.Messages[0].Content) == 4400; isSecondTurn != hold {
				t.Errorf("hold %v: second turn last: %v", hold, isSecondTurn)
			}
			if waited := last.At.Sub(w.requests()[0].At) >= time.Minute; waited != hold {
				t.Errorf("hold %v: waited for the first turn: %v", hold, waited)
			}
		})
	}
}

func TestReplayNamesErrors(t *testing.T) {
	var n atomic.Int64
	w := &fakeWorker{cached: -1}
	w.answer = func(rw http.ResponseWriter, r *http.Request, a *asked) bool {
		switch n.Add(1) {
		case 1:
			http.Error(rw, "busy", http.StatusServiceUnavailable)
		case 2:
			fmt.Fprint(rw, "data: {\"choices\":[{\"text\":\"a\"}]}\n\n")
		case 3:
			fmt.Fprint(rw, "data: {\"error\":{\"message\":\"died\"}}\n\ndata: [DONE]\n\n")
		case 4:
			panic(http.ErrAbortHandler)
		case 5:
			<-r.Context().Done()
		default:
			return false
		}
		return true
	}
	srv := httptest.NewServer(w)
	defer srv.Close()
	report, err := Replay(t.Context(), ReplayConfig{
		Trace: spaced(7), Speed: 100, Targets: []Target{{"ours", srv.URL}}, Model: "m", Timeout: 300 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]int{"status_503": 1, KindBroken: 1, KindStream: 1, KindConnect: 1, KindTimeout: 1}
	if d := cmp.Diff(want, report.Ours.ErrorKinds); d != "" || report.Ours.Requests != 7 || report.Ours.Errors != 5 {
		t.Errorf("%d of %d failed: %s", report.Ours.Errors, report.Ours.Requests, d)
	}
}

func TestReplayOverrun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := newMemoryNet()
		defer net.close()
		net.serve("w", &fakeWorker{ttft: time.Hour / 10})
		report, err := Replay(t.Context(), ReplayConfig{
			Trace: spaced(5), Targets: []Target{{"ours", "http://w"}}, Transport: net.transport(), Model: "m", MaxInFlight: 2, MaxOutput: 1,
		})
		if err != nil {
			t.Fatal(err)
		}
		if got := report.Ours.ErrorKinds; got[KindOverrun] != 3 || got[KindCancelled] != 0 || got[KindTimeout] != 0 {
			t.Errorf("errors %v, want 3 overruns", got)
		}
	})
}

func TestReplayUtilisationAndTokenPrompts(t *testing.T) {
	var n atomic.Int64
	w := &fakeWorker{cached: 0, headers: map[string]string{"x-emulator-speedup": "1000"}}
	w.answer = func(rw http.ResponseWriter, _ *http.Request, _ *asked) bool {
		k := n.Add(1)
		// Worker a is busy half of the time, b a quarter.
		worker, busy := "a", 500*k
		if k%2 == 0 {
			worker, busy = "b", 250*k
		}
		rw.Header().Set("x-emulator-worker", worker)
		rw.Header().Set("x-emulator-clock-micros", fmt.Sprint(7_000_000+1000*k))
		rw.Header().Set("x-emulator-busy-micros", fmt.Sprint(busy))
		return false
	}
	srv := httptest.NewServer(w)
	defer srv.Close()
	report, err := Replay(t.Context(), ReplayConfig{
		Trace: spaced(6), Speed: 1000, Targets: []Target{{"ours", srv.URL}}, TokenPrompts: true, MaxOutput: 2,
	})
	if err != nil {
		t.Fatal(err)
	}
	near(t, "utilisation", report.Ours.Utilisation, 0.375)
	if report.Ours.Workers != 2 || len(report.Notes) != 0 {
		t.Errorf("%d workers, notes %q", report.Ours.Workers, report.Notes)
	}
	if a := w.requests()[0]; a.Path != "/v1/completions" || len(a.Prompt) != 1000 || a.Max != 2 || !a.Stream {
		t.Errorf("asked %s with %d ids for %d tokens", a.Path, len(a.Prompt), a.Max)
	}
}

func TestReplayRefusesAnotherSpeedup(t *testing.T) {
	srv := httptest.NewServer(&fakeWorker{headers: map[string]string{"x-emulator-worker": "w3", "x-emulator-speedup": "5"}})
	defer srv.Close()
	_, err := Replay(t.Context(), ReplayConfig{Trace: spaced(3), Speed: 100, Targets: []Target{{"ours", srv.URL}}})
	if err == nil {
		t.Fatal("no error")
	}
	containsAll(t, err.Error(), "worker w3 behind ours", "speedup 5", "speed 100")
}

func TestReplayEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	w := &fakeWorker{}
	w.answer = func(_ http.ResponseWriter, r *http.Request, _ *asked) bool {
		cancel()
		<-r.Context().Done()
		return true
	}
	srv := httptest.NewServer(w)
	defer srv.Close()
	if _, err := Replay(ctx, ReplayConfig{Trace: spaced(1000), Targets: []Target{{"ours", srv.URL}}, Model: "m"}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestReplayConfigErrors(t *testing.T) {
	for says, cfg := range map[string]ReplayConfig{
		"the trace is empty": {},
		"no target":          {Trace: spaced(1)},
		"speed is -1":        {Trace: spaced(1), Speed: -1},
		"is not a base URL":  {Trace: spaced(1), Targets: []Target{{"ours", "localhost:8080"}}},
		"names must be":      {Trace: spaced(1), Targets: []Target{{"a", "http://x"}, {"a", "http://y"}}},
	} {
		if _, err := Replay(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want …%s…", err, says)
		}
	}
}

// A body's buffer must not be reused while a transport still reads it.
func TestBodyGoesBackAfterItsLastReader(t *testing.T) {
	var pool bodies
	b := pool.get()
	b.buf = append(b.buf, "hello"...)
	req, err := b.request("http://x/")
	if err != nil {
		t.Fatal(err)
	}
	again, _ := req.GetBody()
	b.release()
	if b.refs.Load() != 2 {
		t.Fatalf("%d holders, want the two readers", b.refs.Load())
	}
	first, _ := io.ReadAll(req.Body)
	req.Body.Close()
	req.Body.Close() // the transport may close twice
	second, _ := io.ReadAll(again)
	if string(first) != "hello" || string(second) != "hello" || b.refs.Load() != 1 {
		t.Errorf("read %q and %q, %d holders", first, second, b.refs.Load())
	}
	again.Close()
	if b.refs.Load() != 0 {
		t.Errorf("%d holders after the last close", b.refs.Load())
	}
}

func TestBodiesAreJSON(t *testing.T) {
	f, err := newFormat(`a "model"`)
	if err != nil {
		t.Fatal(err)
	}
	r := &spaced(1)[0]
	for _, b := range [][]byte{f.chat(nil, workload.Text{}, r, 3), f.completion(nil, workload.Text{}, r, 3)} {
		var a asked
		if err := json.Unmarshal(b, &a); err != nil || a.Model != `a "model"` || a.Max != 3 || !bytes.Contains(b, []byte(`"include_usage":true`)) {
			t.Errorf("%+v, %v", a, err)
		}
	}
}
