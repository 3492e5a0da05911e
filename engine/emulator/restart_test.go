package emulator

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rhizome-router/rhizome/engine"
	"github.com/rhizome-router/rhizome/kv"
)

// stream begins a streamed answer and reads its first bytes.
func stream(t *testing.T, w *Worker, tokens int) io.ReadCloser {
	t.Helper()
	body := fmt.Sprintf(`{"prompt":%q,"stream":true,"max_tokens":%d}`, words(1, 1000), tokens)
	res, err := client(t).Post(w.URL()+"/v1/completions", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { res.Body.Close() })
	if _, err := io.ReadFull(res.Body, make([]byte, 10)); err != nil || res.StatusCode != http.StatusOK {
		t.Fatal(res.Status, err)
	}
	return res.Body
}

// startTime reads when the worker's process began; 0 when it does not say.
func startTime(t *testing.T, w *Worker) float64 {
	t.Helper()
	_, raw := get(t, w.URL()+"/metrics")
	for line := range strings.Lines(string(raw)) {
		var at float64
		if n, _ := fmt.Sscanf(line, "process_start_time_seconds %g", &at); n == 1 {
			return at
		}
	}
	return 0
}

// newLife checks that the feed tells of the new life and of nothing older.
func newLife(t *testing.T, w *Worker, f *following, before *held) {
	t.Helper()
	for {
		if e := f.next(t); e.Kind == engine.FeedReset {
			if e.Seq != 0 {
				t.Errorf("the new life's events count from %d", e.Seq)
			}
			break
		}
	}
	if st := w.Stats(); st.Requests+st.HBMHitTokens != 0 || st.Running+st.Waiting+st.HBM.CachedBlocks+st.Lower[0].CachedBlocks != 0 {
		t.Errorf("left over: %+v", st)
	}
	past := w.Stats().AllLives
	if past.Requests == 0 || past.StoredBlocks < int64(len(before.copies[kv.HBM])) {
		t.Errorf("of the old life %+v is remembered", past)
	}
	c := complete(t, w.URL()+"/v1/completions", obj{"prompt": words(1, 1000), "max_tokens": 20})
	if now := w.Stats().AllLives; now.Requests != past.Requests+1 || now.StoredBlocks <= past.StoredBlocks {
		t.Errorf("all lives: %+v, then %+v", past, now)
	}
	if c.cached() != 0 {
		t.Errorf("%d tokens cached in a new life", c.cached())
	}
	f.untilSame(t, w)
	if n := len(f.held.copies[kv.HBM]); n != (c.Usage.TotalTokens-1)/16 || f.resets != 1 {
		t.Errorf("%d blocks after %d resets", n, f.resets)
	}
	renamed := 0
	for h := range f.held.copies[kv.HBM] {
		if before.copies[kv.HBM][h] == 0 {
			renamed++
		}
	}
	if want := len(f.held.copies[kv.HBM]); w.cfg.Engine == VLLM && renamed != want || w.cfg.Engine == SGLang && renamed == want {
		t.Errorf("%s: %d of %d blocks have new names", w.cfg.Engine, renamed, want)
	}
	if d := cmp.Diff(map[uint64][]byte{}, replayFrom(t, w, uint64(batches(w)))); d != "" {
		t.Errorf("replays what was never told: %s", d)
	}
}

func TestHardRestart(t *testing.T) {
	for _, e := range []Engine{VLLM, SGLang} {
		t.Run(string(e), func(t *testing.T) {
			w := start(t, func(c *Config) { c.Engine, c.Speedup = e, 20 })
			f := follow(t, w)
			complete(t, w.URL()+"/v1/completions", obj{"prompt": words(1, 1000), "max_tokens": 20})
			f.untilSame(t, w)
			before, began := f.held, startTime(t, w)
			body := stream(t, w, 9000)
			res, raw := post(t, w.URL()+"/emulator/restart?mode=hard", "")
			if res.StatusCode != http.StatusOK {
				t.Fatalf("%s: %s", res.Status, raw)
			}
			if rest, err := io.ReadAll(body); err == nil {
				t.Errorf("the running request ended well: …%.100q", rest[max(0, len(rest)-100):])
			}
			newLife(t, w, f, before)
			if again := startTime(t, w); e == VLLM && again <= began || e == SGLang && again != 0 {
				t.Errorf("started at %v, then at %v", began, again)
			}
		})
	}
}

func TestDrainedRestart(t *testing.T) {
	for _, e := range []Engine{VLLM, SGLang} {
		t.Run(string(e), func(t *testing.T) {
			w := start(t, func(c *Config) { c.Engine, c.Speedup = e, 100 })
			f := follow(t, w)
			complete(t, w.URL()+"/v1/completions", obj{"prompt": words(1, 1000), "max_tokens": 20})
			f.untilSame(t, w)
			before := f.held
			body := stream(t, w, 2000)
			if !w.door.enter() { // one more that runs, until the test has seen enough
				t.Fatal("the door is shut")
			}
			var restarted sync.WaitGroup
			defer restarted.Wait()
			restarted.Go(func() {
				if err := w.Restart(Drained); err != nil {
					t.Error(err)
				}
			})
			for {
				res, raw := post(t, w.URL()+"/v1/completions", obj{"prompt": "hello", "max_tokens": 1})
				if res.StatusCode == http.StatusOK {
					continue // the door is not shut yet
				}
				if res.StatusCode != http.StatusServiceUnavailable || res.Header.Get("Retry-After") == "" {
					t.Errorf("refused with %s, %v: %s", res.Status, res.Header, raw)
				}
				break
			}
			if res, _ := get(t, w.URL()+"/health"); res.StatusCode != http.StatusOK {
				t.Errorf("health: %s", res.Status)
			}
			rest, err := io.ReadAll(body)
			if err != nil || !strings.HasSuffix(string(rest), "data: [DONE]\n\n") {
				t.Errorf("the running request ended with %v", err)
			}
			w.door.leave()
			restarted.Wait()
			newLife(t, w, f, before)
		})
	}
}

// A hard restart does not wait for a drained one.
func TestHardEndsADrain(t *testing.T) {
	w := start(t, func(c *Config) { c.Speedup = 1 })
	body := stream(t, w, 9000)
	var drained sync.WaitGroup
	defer drained.Wait()
	drained.Go(func() {
		if err := w.Restart(Drained); err != nil {
			t.Error(err)
		}
	})
	for w.door.enter() { // until it is shut
		w.door.leave()
	}
	if err := w.Restart(Hard); err != nil {
		t.Error(err)
	}
	if _, err := io.ReadAll(body); err == nil {
		t.Error("the running request ended well")
	}
	drained.Wait()
	if n := w.lives.Load(); n != 2 {
		t.Errorf("%d restarts", n)
	}
}

func TestRestartRefused(t *testing.T) {
	w := start(t, nil)
	if res, raw := post(t, w.URL()+"/emulator/restart", ""); res.StatusCode != http.StatusBadRequest {
		t.Errorf("without a mode: %s %s", res.Status, raw)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := w.Restart(Drained); err == nil {
		t.Error("a closed worker restarted")
	}
}
