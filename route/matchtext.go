package route

import (
	"maps"
	"slices"

	"github.com/rhizome-router/rhizome/index"
	"github.com/rhizome-router/rhizome/kv"
	"github.com/rhizome-router/rhizome/prompt"
)

// matchText is holdersBy for a text. What its tokens are is the same on all
// workers of a render class, so it is looked for by class and not by worker; what
// was sent where is listed by what a text begins with.
func (r *Router) matchText(s *search, p *prompt.Request) (all bool) {
	all = true
	s.hitOf = slices.Grow(s.hitOf[:0], len(s.view.Members))[:len(s.view.Members)]
	for _, class := range r.classesOf(s, p.Model) {
		for form := range s.seats.forms(p) {
			known := r.deps.Learned.Find(p, class, form)
			s.note(known)
			s.found = r.deps.Index.Match(known.Keys, s.found[:0])
			for j := range s.found {
				i := s.seats.at(s.found[j].Slot)
				if i < 0 {
					all = false
					continue
				}
				m := s.view.Members[i]
				if h := r.none(s, m, p); same(h.known, known) {
					h.take(s.now, m, &s.found[j], fromLearned)
					s.hits, s.holders = append(s.hits, h), append(s.holders, i)
					s.hitOf[i] = int32(len(s.hits))
				}
			}
		}
	}
	learned := s.holders
	if !r.matchSent(s, p) {
		all = false
	}
	for _, i := range learned {
		s.hitOf[i] = 0
	}
	return all
}

// matchSent adds what a text's beginnings were sent where.
func (r *Router) matchSent(s *search, p *prompt.Request) (all bool) {
	keys, chunks := sentKeys(p)
	all = r.findSent(s, keys)
	for _, found := range s.found {
		i := s.seats.at(found.Slot)
		if i < 0 {
			continue // it just left
		}
		if k := s.hitOf[i]; k > 0 {
			s.hits[k-1].sent = found.Run
			continue
		}
		h := r.none(s, s.view.Members[i], p)
		if len(h.known.Keys) > 0 {
			h.sent = found.Run
		} else {
			h.run, h.source, h.chunks = found.Run, fromSent, chunks
		}
		s.hits, s.holders = append(s.hits, h), append(s.holders, i)
	}
	return all
}

// findSent finds where a prompt's beginnings were sent. It returns false where
// that is a slot that nobody has a seat for.
func (r *Router) findSent(s *search, keys []kv.Key) (all bool) {
	all = true
	s.found = r.deps.Approx.Match(keys, func(slot index.Slot) index.Horizon {
		if i := s.seats.at(slot); i >= 0 {
			return s.view.Members[i].Horizon(s.view.Members[i].CacheAt())
		}
		all = false
		return index.Horizon{}
	}, s.found[:0])
	return all
}

// renderings are the render classes that the members of models last were of, when
// so many changes of classes had been.
type renderings struct {
	changes uint64
	classes map[string][]prompt.Class // by model
}

// classesOf returns the render classes of those that serve a model, and perhaps
// some that none is of any more: whether a class holds now changes with time, and
// with caches, of which nobody is told.
func (r *Router) classesOf(s *search, model string) []prompt.Class {
	if r.deps.Learned == nil {
		return nil
	}
	changes, old := r.deps.Learned.ClassChanges(), s.seats.renderings.Load()
	current := old != nil && old.changes == changes
	if current {
		if classes, ok := old.classes[model]; ok {
			return classes
		}
	}
	var classes []prompt.Class
	for _, m := range s.members {
		if class := prompt.Class(m.LastRenderClass(model)); class != 0 && !slices.Contains(classes, class) {
			classes = append(classes, class)
		}
	}
	fresh := &renderings{changes: changes, classes: make(map[string][]prompt.Class)}
	if current {
		maps.Copy(fresh.classes, old.classes)
	}
	fresh.classes[model] = classes
	s.seats.renderings.Store(fresh)
	return classes
}
