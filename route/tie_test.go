package route

import (
	"fmt"
	"testing"

	"github.com/rhizome-router/rhizome/kv"
)

// An explanation says who was in the near-tie band and what decided there.
func TestExplanationTellsTheTie(t *testing.T) {
	for _, c := range []struct {
		name   string
		set    func(h *house)
		rule   TieRule
		inside int
	}{
		{"idle and empty", func(*house) {}, ByDraw, 3},
		{"one holds it", func(h *house) { h.hold(h.members[1], tokens(t, 4000, 0, 0), 0, 200, kv.HBM) }, ByCost, 1},
		{"one holds a block more", func(h *house) { h.hold(h.members[1], tokens(t, 4000, 0, 0), 0, 1, kv.HBM) }, ByHit, 3},
		{"a session", func(h *house) { h.sessions.put("s", session{target: h.members[2].Target}) }, BySession, 3},
	} {
		h := newHouse(t, Rhizome, 3)
		c.set(h)
		d, err := h.Decide(Query{ID: c.name, Session: "s", Prompt: tokens(t, 4000, 0, 0)})
		if err != nil {
			t.Fatal(err)
		}
		e, _ := h.Explain(c.name)
		if e.NearTie == nil || e.NearTie.Rule != c.rule || e.NearTie.Inside != c.inside || e.NearTie.BandMicros <= 0 {
			t.Errorf("%s: %+v", c.name, e.NearTie)
			continue
		}
		inside := 0
		for _, candidate := range e.Candidates {
			if candidate.InBand != (candidate.CostMicros <= e.Candidates[0].CostMicros+e.NearTie.BandMicros) {
				t.Errorf("%s: %+v", c.name, candidate)
			}
			if candidate.InBand {
				inside++
			}
		}
		if inside != c.inside {
			t.Errorf("%s: %d candidates say they are inside", c.name, inside)
		}
		h.Done(d, Outcome{Result: Cancelled})
	}
}

// Under the article's policy the terms are the article's, and make the cost.
func TestExplanationHasTheArticlesTerms(t *testing.T) {
	for _, policy := range Policies {
		h := newHouse(t, policy, 2)
		d := h.decide(t, tokens(t, 1000, 0, 0))
		e, _ := h.Explain(fmt.Sprint(h.ids))
		for _, c := range e.Candidates {
			if (c.Article != nil) != (policy == ArticleCost) {
				t.Errorf("%s: %+v", policy, c)
			}
			if c.Article != nil && c.Article.TotalMicros() != c.CostMicros {
				t.Errorf("cost %v, terms %+v", c.CostMicros, c.Article)
			}
		}
		if (e.NearTie != nil) != (policy == ArticleCost || policy == Rhizome) {
			t.Errorf("%s: %+v", policy, e.NearTie)
		}
		h.Done(d, Outcome{Result: Cancelled})
	}
}
