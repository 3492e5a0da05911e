package route

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/fleet"
	"github.com/rhizome-router/rhizome/index"
	"github.com/rhizome-router/rhizome/kv"
	"github.com/rhizome-router/rhizome/prompt"
)

// told plays a decision to its end; the response says how much was cached.
func (h *house) told(d *Decision, cached int) {
	h.clock.Advance(50 * time.Millisecond)
	h.FirstByte(d)
	h.clock.Advance(50 * time.Millisecond)
	h.Done(d, Outcome{Usage: Usage{Known: true, PromptTokens: int(d.booking.PromptTokens), CachedTokens: cached, CompletionTokens: 10}})
}

// verdict returns what is said of a decision once all news has come.
func (h *house) verdict(t *testing.T, d *Decision) Audit {
	t.Helper()
	h.clock.Advance(confirmLag)
	e, ok := h.Explain(d.ID)
	if !ok || e.Audit == nil {
		t.Fatalf("no audit of %s: %+v", d.ID, e)
	}
	return *e.Audit
}

func (h *house) remove(m *fleet.Member, p *prompt.Request, block int) {
	k := p.TokenKeys(prompt.Form{BlockTokens: blockTokens})[block]
	h.index.Apply(m.Cache().Slot, []index.Change{{Key: k}})
}

func TestShortfallsAreAttributed(t *testing.T) {
	for _, c := range []struct {
		name   string
		cached int
		during func(h *house, m *fleet.Member, p *prompt.Request)
		want   Cause
		lost   bool // the worker is charged
	}{
		{"as predicted", 1600, nil, Exact, false},
		{"short by less than a block", 1585, nil, Exact, false},
		{"more than predicted", 1616, nil, Under, false},
		{"short, and nothing happened", 800, nil, Render, false},
		{"short, and another block went", 800, func(h *house, m *fleet.Member, p *prompt.Request) { h.remove(m, p, 10) }, Render, false},
		{"short, and what is missing went", 800, func(h *house, m *fleet.Member, p *prompt.Request) { h.remove(m, p, 60) }, Residency, true},
		{"short, and nobody remembers", 800, func(h *house, m *fleet.Member, p *prompt.Request) {
			h.index.Apply(m.Cache().Slot, make([]index.Change, 3000))
		}, Unwitnessed, false},
		{"short, and the feed was down", 800, func(_ *house, m *fleet.Member, _ *prompt.Request) {
			cache := m.Cache()
			cache.Live = false
			m.SetCache(cache)
		}, Residency, false},
		{"short, and the feed started over", 800, func(h *house, m *fleet.Member, _ *prompt.Request) {
			cache := m.Cache()
			cache.FreshAt = h.clock.Now()
			m.SetCache(cache)
		}, Residency, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHouse(t, Rhizome, 1)
			h.clock.Advance(time.Second)
			m, p := h.members[0], tokens(t, 1600, 160, 1)
			h.hold(m, p, 0, 100, kv.HBM)
			d := h.decide(t, p)
			if d.PredictedCachedTokens != 1600 {
				t.Fatalf("%d predicted", d.PredictedCachedTokens)
			}
			if c.during != nil {
				c.during(h, m, p)
			}
			h.told(d, c.cached)
			if e, _ := h.Explain(d.ID); e.Audit == nil || e.Audit.Pending != (c.cached <= 1584) {
				t.Errorf("at the end: %+v", e.Audit)
			}
			if got := h.verdict(t, d); got.Cause != c.want || got.Pending || got.ShortTokens != 1600-c.cached {
				t.Errorf("%+v, want %v", got, c.want)
			}
			if lost := m.Precision() < 1; lost != c.lost {
				t.Errorf("precision %v", m.Precision())
			}
		})
	}
}

// News of a removal that comes after the response still counts.
func TestLateNewsIsWaitedFor(t *testing.T) {
	h := newHouse(t, Rhizome, 1)
	m, p := h.members[0], tokens(t, 1600, 160, 1)
	h.hold(m, p, 0, 100, kv.HBM)
	d := h.decide(t, p)
	h.told(d, 800)
	h.clock.Advance(100 * time.Millisecond)
	h.remove(m, p, 50)
	if got := h.verdict(t, d); got.Cause != Residency {
		t.Errorf("%+v", got)
	}
}

func TestBrokenPromisesAreNobodysFault(t *testing.T) {
	h := newHouse(t, Rhizome, 1)
	first := h.decide(t, tokens(t, 1600, 160, 1))
	second := h.decide(t, tokens(t, 1600, 160, 2))
	if second.PredictedCachedTokens != 1600 {
		t.Fatalf("%d predicted", second.PredictedCachedTokens)
	}
	h.told(second, 0)
	h.told(first, 0)
	if got := h.verdict(t, second); got.Cause != Promised {
		t.Errorf("%+v", got)
	}
	if p := h.members[0].Precision(); p != 1 {
		t.Errorf("precision %v", p)
	}
}

func TestNoEventsNoWitness(t *testing.T) {
	h := newHouse(t, Rhizome, 1)
	p := text(t, string(make([]byte, 1<<15)))
	h.told(h.decide(t, p), 0)
	d := h.decide(t, p)
	if d.PredictedCachedTokens < 1000 {
		t.Fatalf("%d predicted", d.PredictedCachedTokens)
	}
	h.told(d, 0)
	if got := h.verdict(t, d); got.Cause != Unwitnessed {
		t.Errorf("%+v", got)
	}
}

// A worker that keeps losing what it should have is trusted less, never below
// half, and then its events are followed anew.
func TestPrecisionFallsAndResyncs(t *testing.T) {
	h := newHouse(t, Rhizome, 1)
	m := h.members[0]
	miss := func(i int) *Decision {
		p := tokens(t, 0, 325, i)
		h.hold(m, p, 0, 20, kv.HBM)
		d := h.decide(t, p)
		h.remove(m, p, 0)
		// Without a first byte no events are expected of it, and none come.
		h.Done(d, Outcome{Usage: Usage{Known: true, PromptTokens: 325, CompletionTokens: 10}})
		h.verdict(t, d)
		return d
	}
	last := miss(0)
	if last.PredictedCachedTokens != 320 {
		t.Errorf("%d predicted at first", last.PredictedCachedTokens)
	}
	for i := range 15 {
		last = miss(1 + i)
	}
	p := m.Precision()
	if p > 0.65 || p < 0.55 || last.PredictedCachedTokens > 224 || last.PredictedCachedTokens%blockTokens != 0 {
		t.Errorf("precision %v, %d predicted after 16 misses", p, last.PredictedCachedTokens)
	}
	if m.Resyncs() != 0 {
		t.Error("resynced above the floor")
	}
	for i := range 10 {
		last = miss(50 + i)
	}
	if m.Resyncs() != 1 || m.Precision() < 0.8 {
		t.Errorf("%d resyncs, precision %v", m.Resyncs(), m.Precision())
	}
	for range 60 {
		m.Kept(h.clock.Now(), 0, 1)
	}
	if m.Resyncs() > 2 || m.Precision() != 0.5 {
		t.Errorf("%d resyncs within a minute, precision %v", m.Resyncs(), m.Precision())
	}
}

// Where responses say nothing, the worker's own counters do, less what others
// sent there.
func TestWindowsWithoutUsage(t *testing.T) {
	h := newHouse(t, Rhizome, 1)
	m, p := h.members[0], tokens(t, 1600, 10, 1)
	h.hold(m, p, 0, 100, kv.HBM)
	scrape := func(queried, found float64) {
		m.SetSignals(fleet.Signals{Lookups: fleet.Lookups{QueriedTokens: queried, FoundTokens: found, At: h.clock.Now()}})
	}
	h.clock.Advance(time.Second)
	scrape(1e6, 5e5)
	play := func() {
		d := h.decide(t, p)
		h.clock.Advance(2 * time.Second)
		h.FirstByte(d)
		h.Done(d, Outcome{Usage: Usage{CachedTokens: -1}})
	}
	play()
	for range 20 {
		play()
	}
	// Half of what was looked up is others', and half of ours was not there.
	scrape(1e6+2*21*1610, 5e5+2*21*800)
	play()
	w := h.audits.workers[m.Target]
	if w.windowPredicted != 21*1600 || w.windowActual < 21*790 || w.windowActual > 21*810 {
		t.Errorf("predicted %v, counted %v", w.windowPredicted, w.windowActual)
	}
	if got := m.Precision(); got > 0.85 || got < 0.7 {
		t.Errorf("precision %v after 21 requests that found half", got)
	}
}

func TestWindowEnds(t *testing.T) {
	at := func(s int) clock.Instant { return clock.Instant(time.Duration(s) * time.Second) }
	began := window{began: fleet.Lookups{QueriedTokens: 1000, FoundTokens: 500, At: at(10)}, prompt: 2000, predicted: 1000, requests: 20, blind: 20}
	for _, c := range []struct {
		name  string
		w     window
		now   fleet.Lookups
		found float64
		ok    bool
	}{
		{"no counters", window{}, fleet.Lookups{}, 0, false},
		{"the first", window{}, fleet.Lookups{QueriedTokens: 1000, FoundTokens: 500, At: at(10)}, 0, false},
		{"too soon", began, fleet.Lookups{QueriedTokens: 3000, FoundTokens: 1500, At: at(39)}, 0, false},
		{"all ours", began, fleet.Lookups{QueriedTokens: 3000, FoundTokens: 1500, At: at(40)}, 1000, true},
		{"less counted than sent", began, fleet.Lookups{QueriedTokens: 2000, FoundTokens: 1400, At: at(40)}, 900, true},
		{"half ours", began, fleet.Lookups{QueriedTokens: 5000, FoundTokens: 2500, At: at(40)}, 1000, true},
		{"a new process", began, fleet.Lookups{QueriedTokens: 10, FoundTokens: 5, At: at(40)}, 0, false},
	} {
		if found, ok := c.w.close(c.now); found != c.found || ok != c.ok {
			t.Errorf("%s: %v %v, want %v %v", c.name, found, ok, c.found, c.ok)
		}
	}
}

// Where the tokens of a text were learned, and what they say should be there is
// not, what was learned is given up.
func TestLearnedTokensPayForRenderErrors(t *testing.T) {
	const render, headTokens = prompt.Class(7), 2000
	h := newHouse(t, Rhizome, 1)
	h.deps.Learned = prompt.NewLearned(0)
	h.deps.Learned.SetForms([]prompt.Form{{BlockTokens: blockTokens}})
	m := h.members[0]
	slot := m.Cache().Slot
	m.SetRenderClass("m", uint64(render), slot, h.clock.Now().Add(time.Hour))
	head := strings.Repeat("system ", 1500)
	chat := func(user string) *prompt.Request {
		raw, err := json.Marshal(map[string]any{"model": "m", "stream": true, "messages": []map[string]string{{"role": "system", "content": head}, {"role": "user", "content": user}}})
		if err != nil {
			t.Fatal(err)
		}
		p, err := prompt.Parse(prompt.Chat, raw)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	whole := make([]uint32, headTokens+100)
	for i := range whole {
		whole[i] = uint32(i)
	}
	for i, user := range []string{"one", "two", "three"} {
		p := chat(user)
		want := h.deps.Learned.Note(p, render)
		own := slices.Clone(whole)
		own[headTokens] = uint32(1e6 + i)
		h.deps.Learned.Learn(prompt.Lesson{Class: render, Request: p, Whole: own, At: want.At, Part: own[:headTokens]})
	}
	p := chat("four")
	known := h.deps.Learned.Find(p, render, prompt.Form{BlockTokens: blockTokens})
	if len(known.Keys) == 0 {
		t.Fatalf("nothing was learned: %+v", h.deps.Learned.Stats())
	}
	var changes []index.Change
	for _, k := range known.Keys {
		changes = append(changes, index.Change{Key: k, Present: true})
	}
	h.index.Apply(slot, changes)
	d := h.decide(t, p)
	if d.predicted.source != fromLearned || d.PredictedCachedTokens < headTokens-2*blockTokens {
		t.Fatalf("%d predicted from %s", d.PredictedCachedTokens, d.predicted.source)
	}
	h.told(d, 0)
	if got := h.verdict(t, d); got.Cause != Render {
		t.Fatalf("%+v", got)
	}
	if m.Precision() != 1 {
		t.Errorf("the worker was charged: %v", m.Precision())
	}
	if known := h.deps.Learned.Find(chat("five"), render, prompt.Form{BlockTokens: blockTokens}); len(known.Keys) != 0 {
		t.Errorf("%d blocks are still known", len(known.Keys))
	}
}

func TestAuditMetrics(t *testing.T) {
	h := newHouse(t, Rhizome, 2)
	m, p := h.members[0], tokens(t, 1600, 160, 1)
	h.hold(m, p, 0, 100, kv.HBM)
	d := h.decide(t, p)
	h.told(d, 800)
	h.verdict(t, d)
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(h.Collector())
	read := func(name string, labels map[string]string) *dto.Metric {
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			for _, x := range f.Metric {
				match := 0
				for _, l := range x.Label {
					if labels[l.GetName()] == l.GetValue() {
						match++
					}
				}
				if f.GetName() == name && match == len(x.Label) {
					return x
				}
			}
		}
		return nil
	}
	of := func(more ...string) map[string]string {
		l := map[string]string{"worker": m.Worker.Spec.URL, "rank": ""}
		if len(more) > 0 {
			l[more[0]] = more[1]
		}
		return l
	}
	if x := read("rhizome_audit_requests_total", of("cause", "render")); x == nil || x.Counter.GetValue() != 1 {
		t.Errorf("requests: %v", x)
	}
	if x := read("rhizome_audit_short_tokens_total", of("cause", "render")); x == nil || x.Counter.GetValue() != 800 {
		t.Errorf("tokens: %v", x)
	}
	if x := read("rhizome_audit_cached_share", of()); x == nil || x.Histogram.GetSampleCount() != 1 || x.Histogram.GetSampleSum() != -800./1760 {
		t.Errorf("cached: %v", x)
	}
	if x := read("rhizome_audit_ttft_ratio", of()); x == nil || x.Histogram.GetSampleCount() != 1 {
		t.Errorf("ttft: %v", x)
	}
	h.view = fleet.NewView(h.members[1:], nil)
	if x := read("rhizome_audit_requests_total", of("cause", "render")); x != nil || len(h.audits.workers) != 0 {
		t.Errorf("a worker that left still has %v, %d results", x, len(h.audits.workers))
	}
}
