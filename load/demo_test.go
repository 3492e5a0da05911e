package load

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/rhizome-router/rhizome/workload"
)

// ground is a fake fleet and router for the demo.
type ground struct {
	net    *memoryNet
	front  *fakeWorker
	closed []string
	lines  []string
}

func newGround() *ground {
	g := &ground{net: newMemoryNet(), front: &fakeWorker{
		ttft: 50 * time.Millisecond, tpot: time.Millisecond, cached: 7, headers: map[string]string{"x-emulator-worker": "w0"},
	}}
	g.net.serve("router", g.front)
	return g
}

func (g *ground) config(out *bytes.Buffer) DemoConfig {
	chat := workload.DefaultChat()
	chat.Concurrent, chat.Think, chat.PauseShare, chat.TokenShare = 6, time.Second, 0, 0.5
	chat.SystemTokens, chat.OutputTokens = 300, 30
	return DemoConfig{
		Workers: 2, Chat: chat, Out: out, Speedup: 2, Transport: g.net.transport(),
		StartWorkers: func(_ context.Context, n int) (*Workers, error) {
			return &Workers{
				Lines: []string{"http://w0,events=tcp://e0", "http://w1,events=tcp://e1"}, Model: "fake-7b",
				Stats: func() []WorkerStats {
					return []WorkerStats{
						{Name: "w0", Requests: 5, Running: 1, HitHBMTokens: 12_000, HitTierTokens: 300, StoredBlocks: 300, EvictedBlocks: 20, KVFill: 0.5},
						{Name: "w1", Waiting: 2, HitHBMTokens: 1, StoredBlocks: 100, EvictedBlocks: 20, KVFill: 0.25},
					}
				},
				Close: func() error { g.closed = append(g.closed, "workers"); return nil },
			}, nil
		},
		StartRouter: func(_ context.Context, lines []string) (*Router, error) {
			g.lines = lines
			return &Router{
				URL: "http://router", Admin: "http://router:8081",
				Stats: func() RouterStats {
					return RouterStats{Requests: 3, CachedPredicted: 11_000, CachedActual: 12_301, CachedAbsError: 1_400}
				},
				Close: func() error { g.closed = append(g.closed, "router"); return nil },
			}, nil
		},
	}
}

func TestDemoOnceSumsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGround()
		defer g.net.close()
		var out bytes.Buffer
		cfg := g.config(&out)
		cfg.Once, cfg.JSON = true, true
		sum, err := Demo(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		asked := g.front.requests()
		if sum.Requests != len(asked) || sum.Requests < 40 || sum.Failed != 0 || sum.WallSeconds < 19 || sum.WallSeconds > 22 {
			t.Errorf("%+v for %d requests", sum, len(asked))
		}
		near(t, "TTFT", sum.TTFTMeanMillis, 100)
		if sum.HitHBMTokens != 12_001 || sum.HitTierTokens != 300 || sum.CachedTokensPredicted != 11_000 || sum.CachedTokensActual != 12_301 ||
			sum.CachedTokensAbsError != 1_400 || sum.StoredBlocks != 400 || sum.EvictedBlocks != 40 || sum.WorkerRestarts != 0 {
			t.Errorf("%+v", sum)
		}
		var keys map[string]any
		if err := json.Unmarshal(out.Bytes(), &keys); err != nil {
			t.Fatalf("%v in %s", err, out.String())
		}
		for _, k := range []string{"requests", "failed", "hit_hbm_tokens", "hit_tier_tokens", "cached_tokens_predicted", "cached_tokens_actual", "cached_tokens_abs_error", "ttft_mean_ms"} {
			if _, ok := keys[k]; !ok {
				t.Errorf("no %q in %s", k, out.String())
			}
		}
		if strings.Join(g.closed, " ") != "router workers" || len(g.lines) != 2 {
			t.Errorf("closed %v, router got %v", g.closed, g.lines)
		}
	})
}

// Each turn's prompt is the one before, its real answer, and something new.
func TestDemoConversationsGrowByTheRealAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGround()
		defer g.net.close()
		var out bytes.Buffer
		cfg := g.config(&out)
		cfg.Once = true
		if _, err := Demo(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
		chats, completions := 0, 0
		byStart := make(map[string]asked) // the first user message → its latest request
		for _, a := range g.front.requests() {
			if a.Path == completionPath {
				completions++
				continue
			}
			if a.Messages[0].Role != "system" || len(a.Messages)%2 != 0 {
				t.Fatalf("%d messages, the first from %s", len(a.Messages), a.Messages[0].Role)
			}
			first := a.Messages[1].Content
			if before, ok := byStart[first]; ok {
				chats++
				n := len(before.Messages)
				if len(a.Messages) != n+2 || !strings.HasPrefix(a.Body, before.Body[:strings.Index(before.Body, `}],"max_tokens"`)]) {
					t.Fatalf("turn %d does not continue the one before", n/2)
				}
				if got := a.Messages[n]; got.Role != "assistant" || len(strings.Fields(got.Content)) != before.Max || !strings.HasPrefix(got.Content, " w0 w1") && before.Max > 1 {
					t.Fatalf("answer %q to %d tokens", got.Content, before.Max)
				}
			}
			byStart[first] = a
		}
		if chats < 5 || completions < 5 {
			t.Errorf("%d later chat turns and %d completions, too few to tell", chats, completions)
		}
	})
}

func TestTokenConversationsCarryAnswerIDs(t *testing.T) {
	chat := workload.DefaultChat()
	chat.TokenShare = 1
	s := chat.Session(0)
	c := newConversation(chat, &s)
	c.ask(0)
	n := len(c.ids)
	c.onData([]byte(`{"choices":[{"text":"a","token_ids":[7,8]}]}`))
	c.onData([]byte(`not JSON`))
	c.onData([]byte(`{"choices":[{"text":"b","token_ids":[9]}]}`))
	c.answered()
	if got := c.ids[n:]; len(got) != 3 || got[0] != 7 || got[2] != 9 {
		t.Errorf("answer ids %v", got)
	}
	f, err := newFormat("m")
	if err != nil {
		t.Fatal(err)
	}
	var a asked
	if err := json.Unmarshal(c.body(nil, f, 4), &a); err != nil || len(a.Prompt) != n+3 || a.Max != 4 {
		t.Errorf("%d ids, %v", len(a.Prompt), err)
	}
}

func TestDemoEndsWithItsContext(t *testing.T) {
	for _, tty := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			g := newGround()
			defer g.net.close()
			var out bytes.Buffer
			cfg := g.config(&out)
			cfg.TTY = tty
			cfg.Chat.StartsPerSecond = 3
			ctx, cancel := context.WithTimeout(t.Context(), 11*time.Second+500*time.Millisecond)
			defer cancel()
			sum, err := Demo(ctx, cfg)
			if err != nil || sum.Failed != 0 || sum.Requests == 0 {
				t.Fatalf("%+v, %v", sum, err)
			}
			text := out.String()
			containsAll(t, text, "curl -N http://router/v1/chat/completions", "http://router:8081", "12.0k", "0 failed", "predicted 11.0k", "off by 11.4%", "evicted 40 (10.0%)")
			if ups := strings.Count(text, "\x1b["); tty != (ups > 0) {
				t.Errorf("tty %v: %d escapes", tty, ups)
			}
			if n := strings.Count(text, " answers, 0 failed"); !tty && n != 2 {
				t.Errorf("%d plain lines in 11.5 s, want one every 5 s:\n%s", n, text)
			}
			if n := strings.Count(text, "hit hbm "); tty && n != 12 {
				t.Errorf("%d frames in 11.5 s, want one a second and a last one", n)
			}
			plain := regexp.MustCompile("\x1b\\[[0-9]*[A-Z]|\r").ReplaceAllString(text, "")
			for line := range strings.Lines(plain) {
				if utf8.RuneCountInString(line) > maxColumns+1 && !strings.Contains(line, "curl") && !strings.Contains(line, "-d '") {
					t.Errorf("wider than %d columns: %s", maxColumns, line)
				}
			}
		})
	}
}

func TestDemoCountsFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGround()
		defer g.net.close()
		var n atomic.Int64
		g.front.answer = func(w http.ResponseWriter, _ *http.Request, _ *asked) bool {
			if n.Add(1)%3 != 0 {
				return false
			}
			http.Error(w, "no worker", http.StatusBadGateway)
			return true
		}
		var out bytes.Buffer
		cfg := g.config(&out)
		cfg.Duration = 10 * time.Second
		sum, err := Demo(t.Context(), cfg)
		if err != nil || sum.Failed != int(n.Load()/3) || sum.ErrorKinds["status_502"] != sum.Failed {
			t.Errorf("%+v, %v", sum, err)
		}
		containsAll(t, out.String(), "× status_502", "no worker")
	})
}

func TestDemoStartErrors(t *testing.T) {
	boom := errors.New("boom")
	g := newGround()
	defer g.net.close()
	var out bytes.Buffer
	cfg := g.config(&out)
	cfg.StartRouter = func(context.Context, []string) (*Router, error) { return nil, boom }
	if _, err := Demo(t.Context(), cfg); !errors.Is(err, boom) || strings.Join(g.closed, " ") != "workers" {
		t.Errorf("%v, closed %v", err, g.closed)
	}
	cfg.StartWorkers = func(context.Context, int) (*Workers, error) { return nil, boom }
	if _, err := Demo(t.Context(), cfg); !errors.Is(err, boom) {
		t.Error(err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Demo(gone, g.config(&out)); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	cfg.Workers = -1
	if _, err := Demo(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "workers is -1") {
		t.Error(err)
	}
}

func TestScreenRedrawsInPlace(t *testing.T) {
	var w writes
	s := newScreen(&w, true)
	s.frame([]string{"one", "two", strings.Repeat("é", 200)})
	s.frame([]string{"uno"})
	s.print([]string{"stays"})
	s.frame([]string{"below"})
	want := []string{
		"one\x1b[K\ntwo\x1b[K\n" + strings.Repeat("é", 99) + "…\x1b[K\n",
		"\x1b[3A\runo\x1b[K\n\x1b[J",
		"stays\n",
		"below\x1b[K\n",
	}
	for i, got := range w.all {
		if got != want[i] {
			t.Errorf("write %d: %q, want %q", i, got, want[i])
		}
	}
}

type writes struct {
	mu  sync.Mutex
	all []string
}

func (w *writes) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, string(p))
	return len(p), nil
}

func TestTokensFit(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 9999: "9999", 12_345: "12.3k", 9_999_999: "10000.0k", 12_345_678: "12.3M", 99e9: "99.0G"} {
		if got := tokens(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}
