package route

import (
	"math"
	"testing"
	"time"

	"github.com/rhizome-router/rhizome/cost"
	"github.com/rhizome-router/rhizome/engine"
	"github.com/rhizome-router/rhizome/fleet"
	"github.com/rhizome-router/rhizome/kv"
)

// What a request before it is still to compute counts as a hit, as far as such
// promises are kept, and has to be waited for.
func TestPromisedHitsAreDoubtedAndWaitedFor(t *testing.T) {
	h := newHouse(t, Rhizome, 1)
	p := tokens(t, 1600, 0, 0)
	first := h.decide(t, p)
	d := h.decide(t, tokens(t, 1600, 160, 1))
	if d.promised != 1600 || d.PredictedCachedTokens != 1600 {
		t.Fatalf("%v of %d cached tokens are promised, want all 1600", d.promised, d.PredictedCachedTokens)
	}
	class := d.seen.class
	c := &h.cands[0]
	if class.confirm.Probability() != 1 || c.hit.UnsureTokens != 0 {
		t.Errorf("P(confirm) %v and %v tokens unsure, before any was broken", class.confirm.Probability(), c.hit.UnsureTokens)
	}
	if c.hit.ProducerMicros <= 0 || c.hit.ProducerMicros > float64(first.PredictedTTFT.Microseconds()) {
		t.Errorf("the producer takes %v µs more, of %v", c.hit.ProducerMicros, first.PredictedTTFT)
	}
	h.clock.Advance(time.Second)
	h.FirstByte(d)
	h.Done(d, Outcome{Result: Completed, Usage: Usage{Known: true, PromptTokens: 1760, CachedTokens: 800, CompletionTokens: 10}})
	if got := class.confirm.Probability(); math.Abs(got-20.5/21) > 1e-9 {
		t.Errorf("P(confirm) %v after a promise of which half was kept", got)
	}
	h.decide(t, tokens(t, 1600, 160, 2))
	if c := &h.cands[0]; math.Abs(c.hit.UnsureTokens-c.promised*0.5/21) > 1e-9 || c.hit.ProducerMicros != 0 {
		t.Errorf("unsure: %v of %v; late producer: %v", c.hit.UnsureTokens, c.promised, c.hit.ProducerMicros)
	}
}

// A workflow that will come back goes where its context will still be.
func TestReturnsAvoidPressedCaches(t *testing.T) {
	h := newHouse(t, Rhizome, 2)
	h.clock.Advance(time.Second)
	pressed := h.members[0].Cache()
	pressed.Evicting[kv.HBM], pressed.HeldTokens[kv.HBM] = true, 100_000
	request := cost.Request{PromptTokens: 8000, OutputTokens: 100, Choices: 1}
	price := func(m *fleet.Member, back cost.Return) cost.Terms {
		p := tokens(t, 0, 8000, 1)
		hits := h.matched(h.members[:], p)
		i := 0
		if m == h.members[1] {
			i = 1
		}
		request.Return = back
		c := candidate{member: m}
		z := h.size(&Query{Prompt: p}, deepest(hits))
		h.price(h.clock.Now(), &c, &hits[i], &z, p, request)
		return c.terms
	}
	back := cost.Return{Probability: 1, AfterMicros: 30e6, ContextTokens: 8100}
	for s := range 120 { // 10,000 tokens a second: all is new after 10 s
		pressed.StoredTokens = uint64(10_000 * s)
		h.members[0].SetCache(pressed)
		price(h.members[0], cost.Return{})
		h.clock.Advance(time.Second)
	}
	if got := price(h.members[0], cost.Return{}).WorkflowMicros; got != 0 {
		t.Errorf("%v µs for a request that nobody expects to come back", got)
	}
	if got := price(h.members[1], back).WorkflowMicros; got != 0 {
		t.Errorf("%v µs on a worker that evicts nothing", got)
	}
	class := cost.Generic()
	all := class.TokenMicros*8100 + class.PairMicros*cost.Pairs(8100, 0)
	if got, want := price(h.members[0], back).WorkflowMicros, all*math.Exp(-1.0/3); math.Abs(got/want-1) > 0.1 {
		t.Errorf("%v µs on the worker whose cache is pressed, want about %v", got, want)
	}
	h.cfg.Omit = cost.OmitWorkflow
	c := candidate{member: h.members[0]}
	p := tokens(t, 0, 8000, 1)
	request.Return = back
	hits := h.matched(h.members, p)
	z := h.size(&Query{Prompt: p}, deepest(hits))
	h.price(h.clock.Now(), &c, &hits[0], &z, p, request)
	if c.terms.WorkflowMicros == 0 || c.judged.WorkflowMicros != 0 {
		t.Errorf("left out: %+v, known: %+v", c.judged, c.terms)
	}
}

// Sessions that come back teach how often that happens, and how late.
func TestReuseIsLearnedFromSessions(t *testing.T) {
	h := newHouse(t, Rhizome, 1)
	for i := range 20 {
		c := h.members[0].Cache()
		c.StoredTokens = uint64(5000 * i)
		h.members[0].SetCache(c)
		d, err := h.Decide(Query{Session: "s", Prompt: tokens(t, 100, 0, 0)})
		if err != nil {
			t.Fatal(err)
		}
		h.finish(d, time.Millisecond)
	}
	reuse := &h.byKey()[0].reuse
	if soon, late := reuse.Probability(0), reuse.Probability(50_000); math.Abs(soon-19.0/30) > 1e-9 || late != 0 {
		t.Errorf("reuse at once %v, want 19 of 20 and 10 that are assumed; after 50,000 tokens %v, want 0", soon, late)
	}
}

// SGLang keeps room for outputs, unless its operator says otherwise.
func TestAdmissionFollowsTheEngine(t *testing.T) {
	h := newHouse(t, Rhizome, 1)
	m := h.members[0]
	if got := h.constants(m).Admit; got != cost.WholePrompt {
		t.Errorf("an engine not known yet: %v", got)
	}
	m.SetEngine(engine.SGLang)
	if got := h.constants(m).Admit; got != cost.SGLangRatio {
		t.Errorf("SGLang: %v", got)
	}
	m.Worker.Spec.Admit = "whole_prompt"
	if got := h.constants(m).Admit; got != cost.WholePrompt {
		t.Errorf("SGLang, as its operator says: %v", got)
	}
}
