package core

import (
	"slices"
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/crdt"
)

// skipping is a skip that the reader of an engine is about to make: batches that
// the engine does not have any more, and that the peers are asked for.
type skipping struct {
	lost    crdt.Range
	denying []string // peers that have not answered
	since   clock.Instant
}

// lastWord is how long a peer that is up may take to say that it does not have
// batches that were lost.
const lastWord = 10 * time.Second

// Lost says that an engine can't give its reader the batches from … to any more.
// The peers are asked; one that has any of them sends them. Once all have denied
// it, the batches are skipped, and the peers told so.
func (c *Core) Lost(now clock.Instant, id crdt.StreamID, counted bool, lost crdt.Range) error {
	s := c.open(now, id, counted)
	if s == nil {
		return ErrTooMany
	}
	c.keep(s)
	s.skip = &skipping{lost: lost, since: now}
	c.losing = append(c.losing, s)
	for _, name := range c.names {
		if c.peers[name].up {
			s.skip.denying = append(s.skip.denying, name)
		}
	}
	w := begin(frameLost, idFields+2)
	putID(w, id)
	w.Uint(lost.From)
	w.Uint(lost.To)
	c.send("", Sync, w.Bytes())
	c.settleSkip(now, s)
	return nil
}

// answerLost sends what is here of the batches that a peer lost, or denies it.
func (c *Core) answerLost(p *peer, id crdt.StreamID, lost crdt.Range) {
	s := c.streams[id]
	if s != nil && s.log.Next() > lost.From && s.log.Truncated() == 0 && !covers(s.log.Skips(), []crdt.Range{{From: lost.From, To: min(lost.To, s.log.Next()-1)}}) {
		c.queueTask(p, task{stream: id, next: lost.From})
		return
	}
	w := begin(frameDenied, idFields+2)
	putID(w, id)
	w.Uint(lost.From)
	w.Uint(lost.To)
	c.send(p.name, Sync, w.Bytes())
}

func (c *Core) denied(now clock.Instant, p *peer, id crdt.StreamID, lost crdt.Range) {
	if s := c.streams[id]; s != nil && s.skip != nil && s.skip.lost == lost {
		s.skip.denying = slices.DeleteFunc(s.skip.denying, func(name string) bool { return name == p.name })
		c.settleSkip(now, s)
	}
}

// heldAgain withdraws a skip when some of its batches came after all.
func (c *Core) heldAgain(s *stream, r crdt.Range) {
	if s.skip != nil && r.From <= s.skip.lost.To && r.To >= s.skip.lost.From && s.log.Next() > s.skip.lost.To {
		c.keep(s)
	}
}

// keep drops a stream's skip.
func (c *Core) keep(s *stream) {
	if s.skip != nil {
		s.skip = nil
		c.losing = slices.DeleteFunc(c.losing, func(o *stream) bool { return o == s })
	}
}

// settleSkip makes the skip once nobody can have the batches.
func (c *Core) settleSkip(now clock.Instant, s *stream) {
	k := s.skip
	if k == nil {
		return
	}
	k.denying = slices.DeleteFunc(k.denying, func(name string) bool { return c.peers[name] == nil || !c.peers[name].up })
	if len(k.denying) > 0 && now.Sub(k.since) < lastWord {
		return
	}
	c.keep(s)
	if from := max(k.lost.From, s.log.Next()); from <= k.lost.To {
		_, _ = c.publish(now, s.id, s.cfg.Counted, crdt.Entry{Range: crdt.Range{From: from, To: k.lost.To}, Skipped: true})
	}
}
