package core

import (
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/crdt"
)

// ownPage is a page that this replica writes.
type ownPage struct {
	page *crdt.Page
	sent crdt.Position // what peers that are up were sent
}

type pageID struct {
	kind   Kind
	writer Replica
}

// page is a copy of a peer's page.
type page struct {
	copy    *crdt.Page
	heard   clock.Instant // when its writer last spoke of it
	asked   string
	askedAt clock.Instant
}

// Put writes a value on one of this replica's pages; life is how long it is good
// for, 0 for ever. It is sent with the next Tick.
func (c *Core) Put(now clock.Instant, k Kind, key string, value []byte, life time.Duration) {
	if len(key) > crdt.MaxKeyBytes || len(value) > crdt.MaxValueBytes {
		c.stats.Refused++
		return
	}
	c.own[k].page.Put(int64(now), key, value, int64(life))
}

// Delete takes a value off one of this replica's pages.
func (c *Core) Delete(k Kind, key string) { c.own[k].page.Delete(key) }

// Own returns one of this replica's pages, to be read.
func (c *Core) Own(k Kind) *crdt.Page { return c.own[k].page }

// Heard returns when a peer last spoke of one of its pages; ok is false when
// nothing of it is known.
func (c *Core) Heard(k Kind, writer Replica) (at clock.Instant, ok bool) {
	p := c.pages[pageID{k, writer}]
	if p == nil {
		return 0, false
	}
	return p.heard, true
}

// sendPages sends all peers what changed on this replica's pages. The page of
// loads is sent every now and then though nothing changed.
func (c *Core) sendPages(now clock.Instant) {
	if len(c.names) == 0 {
		return
	}
	beat := now.Sub(c.beat) >= c.cfg.Heartbeat
	if beat {
		c.beat = now
	}
	for k := range Kind(NumKinds) {
		o := &c.own[k]
		o.page.Expire(int64(now))
		if o.page.At() == o.sent && !(beat && k == Loads) {
			continue
		}
		for {
			d := o.page.Since(int64(now), o.sent, c.cfg.BatchBytes)
			c.stats.BytesByKind[k] += c.send("", Live, encodePage(k, c.cfg.Self, &d))
			if o.sent = d.To; o.sent == o.page.At() {
				break
			}
		}
	}
}

// takePage takes a delta of a peer's page.
func (c *Core) takePage(now clock.Instant, from *peer, k Kind, writer Replica, d *crdt.Delta) {
	if writer.Name == c.cfg.Self.Name {
		return
	}
	id := pageID{k, writer}
	if c.void(writer) {
		return
	}
	p := c.pages[id]
	if p == nil {
		if w := c.peers[writer.Name]; w == nil || !w.alive && now.Sub(w.diedAt) >= c.cfg.Keep {
			return // of a replica that is forgotten here, or not known yet
		}
		p = &page{copy: crdt.NewPage(c.cfg.Limits.PageValues)}
		c.pages[id] = p
		if writer.Inc > 0 {
			c.voidBelow(writer)
		}
	}
	if from.name == writer.Name {
		p.heard = now
	}
	if from.name == p.asked {
		p.askedAt = now
	}
	switch p.copy.Merge(int64(now), d, func(key string, it *crdt.PageItem) { c.tellPage(id, key, it) }) {
	case crdt.Pending:
		c.wantPage(now, from, id, p)
	case crdt.Overflow:
		c.stats.Refused++
	case crdt.Applied:
		if !p.copy.At().Complete() {
			break
		}
		p.asked = ""
	}
}

// dropPages forgets the pages of some replicas.
func (c *Core) dropPages(which func(Replica) bool) {
	for id, p := range c.pages { // order-free: each page goes by itself, and the sink keeps maps
		if !which(id.writer) {
			continue
		}
		delete(c.pages, id)
		p.copy.Each(minInstant, func(it *crdt.PageItem) bool {
			c.sink.Page(id.kind, id.writer, it.Key, nil)
			return true
		})
	}
}

const minInstant = -1 << 63

const maxInstant = 1<<63 - 1

// Set writes a row of a table over what is there: its N is one more. tie decides
// between replicas that do so at once.
func (c *Core) Set(now clock.Instant, t Table, key string, tie uint64, value []byte) {
	old, _ := c.tables[t].Get(key)
	c.setRow(now, nil, t, crdt.Register{Key: key, N: old.N + 1, Tie: tie, Value: value})
}

// Row returns a row of a table.
func (c *Core) Row(t Table, key string) (crdt.Register, bool) { return c.tables[t].Get(key) }

// setRow merges a row and, if it is news of our own, tells all peers.
func (c *Core) setRow(now clock.Instant, from *peer, t Table, r crdt.Register) {
	if !c.tables[t].Merge(r) {
		return
	}
	if t == Boots && c.rebooted(now, r.Key) && from != nil {
		from.behind = true // what it told of this life before was not listened to
	}
	c.sink.Row(t, r)
	if from == nil {
		c.send("", Live, encodeRows(t, []crdt.Register{r}))
	}
}
