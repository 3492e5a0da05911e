package core

import (
	"slices"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/crdt"
	"github.com/rhizome-router/rhizome/kv"
)

// Which targets matter here. What is held of a target that nobody follows any
// more is kept for a while, for a worker that is taken out often comes back, the
// same process with the same cache; but peers are told of it no more, or they
// would give each other for ever what all of them let go. No clock has a part in
// it: that a worker is back is a fact, whatever anybody's clock says.

// following is which targets are followed, all until the first one is.
type following struct {
	targets map[kv.Target]bool
	since   clock.Instant // when the first one was
	// rows is since when a row of the table Boots is about a target that is not
	// followed.
	rows map[string]clock.Instant
}

// Follow says that the events of a target matter here from now on. What peers
// hold of them is asked for, if nothing of its present life is held. A core that
// is never told follows all targets.
func (c *Core) Follow(now clock.Instant, t kv.Target) {
	f := &c.following
	if f.targets == nil {
		f.targets, f.rows, f.since = make(map[kv.Target]bool), make(map[string]clock.Instant), now
	}
	f.targets[t] = true
	delete(f.rows, TargetKey(t))
	held := false
	for src := range crdt.Source(numSources) {
		if s := c.streams[c.current[source{t, src}]]; s != nil {
			s.left, held = 0, true
		}
	}
	if held || now.Sub(f.since) < c.cfg.Keep {
		return // until then all is taken that is told
	}
	first, _ := c.Reader(t.Worker)
	p := c.peers[first]
	if p == nil || !p.up {
		p = c.anyPeer()
	}
	if p != nil {
		p.behind = true // vectors are exchanged soon
	}
}

// Unfollow says that a target's events matter here no more.
func (c *Core) Unfollow(t kv.Target) { delete(c.following.targets, t) }

func (c *Core) follows(t kv.Target) bool { return c.following.targets == nil || c.following.targets[t] }

// ignores reports whether nothing of a target is to be taken from peers. A
// replica that has just begun takes everything, for it does not know yet what it
// will follow, and is to have it then.
func (c *Core) ignores(now clock.Instant, t kv.Target) bool {
	return !c.follows(t) && now.Sub(c.following.since) >= c.cfg.Keep
}

// sweepLeft forgets what has been held for long of targets that are not
// followed.
func (c *Core) sweepLeft(now clock.Instant) {
	if c.following.targets == nil {
		return
	}
	for _, s := range c.sorted() {
		switch {
		case c.follows(s.id.Target):
			s.left = 0
		case s.left == 0:
			s.left = max(now, 1)
		case now.Sub(s.left) >= c.cfg.Keep:
			c.Close(s.id)
		}
	}
	rows := c.following.rows
	if c.tables[Boots].Len() <= len(c.following.targets) {
		clear(rows)
		return
	}
	for _, r := range c.tables[Boots].All() {
		t, ok := TargetOf(r.Key)
		switch left, known := rows[r.Key]; {
		case ok && c.follows(t):
			delete(rows, r.Key)
		case !known:
			rows[r.Key] = now
		case now.Sub(left) >= c.cfg.Keep:
			delete(rows, r.Key)
			c.tables[Boots].Forget(r.Key)
		}
	}
}

// toldRows are a table's rows for a peer: not those on boots of targets that are
// not followed here.
func (c *Core) toldRows(t Table) []crdt.Register {
	rows := c.tables[t].All()
	if t != Boots {
		return rows
	}
	return slices.DeleteFunc(rows, func(r crdt.Register) bool {
		target, ok := TargetOf(r.Key)
		return ok && !c.follows(target)
	})
}
