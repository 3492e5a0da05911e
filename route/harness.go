package route

import (
	"slices"

	"github.com/rhizome-router/rhizome/index"
	"github.com/rhizome-router/rhizome/kv"
	"github.com/rhizome-router/rhizome/prompt"
)

// harnesses remembers, for each tool, the beginning that the prompts have in
// common whose answers may call it: system prompt and tools. The policy article
// rewards workers that hold those of the tools expected next. The zero value
// has seen nothing.
type harnesses struct {
	recent, older map[toolKey]harness // two generations of at most maxTools
}

// harness is a prompt's beginning as keys of one form; the zero form stands for
// what is remembered as sent.
type harness struct {
	form prompt.Form
	keys []kv.Key
}

// maxHarnessKeys bounds how much of a beginning is remembered.
const maxHarnessKeys = 1024

func (h *harnesses) of(key toolKey) harness {
	if found, ok := h.recent[key]; ok {
		return found
	}
	return h.older[key]
}

// observe takes what q's prompt begins with, in the form that its worker knows
// it by. What the prompts of a tool do not share is no harness; one that shares
// nothing with those before has another.
func (h *harnesses) observe(q *Query, form prompt.Form) {
	if len(q.Agent.ExpectedTools) == 0 {
		return
	}
	keys, _ := sentKeys(q.Prompt)
	if form.BlockTokens > 0 {
		keys = q.Prompt.TokenKeys(form)
	}
	keys = keys[:min(len(keys), maxHarnessKeys)]
	for _, name := range q.Agent.ExpectedTools {
		key := toolKey{q.Tenant, name, false}
		was := h.of(key)
		common := 0
		for was.form == form && common < min(len(was.keys), len(keys)) && was.keys[common] == keys[common] {
			common++
		}
		now := harness{form, was.keys[:common:common]}
		if common == 0 {
			now.keys = slices.Clone(keys)
		}
		if h.recent == nil || len(h.recent) >= maxTools {
			h.older, h.recent = h.recent, make(map[toolKey]harness)
		}
		h.recent[key] = now
	}
}

// expectedHits returns for each of r.cands how many of the tools that q expects
// have their harness wholly in its HBM.
func (r *Router) expectedHits(q *Query) []int {
	counts := make([]int, len(r.cands))
	if len(q.Agent.ExpectedTools) == 0 {
		return counts
	}
	at := make(map[index.Slot]int, len(r.cands))
	for i := range r.cands {
		if c := &r.cands[i]; !c.member.Outdated() {
			at[c.cache.Slot] = i
		}
	}
	var hits []index.Hit
	for _, name := range q.Agent.ExpectedTools {
		h := r.harnesses.of(toolKey{q.Tenant, name, false})
		switch {
		case len(h.keys) == 0:
			continue
		case h.form.BlockTokens > 0:
			hits = r.deps.Index.Match(h.keys, hits[:0])
		default:
			hits = r.deps.Approx.Match(h.keys, func(s index.Slot) index.Horizon {
				if i, ok := at[s]; ok {
					return r.cands[i].member.Horizon(r.cands[i].cache)
				}
				return index.Horizon{}
			}, hits[:0])
		}
		for _, hit := range hits {
			if i, ok := at[hit.Slot]; ok && r.cands[i].form == h.form && hit.Run.HBM >= len(h.keys) {
				counts[i]++
			}
		}
	}
	return counts
}

// expectedShare is what the article's cost reads of them.
func expectedShare(hits int, q *Query) float64 {
	return float64(hits) / float64(max(1, len(q.Agent.ExpectedTools)))
}
