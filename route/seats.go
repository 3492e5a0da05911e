package route

import (
	"iter"
	"slices"
	"sync/atomic"
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/fleet"
	"github.com/rhizome-router/rhizome/index"
	"github.com/rhizome-router/rhizome/prompt"
)

// seats say which member of a view is in which slot of the index, and in what
// blocks the members' caches are. They are made once and read without a lock;
// who finds that they are not so any more says that they are stale.
type seats struct {
	view    *fleet.View
	bySlot  []int32  // the place in view.Members; -1: nobody's
	blocks  []blocks // each once
	unfed   bool     // there are caches of which no events tell
	made    clock.Instant
	isStale atomic.Bool
	// renderings is how the members turn texts into tokens; nil until asked for.
	renderings atomic.Pointer[renderings]
}

// blocks are a form of a cache's blocks, but for what depends on the prompt.
type blocks struct {
	tokens     int
	saltInRoot bool
}

func (b blocks) form(p *prompt.Request) prompt.Form {
	return prompt.Form{BlockTokens: b.tokens, SaltInRoot: b.saltInRoot && p.Salt != ""}
}

// forms yields in what forms a prompt's keys are needed, each once.
func (s *seats) forms(p *prompt.Request) iter.Seq[prompt.Form] {
	return func(yield func(prompt.Form) bool) {
		for k, b := range s.blocks {
			form := b.form(p)
			if !slices.ContainsFunc(s.blocks[:k], func(o blocks) bool { return o.form(p) == form }) && !yield(form) {
				return
			}
		}
	}
}

// blocksOf returns in what blocks a cache is, if events tell of it.
func blocksOf(c *fleet.Cache) (b blocks, fed bool) {
	if c.BlockTokens <= 0 || c.Known != fleet.ByEvents {
		return blocks{}, false
	}
	return blocks{c.BlockTokens, c.SaltInRoot}, true
}

// reseatEvery bounds how often seats are made anew for one view.
const reseatEvery = 20 * time.Millisecond

// seatsOf returns the seats of a view.
func (r *Router) seatsOf(now clock.Instant, view *fleet.View) *seats {
	s := r.seats.Load()
	if s != nil && s.view == view && !(s.isStale.Load() && now.Sub(s.made) >= reseatEvery) {
		return s
	}
	s = &seats{view: view, made: now}
	for i, m := range view.Members {
		c := m.CacheAt()
		for int(c.Slot) >= len(s.bySlot) {
			s.bySlot = append(s.bySlot, -1)
		}
		if !m.Outdated() {
			s.bySlot[c.Slot] = int32(i)
		}
		if b, fed := blocksOf(c); !fed {
			s.unfed = true
		} else if !slices.Contains(s.blocks, b) {
			s.blocks = append(s.blocks, b)
		}
	}
	r.seats.Store(s)
	return s
}

// at returns the place in the view of the member in a slot; -1 where it is
// nobody's, or was somebody's that has left it.
func (s *seats) at(slot index.Slot) int32 {
	if int(slot) >= len(s.bySlot) {
		return -1
	}
	i := s.bySlot[slot]
	if i >= 0 && (s.view.Members[i].CacheAt().Slot != slot || s.view.Members[i].Outdated()) {
		return -1
	}
	return i
}

// check notes that the seats are stale where a member isn't as they say.
func (s *seats) check(i int32) {
	m := s.view.Members[i]
	c := m.CacheAt()
	b, fed := blocksOf(c)
	seated := int(c.Slot) < len(s.bySlot) && s.bySlot[c.Slot] == i
	if seated == m.Outdated() || fed && !slices.Contains(s.blocks, b) || !fed && !s.unfed {
		s.isStale.Store(true)
	}
}
