package fleet

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/index"
)

// maxRendered bounds how many models' render classes a member remembers.
const maxRendered = 1024

// rendered are the render classes of one member: readers take the list as it
// is, writers replace it.
type rendered struct {
	mu   sync.Mutex
	list atomic.Pointer[[]renderClass]
}

// renderClass says how the member turns a model's prompts into tokens.
type renderClass struct {
	model string
	class uint64
	slot  index.Slot    // the cache's, when the worker was asked
	until clock.Instant // holds until then
}

// SetRenderClass records that workers of this render class turn a model's
// prompts into the same tokens; 0: nobody can tell. It holds until an instant,
// and no longer than the member's cache is in that slot. It reports whether the
// class is another than before.
func (m *Member) SetRenderClass(model string, class uint64, slot index.Slot, until clock.Instant) (changed bool) {
	m.rendered.mu.Lock()
	defer m.rendered.mu.Unlock()
	var list []renderClass
	if p := m.rendered.list.Load(); p != nil {
		list = slices.Clone(*p)
	}
	entry := renderClass{model, class, slot, until}
	if i := slices.IndexFunc(list, func(r renderClass) bool { return r.model == model }); i >= 0 {
		changed = list[i].class != class
		list[i] = entry
	} else if len(list) < maxRendered {
		changed = true
		list = append(list, entry)
	}
	m.rendered.list.Store(&list)
	return changed
}

// LastRenderClass returns the render class that a member last was of, for whatever
// cache and whether or not that still holds; 0 for none. It changes only where
// [Member.SetRenderClass] says so.
func (m *Member) LastRenderClass(model string) uint64 {
	if p := m.rendered.list.Load(); p != nil {
		for i := range *p {
			if (*p)[i].model == model {
				return (*p)[i].class
			}
		}
	}
	return 0
}

// RenderClass returns the render class of a model at an instant, for a cache in
// a slot; 0 where it is not known.
func (m *Member) RenderClass(model string, slot index.Slot, now clock.Instant) uint64 {
	p := m.rendered.list.Load()
	if p == nil {
		return 0
	}
	for i := range *p {
		if r := &(*p)[i]; r.model == model {
			if r.slot == slot && now < r.until {
				return r.class
			}
			return 0
		}
	}
	return 0
}
