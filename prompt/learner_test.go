package prompt

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/cost"
	"github.com/rhizome-router/rhizome/engine"
	"github.com/rhizome-router/rhizome/fleet"
	"github.com/rhizome-router/rhizome/index"
	"github.com/rhizome-router/rhizome/kv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a learner over workers that render as a fakeEngine does, over HTTP.
type rig struct {
	*Learner
	clock   clock.Virtual
	view    *fleet.View
	members []*fleet.Member
	index   *index.Index

	mu     sync.Mutex
	engine fakeEngine
	stall  chan struct{} // nil: answers come at once
	status int           // of answers, where it isn't 0
	asked  atomic.Int64  // but for probes
}

func (g *rig) View() *fleet.View { return g.view }

func newRig(t *testing.T, cfg Config, e fakeEngine, workers int) *rig {
	t.Helper()
	g := &rig{engine: e, index: index.New(index.Config{})}
	for range workers {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { g.serve(t, w, r) }))
		t.Cleanup(server.Close)
		worker, err := engine.NewWorker("test", engine.Spec{URL: server.URL})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(worker.Close)
		m := fleet.NewMember(kv.Target{Worker: worker.ID, Rank: kv.NoRank}, worker, cost.Generic(), g.index.Open(index.HBMThenOneTier))
		m.SetHealthy(true)
		m.SetCache(fleet.Cache{Slot: m.Cache().Slot, Known: fleet.ByEvents, Live: true, BlockTokens: 4})
		g.members = append(g.members, m)
	}
	g.view = fleet.NewView(g.members, []fleet.Served{{Model: engine.Model{ID: "m"}, Members: g.members}})
	l := newTestLearned()
	g.Learner = NewLearner(cfg, l, LearnerDeps{Fleet: g, Clock: &g.clock, Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	return g
}

func (g *rig) serve(t *testing.T, w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	path, ok := strings.CutSuffix(r.URL.Path, "/render")
	if err != nil || !ok {
		http.NotFound(w, r)
		return
	}
	g.mu.Lock()
	e, stall, status := g.engine, g.stall, g.status
	g.mu.Unlock()
	if !slices.ContainsFunc(probes[:], func(p probe) bool { return path == p.path && strings.Contains(string(body), p.members) }) {
		g.asked.Add(1)
		if stall != nil {
			<-stall
		}
		if status != 0 {
			w.WriteHeader(status)
			return
		}
	}
	tokens, ok := e.render(t, body)
	if !ok {
		http.Error(w, "no such conversation", http.StatusBadRequest)
		return
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"token_ids": tokens}) // to a test that reads it
}

// send is one request: where its prompt stands and what the learner is told.
func (g *rig) send(t testing.TB, body []byte) *Request {
	t.Helper()
	r, err := Parse(kindOf(body), body)
	if err != nil {
		t.Fatal(err)
	}
	m := g.members[0]
	g.Placed(r, m.Target.Worker, Class(m.RenderClass("m", m.Cache().Slot, g.clock.Now())), chatPath, body, false)
	return r
}

// await waits until something holds.
func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	for !holds() {
		select {
		case <-time.After(2 * time.Millisecond):
		case <-deadline:
			t.Fatalf("never: %s", what)
		}
	}
}

func TestLearnerLearnsBesideTheRequests(t *testing.T) {
	g := newRig(t, Config{}, fakeEngines["thinking"], 2)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { g.Run(ctx) })
	defer wg.Wait()
	defer cancel()
	class := func() Class { return Class(g.members[0].RenderClass("m", g.members[0].Cache().Slot, 0)) }
	await(t, "a class", func() bool { return class() != 0 })
	if other := Class(g.members[1].RenderClass("m", g.members[1].Cache().Slot, 0)); other != class() && other != 0 {
		t.Errorf("equal workers are of classes %x and %x", class(), other)
	}
	head := words("head", 1200)
	for i := range 3 {
		g.send(t, chat("", head, fmt.Sprint("u", i)))
		want := min(1, i)
		await(t, "an answer", func() bool { s := g.learned.Stats(); return s.Entries == 1 && s.Trusted == want })
	}
	body := chat("", head, "something else")
	r := parse(t, Chat, string(body))
	k := g.learned.Find(r, class(), form4)
	tokens, _ := g.engine.render(t, body)
	if want := chain(nil, "m", "", tokens, form4); k.Tokens < 1200 || !slices.Equal(k.Keys, want[:len(k.Keys)]) {
		t.Errorf("%d tokens known", k.Tokens)
	}
	if n := g.asked.Load(); n != 3 {
		t.Errorf("%d questions, want 2 and 1", n)
	}
}

// Whatever is sent, a worker gets no more questions than its requests allow, no
// more wait than there is room for, and none for long.
func TestQuestionsAreBounded(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		share := rapid.SampledFrom([]float64{0.02, 0.1, 1}).Draw(rt, "share")
		g := &rig{index: index.New(index.Config{})}
		w, err := engine.NewWorker("test", engine.Spec{URL: "http://127.0.0.1:1"})
		if err != nil {
			rt.Fatal(err)
		}
		m := fleet.NewMember(kv.Target{Worker: w.ID, Rank: kv.NoRank}, w, cost.Generic(), g.index.Open(index.HBMThenOneTier))
		m.SetHealthy(true)
		m.SetRenderClass("m", 7, m.Cache().Slot, clock.Instant(1<<60))
		g.members = []*fleet.Member{m}
		g.view = fleet.NewView(g.members, []fleet.Served{{Model: engine.Model{ID: "m"}, Members: g.members}})
		g.Learner = NewLearner(Config{LearnShare: share}, newTestLearned(), LearnerDeps{Fleet: g, Clock: &g.clock})
		sent, questions := 0, 0
		for range rapid.IntRange(1, 200).Draw(rt, "steps") {
			if rapid.IntRange(0, 3).Draw(rt, "ask") == 0 {
				for {
					j, to := g.take()
					if j == nil {
						break
					}
					if to != w || g.clock.Now().Sub(j.since) > jobPatience {
						rt.Fatal("asked the wrong one, or too late")
					}
					questions += j.want.Questions()
				}
				g.clock.Advance(time.Duration(rapid.IntRange(0, 20).Draw(rt, "s")) * time.Second)
				continue
			}
			head := words(fmt.Sprint("h", rapid.IntRange(0, 60).Draw(rt, "head")), 700)
			g.send(t, chat("", head, fmt.Sprint("u", sent)))
			sent++
			if s := g.Stats(); s.Waiting > maxJobs {
				rt.Fatalf("%d wait", s.Waiting)
			}
		}
		if float64(questions) > firstQuestions+share*float64(sent) {
			rt.Fatalf("%d questions for %d requests", questions, sent)
		}
	})
}

// A worker whose template changes, or that starts anew, is of another class or of
// none until it was asked again.
func TestClassesFollowTheWorker(t *testing.T) {
	g := newRig(t, Config{}, fakeEngines["dated"], 1)
	m := g.members[0]
	class := func(now clock.Instant) Class { return Class(m.RenderClass("m", m.Cache().Slot, now)) }
	g.check(t.Context())
	first := class(g.clock.Now())
	if first == 0 {
		t.Fatal("no class")
	}
	g.check(t.Context())
	if n := g.Stats().Probes; n != 1 {
		t.Errorf("asked %d times though nothing happened", n)
	}
	// A day may begin with a quarter of an hour: until it was asked nothing holds.
	g.clock.Advance(quarter)
	if c := class(g.clock.Now()); c != 0 {
		t.Errorf("class %x into a day that may be another", c)
	}
	g.check(t.Context())
	if c := class(g.clock.Now()); c != first {
		t.Errorf("class %x, was %x", c, first)
	}
	g.mu.Lock()
	g.engine.date = "1 Dec 2026"
	g.mu.Unlock()
	g.clock.Advance(quarter)
	g.check(t.Context())
	if c := class(g.clock.Now()); c == first || c == 0 {
		t.Errorf("class %x after midnight, before it %x", c, first)
	}
	cache := m.Cache()
	cache.Slot = g.index.Open(index.HBMThenOneTier)
	m.SetCache(cache)
	if c := class(g.clock.Now()); c != 0 {
		t.Errorf("class %x of a process that was never asked", c)
	}
	g.check(t.Context())
	if c := class(g.clock.Now()); c == 0 {
		t.Error("a process that started anew is not asked")
	}
}

func TestWorkersThatTellNothingAreLeftAlone(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	g := newRig(t, Config{}, fakeEngines["plain"], 1)
	w, err := engine.NewWorker("test", engine.Spec{URL: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	m := fleet.NewMember(kv.Target{Worker: w.ID, Rank: kv.NoRank}, w, cost.Generic(), g.index.Open(index.HBMThenOneTier))
	m.SetHealthy(true)
	m.SetCache(fleet.Cache{Slot: m.Cache().Slot, Known: fleet.BySent})
	g.view = fleet.NewView([]*fleet.Member{m}, []fleet.Served{{Model: engine.Model{ID: "m"}, Members: []*fleet.Member{m}}})
	for range 5 {
		g.check(t.Context())
		g.clock.Advance(time.Minute)
	}
	if n := g.Stats().Probes; n != 1 {
		t.Errorf("asked %d times in 5 minutes", n)
	}
}

// With prompt.tokenize a prompt's tokens are asked for before it is placed: once
// for each prompt, no longer than allowed, and not while it is no use.
func TestPrepareAsksBeforehand(t *testing.T) {
	g := newRig(t, Config{Tokenize: TokenizeEngine, TokenizeWait: 10 * time.Second}, fakeEngines["all"], 1)
	g.check(t.Context())
	m := g.members[0]
	class := Class(m.RenderClass("m", m.Cache().Slot, 0))
	prepare := func(body []byte) Known {
		r := parse(t, Chat, string(body))
		g.Prepare(t.Context(), r, chatPath, body)
		return g.learned.Find(r, class, form4)
	}
	body := chat("", "be brief", "hello there", "<think>hm</think>hi", "and now?")
	tokens, _ := g.engine.render(t, body)
	for range 3 {
		if k := prepare(body); !k.Told || k.Tokens != len(tokens) || !slices.Equal(k.Keys, chain(nil, "m", "", tokens, form4)) {
			t.Fatalf("%+v of %d tokens", k, len(tokens))
		}
	}
	if n := g.asked.Load(); n != 1 {
		t.Errorf("%d questions about one prompt", n)
	}
	if k := prepare([]byte(`{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"https://a.b/c.png"}}]}]}`)); k.Told || g.asked.Load() != 1 {
		t.Error("asked about a prompt with an image")
	}
	// In vain: after three times nobody is asked for a while.
	g.mu.Lock()
	g.status = http.StatusInternalServerError
	g.mu.Unlock()
	for i := range 6 {
		if k := prepare(chat("", "x", fmt.Sprint(i))); k.Told {
			t.Error("told by one that failed")
		}
	}
	if n := g.asked.Load(); n != 1+maxAskFailures {
		t.Errorf("%d questions", n)
	}
	g.clock.Advance(askPause)
	g.mu.Lock()
	g.status, g.stall = 0, make(chan struct{})
	stall := g.stall
	g.mu.Unlock()
	g.cfg.TokenizeWait = 20 * time.Millisecond
	if k := prepare(chat("", "x", "late")); k.Told {
		t.Error("told by one that hangs")
	}
	close(stall)
	if s := g.Stats(); s.Tokenized != 1 || s.TokenizedBefore != 2 || s.TokenizeFailed != 7 {
		t.Errorf("%+v", s)
	}
}

func TestConfigIsChecked(t *testing.T) {
	if err := (Config{}).Validate(); err != nil {
		t.Error(err)
	}
	for _, bad := range []Config{{Learn: "maybe"}, {LearnShare: -1}, {LearnShare: 1.5}, {MaxBytes: 5}, {Tokenize: "yes"}, {TokenizeWait: time.Hour}} {
		if err := bad.Validate(); err == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
}

// What answers tell by themselves counts as a witness and costs no question.
func TestAnswersTellTokens(t *testing.T) {
	g := newRig(t, Config{}, fakeEngines["plain"], 1)
	g.check(t.Context())
	class := Class(g.members[0].RenderClass("m", g.members[0].Cache().Slot, 0))
	head := words("head", 1200)
	g.send(t, chat("", head, "one"))
	for g.askNext(t.Context()) {
	}
	body := chat(`,"return_token_ids":true`, head, "two")
	r := parse(t, Chat, string(body))
	ids, _ := g.engine.render(t, body)
	if !r.ReturnIDs {
		t.Error("the body asks for the ids")
	}
	g.Told(r, class, ids)
	if s := g.learned.Stats(); s.Trusted != 1 || g.asked.Load() != 2 {
		t.Errorf("%+v after %d questions", s, g.asked.Load())
	}
}
