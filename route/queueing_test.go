package route

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/engine"
	"github.com/rhizome-router/rhizome/fleet"
	"github.com/rhizome-router/rhizome/kv"
	"github.com/rhizome-router/rhizome/prompt"
	"pgregory.net/rapid"
)

// hearing is what a waiting request was told, in order of telling.
type hearing struct {
	mu    sync.Mutex
	names []string
	by    map[string]*Decision
	errs  map[string]error
}

func (l *hearing) ear(name string) func(*Decision, error) {
	return func(d *Decision, err error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.names = append(l.names, name)
		l.by[name], l.errs[name] = d, err
	}
}

func newHearing() *hearing {
	return &hearing{by: make(map[string]*Decision), errs: make(map[string]error)}
}

// queued is a house whose queue is on, with room for half a second's prompts on
// each worker.
func queued(t testing.TB, policy Policy, workers int) *house {
	h := newHouse(t, policy, workers)
	h.cfg.Queue = DefaultQueue()
	h.cfg.Queue.TTFTObjective = 500 * time.Millisecond
	return h
}

// enter has a prompt of so many tokens come in.
func (h *house) enter(t testing.TB, l *hearing, name string, q Query, promptTokens int) (*Decision, *Waiting, error) {
	t.Helper()
	h.ids++
	q.ID = name
	q.Prompt = tokens(t, 0, promptTokens, h.ids)
	return h.Enter(q, l.ear(name))
}

// fill sends prompts until one has to wait, and returns the decisions made and
// the one that waits.
func (h *house) fill(t testing.TB, l *hearing) (open []*Decision, first *Waiting) {
	t.Helper()
	for i := range 1000 {
		d, w, err := h.enter(t, l, fmt.Sprint("fill", i), Query{}, 8000)
		if err != nil {
			t.Fatal(err)
		}
		if w != nil {
			return open, w
		}
		open = append(open, d)
	}
	t.Fatal("nobody ever waits")
	return nil, nil
}

// A fleet with little to do never queues, and the queue changes none of its
// decisions.
func TestQueueIsOffBelowSaturation(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		policy := rapid.SampledFrom(Policies).Draw(rt, "policy")
		with, without := newHouse(t, policy, 4), newHouse(t, policy, 4)
		with.cfg.Queue = DefaultQueue()
		var open, twins []*Decision
		l := newHearing()
		for n := range rapid.IntRange(1, 30).Draw(rt, "steps") {
			wait := time.Duration(rapid.IntRange(0, 500).Draw(rt, "ms")) * time.Millisecond
			with.clock.Advance(wait)
			without.clock.Advance(wait)
			if len(open) > 0 && rapid.IntRange(0, 2).Draw(rt, "end") == 0 {
				out := Outcome{Result: Completed, Usage: Usage{Known: true, PromptTokens: 200, CachedTokens: 16, CompletionTokens: 5}}
				with.FirstByte(open[0])
				without.FirstByte(twins[0])
				with.Done(open[0], out)
				without.Done(twins[0], out)
				open, twins = open[1:], twins[1:]
				continue
			}
			q := Query{ID: fmt.Sprint(n), Session: rapid.SampledFrom([]string{"", "a"}).Draw(rt, "session"),
				Prompt: tokens(t, 16*rapid.IntRange(1, 100).Draw(rt, "shared"), 16, n)}
			d, w, err := with.Enter(q, l.ear(q.ID))
			if err != nil || w != nil {
				rt.Fatalf("a request waits: %v, %v", w, err)
			}
			twin, err := without.Decide(q)
			if err != nil {
				rt.Fatal(err)
			}
			if d.Target != twin.Target || d.CostMicros != twin.CostMicros {
				rt.Fatalf("with a queue %s at %v, without %s at %v", d.Target, d.CostMicros, twin.Target, twin.CostMicros)
			}
			open, twins = append(open, d), append(twins, twin)
		}
		if s := with.QueueStats(); s.Entered != 0 || len(l.names) != 0 {
			rt.Fatalf("%+v", s)
		}
	})
}

// While all workers are saturated requests wait; those that leave a worker let
// others in, by priority and then by how little work they are.
func TestQueueGoesByPriorityAndWork(t *testing.T) {
	h, l := queued(t, Rhizome, 2), newHearing()
	open, first := h.fill(t, l)
	if !h.Leave(first) {
		t.Fatal("the first can't leave")
	}
	for _, c := range []struct {
		name  string
		q     Query
		small int
	}{
		{"long", Query{}, 7000}, {"short", Query{}, 500}, {"urgent", Query{Hints: Hints{Priority: 1}}, 7500},
		{"heavy", Query{Weight: 20}, 7200}, {"idle", Query{Hints: Hints{Priority: -1}}, 100},
	} {
		d, w, err := h.enter(t, l, c.name, c.q, c.small)
		if d != nil || w == nil || err != nil {
			t.Fatalf("%s does not wait: %v, %v, %v", c.name, d, w, err)
		}
		h.clock.Advance(time.Millisecond)
	}
	h.clock.Advance(100 * time.Millisecond)
	if len(l.names) != 0 {
		t.Fatalf("told without cause: %v", l.names)
	}
	for len(open) > 0 {
		d := open[0]
		open = open[1:]
		h.FirstByte(d)
		h.Done(d, Outcome{Result: Completed, Usage: Usage{CachedTokens: -1}})
	}
	if want := []string{"urgent", "heavy", "short", "long", "idle"}; !slices.Equal(l.names, want) {
		t.Fatalf("in order %v, want %v", l.names, want)
	}
	for _, name := range l.names {
		d, err := l.by[name], l.errs[name]
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := h.Explain(name); !ok || e.WaitedMillis < 100 || d.ID != name {
			t.Errorf("%s: waited %v ms", name, e.WaitedMillis)
		}
		h.Done(d, Outcome{Result: Cancelled})
	}
	if n := inFlight(h); n != 0 {
		t.Errorf("%d in flight at the end", n)
	}
	s := h.QueueStats()
	if s.Entered != 6 || s.Placed != 5 || s.Left != 1 || s.Waiting != 0 || s.Waits[3] == 0 {
		t.Errorf("%+v", s)
	}
}

// One worker's room does not empty the queue: only as many go as it has room
// for, and to a worker with room.
func TestQueueFillsRoomOnly(t *testing.T) {
	h, l := queued(t, Rhizome, 3), newHearing()
	open, _ := h.fill(t, l)
	for i := range 50 {
		if _, w, err := h.enter(t, l, fmt.Sprint(i), Query{}, 8000); w == nil || err != nil {
			t.Fatal(err)
		}
	}
	m := open[0].member
	freed := m.Ledger.InFlight()
	for _, d := range open {
		if d.member == m {
			h.Done(d, Outcome{Result: Cancelled})
		}
	}
	if n := m.Ledger.InFlight(); n != freed || len(l.names) != freed {
		t.Errorf("%d requests left a worker, %d are there now, %d were told", freed, n, len(l.names))
	}
	for name, d := range l.by {
		if d == nil || d.member != m {
			t.Errorf("%s went elsewhere", name)
		}
	}
}

func TestQueueBounds(t *testing.T) {
	h, l := queued(t, Rhizome, 1), newHearing()
	h.cfg.Queue.MaxRequests = 3
	h.fill(t, l)
	for i := range 2 {
		if _, w, err := h.enter(t, l, fmt.Sprint(i), Query{}, 8000); w == nil || err != nil {
			t.Fatal(err)
		}
	}
	_, w, err := h.enter(t, l, "more", Query{}, 8000)
	full, ok := errors.AsType[*QueueError](err)
	if w != nil || !errors.Is(err, ErrQueueFull) || !ok || full.RetryAfter < time.Second {
		t.Fatalf("a fourth waits: %v, %v", w, err)
	}
	h.clock.Advance(h.cfg.Queue.MaxWait - time.Millisecond)
	h.Examine(nil)
	if s := h.QueueStats(); s.TimedOut != 0 {
		t.Errorf("told too soon: %+v", s)
	}
	// All the prompts are done by now as far as one can tell, so there is room.
	if s := h.QueueStats(); s.Waiting+int(s.Placed) != 3 {
		t.Errorf("%+v", s)
	}
	h.fill(t, l)
	h.clock.Advance(time.Minute)
	before := len(l.names)
	h.Examine(h.members[0])
	for _, name := range l.names[before:] {
		if err := l.errs[name]; !errors.Is(err, ErrQueueWait) || !strings.Contains(err.Error(), "10s") {
			t.Errorf("%s was told %v", name, err)
		}
	}
	if s := h.QueueStats(); s.Waiting != 0 || s.Full != 1 || s.TimedOut == 0 {
		t.Errorf("%+v", s)
	}
}

// Who is told nothing any more was taken out, and who was told can't leave.
func TestQueueLeave(t *testing.T) {
	h, l := queued(t, Rhizome, 1), newHearing()
	open, first := h.fill(t, l)
	_, second, _ := h.enter(t, l, "second", Query{}, 8000)
	if !h.Leave(first) || h.Leave(first) {
		t.Fatal("one leaves once")
	}
	for _, d := range open {
		h.Done(d, Outcome{Result: Cancelled})
	}
	if h.Leave(second) || l.by["second"] == nil || len(l.names) != 1 {
		t.Fatalf("told %v", l.names)
	}
}

// Requests that were tried already or have one worker to go to don't wait.
func TestQueueLetsRetriesAndPinsPass(t *testing.T) {
	h, l := queued(t, Rhizome, 2), newHearing()
	h.fill(t, l)
	for name, q := range map[string]Query{
		"retry": {Exclude: []kv.Target{h.members[0].Target}}, "pin": {Pin: h.members[1].Target.String()},
	} {
		if d, w, err := h.enter(t, l, name, q, 8000); d == nil || w != nil || err != nil {
			t.Errorf("%s: %v, %v, %v", name, d, w, err)
		}
	}
}

func TestQueueCloses(t *testing.T) {
	h, l := queued(t, Rhizome, 1), newHearing()
	h.fill(t, l)
	h.CloseQueue()
	if len(l.names) != 1 || !errors.Is(l.errs[l.names[0]], ErrQueueClosed) {
		t.Fatalf("told %v", l.errs)
	}
	if d, w, err := h.enter(t, l, "late", Query{}, 8000); d == nil || w != nil || err != nil {
		t.Errorf("after the end: %v, %v, %v", d, w, err)
	}
}

// A reload places those who wait by the new rules; without a queue, all at once.
func TestQueueIsReconfigured(t *testing.T) {
	h, l := queued(t, Rhizome, 1), newHearing()
	h.fill(t, l)
	for i := range 30 {
		h.enter(t, l, fmt.Sprint(i), Query{}, 8000)
	}
	cfg := h.cfg
	cfg.Queue.TTFTObjective *= 2
	h.Reconfigure(cfg)
	if n := len(l.names); n == 0 || n > 10 {
		t.Errorf("%d placed in twice the room", n)
	}
	cfg.Queue = QueueConfig{}
	h.Reconfigure(cfg)
	if s := h.QueueStats(); s.Waiting != 0 || s.Placed != 31 {
		t.Errorf("%+v", s)
	}
}

// A worker of which no limit of sequences is known gets more than the number
// that is assumed, or it could never show that it takes them.
func TestQueueDoesNotBelieveAnAssumedLimit(t *testing.T) {
	h, l := queued(t, Rhizome, 1), newHearing()
	send := func(name string) *Waiting {
		d, w, err := h.enter(t, l, name, Query{}, 16)
		if err != nil {
			t.Fatal(err)
		}
		if d != nil {
			h.clock.Advance(50 * time.Millisecond)
			h.FirstByte(d)
		}
		return w
	}
	for i := range 300 {
		if send(fmt.Sprint(i)) != nil {
			t.Fatalf("number %d waits", i)
		}
	}
	s := h.members[0].Signals()
	s.MaxSeqs = fleet.Signal{Value: 256, Source: fleet.Scraped}
	h.members[0].SetSignals(s)
	h.cfg.Queue.Admission = time.Millisecond
	if send("beyond") == nil {
		t.Error("a limit that the worker told is not believed")
	}
}

// Models that other workers serve do not wait for each other.
func TestQueueKeepsModelsApart(t *testing.T) {
	h, l := queued(t, Rhizome, 2), newHearing()
	h.view = fleet.NewView(h.members, []fleet.Served{
		{Model: engine.Model{ID: "m"}, Members: h.members[:1]}, {Model: engine.Model{ID: "other"}, Members: h.members[1:]}})
	h.fill(t, l)
	p := tokens(t, 0, 8000, 999)
	p.Model = "other"
	if d, w, err := h.Enter(Query{ID: "x", Prompt: p}, l.ear("x")); d == nil || w != nil || err != nil {
		t.Errorf("%v, %v, %v", d, w, err)
	}
}

// Under the article's policy those go first that cost least.
func TestQueueOfTheArticle(t *testing.T) {
	h, l := queued(t, ArticleCost, 1), newHearing()
	open, first := h.fill(t, l)
	h.Leave(first)
	h.enter(t, l, "long", Query{}, 7000)
	h.enter(t, l, "short", Query{}, 100)
	for _, d := range open {
		h.Done(d, Outcome{Result: Cancelled})
	}
	if !slices.Equal(l.names, []string{"short", "long"}) {
		t.Errorf("in order %v", l.names)
	}
}

// However requests come, end, leave and time out at once, each is told one
// thing, and the books are empty in the end.
func TestQueueLosesNobody(t *testing.T) {
	h := queued(t, Rhizome, 3)
	h.cfg.Queue.TTFTObjective, h.cfg.Queue.MaxRequests = 20*time.Millisecond, 60
	l := newHearing()
	open, _ := h.fill(t, l) // those that come find all busy, and others waiting
	const before = 30
	for i := range before - 1 {
		if _, w, err := h.enter(t, l, fmt.Sprint("before", i), Query{}, 1000); w == nil || err != nil {
			t.Fatal(w, err)
		}
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	ends := make(map[string]int)
	end := func(how string) {
		mu.Lock()
		ends[how]++
		mu.Unlock()
	}
	const clients, each = 24, 12
	prompts := make([]*prompt.Request, clients)
	for i := range prompts {
		prompts[i] = tokens(t, 0, 1000, i)
	}
	for c := range clients {
		rng := clock.Rand(uint64(c), "client")
		wg.Go(func() {
			for n := range each {
				type placement struct {
					d   *Decision
					err error
				}
				ear := make(chan placement, 2)
				p := *prompts[c]
				d, w, err := h.Enter(Query{ID: fmt.Sprint(c, " ", n), Prompt: &p}, func(d *Decision, err error) { ear <- placement{d, err} })
				leaves := w != nil && rng.IntN(3) == 0
				if leaves && h.Leave(w) {
					end("left")
					if len(ear) != 0 {
						t.Error("one that left was told")
					}
					continue
				}
				for w != nil && len(ear) == 0 {
					h.clock.Advance(time.Millisecond)
					h.Examine(h.members[rng.IntN(3)])
				}
				if w != nil {
					got := <-ear
					d, err = got.d, got.err
				}
				if err != nil {
					end("refused")
					continue
				}
				h.clock.Advance(time.Millisecond)
				if rng.IntN(2) == 0 {
					h.FirstByte(d)
				}
				h.Done(d, Outcome{Result: Result(rng.IntN(int(Cancelled) + 1)), Cause: uint64(n)})
				end("served")
				if len(ear) != 0 {
					t.Error("one was told twice")
				}
			}
		})
	}
	for _, d := range open {
		h.Done(d, Outcome{Result: Completed})
	}
	wg.Wait()
	h.clock.Advance(time.Minute)
	h.Examine(nil)
	for _, name := range l.names {
		if d := l.by[name]; d != nil {
			h.Done(d, Outcome{Result: Completed})
		}
	}
	if len(l.names) != before {
		t.Errorf("of %d that waited from the start, %d were told", before, len(l.names))
	}
	s := h.QueueStats()
	if got := ends["left"] + ends["refused"] + ends["served"]; got != clients*each {
		t.Errorf("%d of %d ended: %v", got, clients*each, ends)
	}
	if s.Waiting != 0 || s.Entered != s.Placed+s.TimedOut+s.Left+s.Failed || s.Entered < before {
		t.Errorf("%+v", s)
	}
	if n := inFlight(h); n != 0 {
		t.Errorf("%d in flight at the end", n)
	}
}

// Of the next few, one whose prompt the worker with room holds goes first; but
// nobody is overtaken for that again and again.
func TestQueueSendsPromptsHome(t *testing.T) {
	h, l := queued(t, Rhizome, 2), newHearing()
	open, first := h.fill(t, l)
	h.Leave(first)
	homes := []*prompt.Request{tokens(t, 16000, 0, 0), tokens(t, 0, 16000, 1)}
	for i, p := range homes {
		h.hold(h.members[i], p, 0, 1000, kv.HBM)
	}
	enter := func(name string, home int) {
		h.clock.Advance(time.Millisecond)
		p := *homes[home]
		if _, w, err := h.Enter(Query{ID: name, Prompt: &p}, l.ear(name)); w == nil || err != nil {
			t.Fatal(w, err)
		}
	}
	enter("elsewhere", 0)
	for i := range 20 {
		enter(fmt.Sprint("home", i), 1)
	}
	for _, d := range open {
		if d.member == h.members[1] {
			h.Done(d, Outcome{Result: Cancelled})
		}
	}
	at := slices.Index(l.names, "elsewhere")
	if len(l.names) == 0 || l.names[0] != "home0" || at > mostOvertaken+1 {
		t.Errorf("in order %v", l.names)
	}
	for _, name := range l.names {
		if l.by[name].member != h.members[1] {
			t.Errorf("%s went elsewhere", name)
		}
	}
}

func TestQueueLimitsAreChecked(t *testing.T) {
	good := DefaultConfig()
	if err := good.Validate(); err != nil || good.Queue.Enabled {
		t.Errorf("the default: %v, %+v", err, good.Queue)
	}
	for key, spoil := range map[string]func(*QueueConfig){
		"ttft_objective": func(q *QueueConfig) { q.TTFTObjective = 0 }, "admission": func(q *QueueConfig) { q.Admission = -1 },
		"max_wait": func(q *QueueConfig) { q.MaxWait = 0 }, "max_requests": func(q *QueueConfig) { q.MaxRequests = 0 },
	} {
		c := DefaultConfig()
		c.Queue = DefaultQueue()
		spoil(&c.Queue)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "queue."+key) {
			t.Errorf("%s: %v", key, err)
		}
		c.Queue.Enabled = false
		if err := c.Validate(); err != nil {
			t.Errorf("%s of a queue that is off: %v", key, err)
		}
	}
}
