package model

import (
	"fmt"
	"slices"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/rhizome-router/rhizome/kv"
)

// mirror is the cache as one who only hears the events sees it.
type mirror struct {
	copies   [numLanes]map[kv.EngineHash]int // by lane
	contents []kv.EngineHash                 // what the driver keeps by the numbers of contents
	allTiers bool                            // a clear means all of them
	problem  string
}

func newMirror() *mirror {
	m := new(mirror)
	for t := range m.copies {
		m.copies[t] = map[kv.EngineHash]int{}
	}
	return m
}

func (m *mirror) apply(e Event) {
	lane := lane(e.Tier)
	if e.Group == WindowGroup {
		lane = windowLane
	}
	switch e.Kind {
	case Stored:
		for i, h := range e.Blocks {
			m.copies[lane][h]++
			m.content(e, i)
		}
	case Removed:
		for _, h := range e.Blocks {
			m.copies[lane][h]--
			if n := m.copies[lane][h]; n < 0 {
				m.problem = fmt.Sprintf("block %x removed from lane %d more often than stored", h, lane)
			} else if n == 0 {
				delete(m.copies[lane], h)
			}
		}
	case Cleared:
		for t := range m.copies {
			if t == int(hbmLane) || t == int(windowLane) || m.allTiers {
				clear(m.copies[t])
			}
		}
	}
}

// forget is what one does who hears that the engine was restarted.
func (m *mirror) forget() {
	for _, copies := range m.copies {
		clear(copies)
	}
}

// content notes what a block holds where it is new, and asserts that what is
// known of it is right where it has moved.
func (m *mirror) content(e Event, i int) {
	if e.Contents == nil {
		return // of withPending
	}
	n := int(e.Contents[i])
	if e.ID != 0 {
		m.contents = append(m.contents, make([]kv.EngineHash, max(0, n+1-len(m.contents)))...)
		m.contents[n] = e.Blocks[i]
	} else if n >= len(m.contents) || m.contents[n] != e.Blocks[i] {
		m.problem = fmt.Sprintf("block %x came to %v with the content %d of another", e.Blocks[i], e.Tier, n)
	}
}

// pending adds what the worker has not told yet.
func (m *mirror) withPending(w *Worker) *mirror {
	p := newMirror()
	for t := range m.copies {
		for h, n := range m.copies[t] {
			p.copies[t][h] = n
		}
	}
	for _, l := range w.tiers {
		for _, u := range slices.Concat(l.link.queue, l.link.done) {
			p.apply(Event{Kind: Stored, Tier: kv.HBM, Blocks: u.keys[u.from:u.to]})
		}
	}
	for n := range w.journal.lanes {
		l := &w.journal.lanes[n]
		for _, c := range l.changes {
			e := Event{Kind: Stored, Tier: kv.Tier(n), Blocks: l.hashes[c.from:c.to]}
			if lane(n) == windowLane {
				e.Tier, e.Group = kv.HBM, WindowGroup
			}
			if c.removed {
				e.Kind = Removed
			}
			p.apply(e)
		}
	}
	return p
}

// check asserts that nothing is lost or counted twice.
func check(t *rapid.T, w *Worker, m *mirror) {
	if err := w.Check(); err != nil {
		t.Fatal(err)
	}
	if m.problem != "" {
		t.Fatal(m.problem)
	}
	want := newMirror()
	for _, tier := range []kv.Tier{kv.HBM, kv.CPU, kv.Disk} {
		for h := range w.Cached(tier) {
			want.copies[tier][h]++
		}
	}
	for h := range w.CachedWindow() {
		want.copies[windowLane][h]++
	}
	if d := cmp.Diff(want.copies, m.withPending(w).copies); d != "" {
		t.Fatalf("events and cache differ (-cache +events):\n%s", d)
	}
}
