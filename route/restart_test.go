package route

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/cost"
	"github.com/rhizome-router/rhizome/engine"
	"github.com/rhizome-router/rhizome/fleet"
	"github.com/rhizome-router/rhizome/index"
	"github.com/rhizome-router/rhizome/kv"
	"github.com/rhizome-router/rhizome/prompt"
)

// What a process keeps for the next one.
type keepsake int

const (
	runsOn      keepsake = iota // there is one process alone
	keepsAll                    // as with a state directory
	keepsPrompt                 // the tokens that were learned alone
	keepsNone
)

// A restart of the router is a matter of 3 points of the hit share at most, over
// the 20 s behind it, where all is kept that a state directory keeps; where
// less is, it is one of more, or this test would show nothing.
func TestARestartCostsNextToNothing(t *testing.T) {
	share := make(map[keepsake]float64)
	for _, kept := range []keepsake{runsOn, keepsAll, keepsPrompt, keepsNone} {
		const seeds = 3
		for seed := range uint64(seeds) {
			l := newLoops(t, seed, kept)
			l.run(20 * time.Second)
			if kept != runsOn {
				l.restart()
			}
			l.cached, l.asked = 0, 0
			l.run(20 * time.Second)
			share[kept] += float64(l.cached) / float64(l.asked) / seeds
		}
	}
	dip := func(k keepsake) float64 { return 100 * (share[runsOn] - share[k]) }
	t.Logf("hit share %.4f; a restart costs %.2f points, %.2f without the sessions, %.2f without anything",
		share[runsOn], dip(keepsAll), dip(keepsPrompt), dip(keepsNone))
	if dip(keepsAll) > 3 {
		t.Errorf("a restart costs %.2f points of the hit share", dip(keepsAll))
	}
	if dip(keepsPrompt) <= dip(keepsAll) || dip(keepsNone) <= 3 {
		t.Errorf("what is kept makes no difference: a restart costs %.2f points with it, %.2f without the sessions, %.2f without anything",
			dip(keepsAll), dip(keepsPrompt), dip(keepsNone))
	}
}

const (
	loopsClass   = prompt.Class(7)
	loopsWorkers = 4
	// loopsQuestions is how often workers are asked for tokens in all: enough
	// for the heads and little else.
	loopsQuestions = 24
)

// loops are loops of agents over workers whose caches hold all that was ever
// computed there. What they say is text; a word is a token. Time is virtual.
type loops struct {
	*Router
	clock     clock.Virtual
	inlets    []*fleet.Inlet
	ids       int
	t         testing.TB
	kept      keepsake
	rng       *rand.Rand
	learned   *prompt.Learned
	holds     []map[kv.Key]bool // by worker
	stored    [][]kv.Op         // by worker: how it came to that
	questions int
	agents    []*agentLoop
	// Of the prompts placed since these were set to 0, in tokens.
	cached, asked int
}

// agentLoop is one agent at work: what its conversation is so far, and what
// happens next.
type agentLoop struct {
	name     string
	body     strings.Builder // an open list of messages
	tokens   []uint32        // of these
	ends     []int           // of the messages, in tokens
	left     int             // turns
	at       clock.Instant   // of what is next: the end of flight, or a new turn
	flight   *Decision
	to       int // the worker
	outcome  Outcome
	answered []uint32
}

func newLoops(t testing.TB, seed uint64, kept keepsake) *loops {
	l := &loops{t: t, kept: kept, rng: clock.Rand(seed, "loops"), questions: loopsQuestions}
	l.stored = make([][]kv.Op, loopsWorkers)
	for range loopsWorkers {
		l.holds = append(l.holds, make(map[kv.Key]bool))
	}
	l.open(nil)
	for range 3 * loopsWorkers {
		l.agents = append(l.agents, &agentLoop{at: clock.Instant(l.rng.Int64N(int64(3 * time.Second)))})
	}
	return l
}

// open begins a process, which knows fits of an earlier one. The workers tell it
// all that they hold.
func (l *loops) open(fits map[ClassKey]cost.FitState) {
	var specs []engine.Spec
	for i := range loopsWorkers {
		spec, err := engine.ParseSpec(fmt.Sprintf("http://127.0.0.1:%d,events=tcp://127.0.0.1:%d", 18000+i, 19000+i))
		if err != nil {
			l.t.Fatal(err)
		}
		specs = append(specs, spec)
	}
	prefixes, sent := index.New(index.Config{}), index.NewApprox(index.ApproxConfig{MaxEntries: 1 << 16})
	workers, err := fleet.New(fleet.Config{}, fleet.Deps{Index: prefixes, Approx: sent, Clock: &l.clock}, specs,
		func(engine.Spec) (cost.Class, error) { return cost.Generic(), nil })
	if err != nil {
		l.t.Fatal(err)
	}
	l.learned = prompt.NewLearned(0)
	l.learned.SetForms([]prompt.Form{{BlockTokens: blockTokens}})
	l.inlets = nil
	for i := range specs {
		in := workers.Admit(i, engine.Identity{Engine: engine.VLLM, Events: specs[i].Events, BlockTokens: blockTokens}, []engine.Model{{ID: "m"}})[0]
		in.Feed(engine.FeedEvent{Kind: engine.FeedReset})
		in.Feed(engine.FeedEvent{Kind: engine.FeedConnected})
		in.Member.SetRenderClass("m", uint64(loopsClass), in.Member.Cache().Slot, l.clock.Now().Add(time.Hour))
		l.inlets = append(l.inlets, in)
		for n, op := range l.stored[i] {
			in.Feed(engine.FeedEvent{Kind: engine.FeedBatch, Seq: uint64(n), Rank: -1, Ops: []kv.Op{op}})
		}
	}
	l.Router = New(Config{Policy: Rhizome, Weights: cost.DefaultWeights(), NearTie: DefaultMargins(), Seed: 1, Fits: fits},
		Deps{Fleet: workers, Index: prefixes, Approx: sent, Clock: &l.clock, Learned: l.learned})
}

// restart ends the process when nothing is in flight, and begins another.
func (l *loops) restart() {
	for _, a := range l.agents {
		if a.flight != nil {
			l.clock.Advance(max(0, a.at.Sub(l.clock.Now())))
			l.end(a)
		}
	}
	learned, sessions, fits := l.learned.Snapshot(1<<26), EncodeSessions(l.Sessions(time.Hour, 1000)), l.FitStates()
	if l.kept != keepsAll {
		fits = nil
	}
	l.open(fits)
	if l.kept != keepsNone {
		if err := l.learned.Restore(learned); err != nil {
			l.t.Fatal(err)
		}
	}
	if l.kept == keepsAll {
		all, err := DecodeSessions(sessions)
		if err != nil || len(all) < len(l.agents) {
			l.t.Fatalf("%d sessions kept, %v", len(all), err)
		}
		l.RestoreSessions(all, 0)
	}
}

// run lets so much time pass.
func (l *loops) run(d time.Duration) {
	until := l.clock.Now().Add(d)
	for {
		a := slices.MinFunc(l.agents, func(a, b *agentLoop) int { return cmp.Compare(a.at, b.at) })
		if a.at > until {
			l.clock.Advance(max(0, until.Sub(l.clock.Now())))
			return
		}
		l.clock.Advance(max(0, a.at.Sub(l.clock.Now())))
		if a.flight != nil {
			l.end(a)
		} else {
			l.send(a)
		}
	}
}

// say adds a message of so many words that nobody said before.
func (a *agentLoop) say(role string, words []uint32) {
	if len(a.tokens) > 0 {
		a.body.WriteByte(',')
	}
	fmt.Fprintf(&a.body, `{"role":%q,"content":"`, role)
	for _, w := range words {
		fmt.Fprintf(&a.body, "%x ", w)
	}
	a.body.WriteString(`"}`)
	a.tokens = append(a.tokens, uint32(len(role)))
	a.tokens = append(a.tokens, words...)
	a.ends = append(a.ends, len(a.tokens))
}

func drawWords(rng *rand.Rand, n int) []uint32 {
	words := make([]uint32, n)
	for i := range words {
		words[i] = 1000 + rng.Uint32N(1<<30)
	}
	return words
}

// send places an agent's next turn, of a new session if the last one is over.
func (l *loops) send(a *agentLoop) {
	if a.left == 0 {
		*a = agentLoop{name: fmt.Sprint("session ", l.rng.Uint64()), left: 10 + l.rng.IntN(11)}
		a.say("system", drawWords(clock.Rand(l.rng.Uint64N(3), "head"), 900))
	}
	a.left--
	a.say("user", drawWords(l.rng, 50+l.rng.IntN(200)))
	body := `{"model":"m","stream":true,"max_tokens":60,"messages":[` + a.body.String() + `]}`
	p, err := prompt.Parse(prompt.Chat, []byte(body))
	if err != nil {
		l.t.Fatal(err)
	}
	l.ids++
	d, err := l.Decide(Query{ID: fmt.Sprint(l.ids), Session: a.name, Prompt: p})
	if err != nil {
		l.t.Fatal(err)
	}
	to := slices.IndexFunc(l.inlets, func(in *fleet.Inlet) bool { return in.Member.Target == d.Target })
	cached := l.compute(to, a.tokens)
	l.cached, l.asked = l.cached+cached, l.asked+len(a.tokens)
	l.teach(a, p)
	a.flight, a.to, a.answered = d, to, drawWords(l.rng, 60)
	a.outcome = Outcome{Result: Completed, Usage: Usage{Known: true, PromptTokens: len(a.tokens), CachedTokens: cached, CompletionTokens: 60}}
	a.at = l.clock.Now().Add(100*time.Millisecond + time.Duration(len(a.tokens)-cached)*100*time.Microsecond)
}

// compute has a worker hold tokens, tells the router, and returns how many
// it held before.
func (l *loops) compute(worker int, tokens []uint32) (cached int) {
	p := &prompt.Request{Model: "m", Tokens: tokens}
	keys := p.TokenKeys(prompt.Form{BlockTokens: blockTokens})
	held := l.holds[worker]
	for len(keys) > cached && held[keys[cached]] {
		cached++
	}
	if cached == len(keys) {
		return cached * blockTokens
	}
	op := kv.Op{Kind: kv.Insert, Tier: kv.HBM, Root: kv.Root("m", "", ""), BlockTokens: blockTokens}
	if cached > 0 {
		op.HasParent, op.Parent = true, kv.EngineHash(keys[cached-1])
	}
	for i, k := range keys[cached:] {
		at := (cached + i) * blockTokens
		held[k] = true
		op.Blocks = append(op.Blocks, kv.Block{Hash: kv.EngineHash(k), Content: kv.ContentOf(tokens[at : at+blockTokens])})
	}
	seq := uint64(len(l.stored[worker]))
	l.stored[worker] = append(l.stored[worker], op)
	l.inlets[worker].Feed(engine.FeedEvent{Kind: engine.FeedBatch, Seq: seq, Rank: -1, Ops: []kv.Op{op}})
	return cached * blockTokens
}

// teach tells of a prompt's tokens what is asked for, as long as there are
// questions left.
func (l *loops) teach(a *agentLoop, p *prompt.Request) {
	want := l.learned.Note(p, loopsClass)
	if want.Gain <= 0 || l.questions < want.Questions() {
		return
	}
	l.questions -= want.Questions()
	lesson := prompt.Lesson{Class: loopsClass, Request: p, Whole: a.tokens, At: want.At}
	if want.At >= 0 {
		lesson.Part = a.tokens[:a.ends[want.At]]
	}
	l.learned.Learn(lesson)
}

// end has what is in flight answered; the agent works with that for a while.
func (l *loops) end(a *agentLoop) {
	l.FirstByte(a.flight)
	l.Done(a.flight, a.outcome)
	a.flight = nil
	a.say("assistant", a.answered)
	l.compute(a.to, a.tokens)
	a.at = l.clock.Now().Add(time.Second + time.Duration(l.rng.Int64N(int64(2*time.Second))))
}

// A session that an earlier process placed, of whose prompt this one knows the
// tokens of the head alone, which every worker holds, goes on where it was. A
// worker that lost some of the head holds nothing behind it, and of a session of
// this process it is known what was sent.
func TestARestoredSessionCountsBehindTheHead(t *testing.T) {
	const headTokens, before = 2000, 9000
	head, told := strings.Repeat("system ", 1500), make([]uint32, headTokens+100)
	for i := range told {
		told[i] = uint32(i)
	}
	chat := func(user string) *prompt.Request {
		p, err := prompt.Parse(prompt.Chat, fmt.Appendf(nil, `{"model":"m","stream":true,"messages":[{"role":"system","content":%q},{"role":"user","content":%q}]}`, head, user))
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	place := func(restored bool, lost int) (h *house, d *Decision, last *fleet.Member) {
		h = newHouse(t, Rhizome, 6)
		h.deps.Learned = prompt.NewLearned(0)
		h.deps.Learned.SetForms([]prompt.Form{{BlockTokens: blockTokens}})
		for i := range 3 {
			p := chat(fmt.Sprint("user ", i))
			own := slices.Clone(told)
			own[headTokens] = uint32(1e6 + i)
			h.deps.Learned.Learn(prompt.Lesson{Class: loopsClass, Request: p, Whole: own, At: h.deps.Learned.Note(p, loopsClass).At, Part: own[:headTokens]})
		}
		p := chat(strings.Repeat("long ", 8000))
		known := h.deps.Learned.Find(p, loopsClass, prompt.Form{BlockTokens: blockTokens})
		if len(known.Keys) < headTokens/blockTokens-2 {
			t.Fatalf("%d blocks of the head are known", len(known.Keys))
		}
		last = h.members[4]
		for _, m := range h.members {
			m.SetRenderClass("m", uint64(loopsClass), m.Cache().Slot, h.clock.Now().Add(time.Hour))
			keys := known.Keys
			if m == last {
				keys = keys[:len(keys)-lost]
			}
			var changes []index.Change
			for _, k := range keys {
				changes = append(changes, index.Change{Key: k, Tier: kv.HBM, Present: true})
			}
			h.index.Apply(m.Cache().Slot, changes)
		}
		if restored {
			h.RestoreSessions([]SavedSession{{Hash: xxh3.HashString("s"), Target: last.Target, Since: time.Minute, Tokens: before}}, 0)
		}
		d, err := h.Decide(Query{ID: "1", Session: "s", Prompt: p})
		if err != nil {
			t.Fatal(err)
		}
		return h, d, last
	}
	h, d, last := place(true, 0)
	if d.Target != last.Target || d.source != fromSession || d.PredictedCachedTokens != before/blockTokens*blockTokens {
		t.Errorf("placed at %v with %d tokens cached by %q, was at %v with %d", d.Target, d.PredictedCachedTokens, d.source, last.Target, before)
	}
	again, err := h.Decide(Query{ID: "2", Session: "s", Prompt: chat(strings.Repeat("long ", 8000) + "and more")})
	if err != nil {
		t.Fatal(err)
	}
	if again.Target != last.Target || again.source != fromLearned {
		t.Errorf("then placed at %v by %q, was sent to %v", again.Target, again.source, last.Target)
	}
	for name, d := range map[string]*Decision{"no session": second(place(false, 0)), "a head with a gap": second(place(true, 1))} {
		if d.source == fromSession || d.PredictedCachedTokens > headTokens {
			t.Errorf("%s: %d tokens cached by %q", name, d.PredictedCachedTokens, d.source)
		}
	}
}

func second[A, B, C any](_ A, b B, _ C) B { return b }
