package core

import (
	"encoding/binary"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/crdt"
)

// What was agreed on of what replicas say of themselves: which incarnations are
// dead, and up to where each one's promises are over. Both are remembered, for
// somebody may still pass on what they make void. Streams are never touched:
// what engines said is true whoever read it.

// settled is what was agreed on, as far as it is known here.
type settled struct {
	live map[string]uint64  // by replica, its least incarnation that counts; 0 is left out
	lows map[Replica]uint64 // by incarnation, its least promise that counts
}

// settledPerReplica bounds each of settled's maps, times the replicas that may be
// known. Those of replicas that are not known go first.
const settledPerReplica = 4

func newSettled() settled {
	return settled{live: make(map[string]uint64), lows: make(map[Replica]uint64)}
}

// void reports whether an incarnation is dead.
func (c *Core) void(r Replica) bool { return r.Inc < c.settled.live[r.Name] }

// voidBelow makes all incarnations of a replica before r dead.
func (c *Core) voidBelow(r Replica) {
	if r.Inc <= c.settled.live[r.Name] {
		return
	}
	if len(c.settled.live) >= settledPerReplica*c.cfg.Limits.Replicas {
		c.forgetSettled()
	}
	c.settled.live[r.Name] = r.Inc
	c.dropPages(c.void)
	for o := range c.settled.lows { // order-free: each by itself
		if c.void(o) {
			delete(c.settled.lows, o)
		}
	}
}

// forgetSettled forgets what was agreed of replicas that are not known.
func (c *Core) forgetSettled() {
	for name := range c.settled.live { // order-free: each by itself
		if c.peers[name] == nil {
			delete(c.settled.live, name)
		}
	}
	for o := range c.settled.lows { // order-free: each by itself
		if c.peers[o.Name] == nil {
			delete(c.settled.lows, o)
		}
	}
}

// Fence kills an incarnation of a replica and those before it, for good: what
// they said of themselves is void, whoever passes it on. If it is this one, it
// lives on as the next incarnation and says all of it again.
func (c *Core) Fence(now clock.Instant, r Replica) {
	if r.Name != c.cfg.Self.Name {
		c.voidBelow(Replica{r.Name, r.Inc + 1})
		return
	}
	if r.Inc < c.cfg.Self.Inc {
		return
	}
	c.cfg.Self.Inc = r.Inc + 1
	for k := range c.own {
		// A new page, for a page's positions are those of one incarnation.
		old := c.own[k].page
		c.own[k] = ownPage{page: crdt.NewPage(c.cfg.Limits.PageValues)}
		old.Each(int64(now), func(it *crdt.PageItem) bool {
			life := int64(0)
			if it.Until != maxInstant {
				life = it.Until - int64(now)
			}
			c.own[k].page.Put(int64(now), it.Key, it.Value, life)
			return true
		})
	}
}

// TicketKey is the key of a promise on the page Tickets; an origin numbers its
// promises in the order it makes them.
func TicketKey(no uint64) string { return string(binary.BigEndian.AppendUint64(nil, no)) }

// TicketNo is the number that TicketKey made a key of; 0 for no such key.
func TicketNo(key string) uint64 {
	if len(key) != 8 {
		return 0
	}
	return binary.BigEndian.Uint64([]byte(key))
}

// LowestTicket returns the least number on this replica's page Tickets; next if
// there is none.
func (c *Core) LowestTicket(now clock.Instant, next uint64) uint64 {
	c.Own(Tickets).Each(int64(now), func(it *crdt.PageItem) bool {
		next = min(next, TicketNo(it.Key))
		return true
	})
	return next
}

// Checkpoint ends the promises of an incarnation numbered below low, for good:
// what told of the end of each may have been lost. Of this replica's own it does
// nothing, for it knows them best.
func (c *Core) Checkpoint(r Replica, low uint64) {
	if r.Name == c.cfg.Self.Name || c.void(r) || low <= c.settled.lows[r] {
		return
	}
	if c.settled.lows[r] == 0 && len(c.settled.lows) >= settledPerReplica*c.cfg.Limits.Replicas {
		c.forgetSettled()
	}
	was := c.settled.lows[r]
	c.settled.lows[r] = low
	p := c.pages[pageID{Tickets, r}]
	if p == nil {
		return
	}
	p.copy.Each(minInstant, func(it *crdt.PageItem) bool {
		if no := TicketNo(it.Key); was <= no && no < low {
			c.sink.Page(Tickets, r, it.Key, nil)
		}
		return true
	})
}

// tellPage tells the sink of a value, unless it is a promise that is over. The
// copy of the page keeps it, so that copies of one position are equal.
func (c *Core) tellPage(id pageID, key string, it *crdt.PageItem) {
	if it != nil && id.kind == Tickets && TicketNo(key) < c.settled.lows[id.writer] {
		return
	}
	c.sink.Page(id.kind, id.writer, key, it)
}

// StreamMark is a mark of a stream.
type StreamMark struct {
	Stream crdt.StreamID
	Mark   crdt.Mark
}

// Marks returns the last mark of each stream that has one, n at most, for others
// to hold their streams against. If there are more, the next call goes on where
// this one ended.
func (c *Core) Marks(now clock.Instant, n int) []StreamMark {
	var marks []StreamMark
	all := c.sorted()
	for range all {
		if len(marks) == n {
			break
		}
		c.nextMark %= len(all)
		s := all[c.nextMark]
		c.nextMark++
		if now.Sub(s.lastAt) >= quiet && !s.marked {
			s.log.Mark()
			s.marked = true
		}
		if all := s.log.Marks(); len(all) > 0 {
			marks = append(marks, StreamMark{s.id, all[len(all)-1]})
		}
	}
	return marks
}

// CompareMarks counts the marks that a stream here contradicts: of the same log,
// with the same parts lost, it holds something else.
func (c *Core) CompareMarks(marks []StreamMark) {
	for i := range marks {
		s, m := c.streams[marks[i].Stream], marks[i].Mark
		if s == nil {
			continue
		}
		if s.log.Next() == m.W+1 {
			s.log.Mark()
		}
		for _, o := range s.log.Marks() {
			if o.W == m.W && o.Skips == m.Skips && o.Digest != m.Digest {
				c.stats.Diverged++
			}
		}
	}
}
