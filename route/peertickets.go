package route

import (
	"encoding/binary"
	"maps"
	"math"
	"slices"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/crdt"
	"github.com/rhizome-router/rhizome/crdt/wire"
	"github.com/rhizome-router/rhizome/fleet"
	"github.com/rhizome-router/rhizome/index"
	"github.com/rhizome-router/rhizome/kv"
	"github.com/rhizome-router/rhizome/mesh/core"
)

// ticketStage is what became of the promise of a request.
type ticketStage uint8

const (
	ticketBegins ticketStage = iota
	ticketFirstToken
	ticketEnds
)

// ticketNews is what the peers are to be told of a promise.
type ticketNews struct {
	stage    ticketStage
	no       index.Ticket
	member   *fleet.Member
	slot     index.Slot
	deadline clock.Instant
}

const (
	// fewBlocks is up to how many promised blocks peers are not told of.
	fewBlocks = 4
	// maxTicketBlocks bounds the blocks of one promise: 512 KiB.
	maxTicketBlocks = 1 << 16
	// maxNews bounds what waits for the next Tell, of each sort.
	maxNews = 1 << 14
)

// promise notes what became of a decision's promise. It needs r.mu.
func (p *peering) promise(d *Decision, stage ticketStage, deadline clock.Instant) {
	if p == nil || d.ticket == 0 {
		return
	}
	if len(p.ticketNews) >= maxNews {
		p.refused.Add(1)
		return
	}
	p.ticketNews = append(p.ticketNews, ticketNews{stage, d.ticket, d.member, d.slot, deadline})
}

// putTickets puts promises on this replica's page: the blocks when they are
// made, nothing but a new deadline when the first token came. Within Do.
func (p *peering) putTickets(now clock.Instant, c *core.Core, x *index.Index, news []ticketNews) {
	p.repeatTickets(now, c, x)
	for _, n := range news {
		key, life := core.TicketKey(uint64(n.no)), n.deadline.Sub(now)
		_, told := c.Own(core.Tickets).Get(int64(now), key)
		switch {
		case n.stage == ticketEnds || life <= 0:
			c.Delete(core.Tickets, key)
		case n.stage == ticketFirstToken && told:
			c.Put(now, core.Tickets, key, nil, life)
		case n.stage == ticketBegins:
			boot, known := c.Boot(n.member.Target)
			blocks := x.Promised(n.no)
			if !known || len(blocks) <= fewBlocks || n.member.Cache().Slot != n.slot {
				break // or it is void already
			}
			p.lastTicket = max(p.lastTicket, uint64(n.no))
			p.made[key] = madeTicket{n.member.Target, boot}
			c.Put(now, core.Tickets, key, encodeTicket(n.member.Target, boot, blocks), life)
		}
	}
}

// madeTicket is what of a promise that peers were told of is not in the index.
type madeTicket struct {
	target kv.Target
	boot   kv.Boot
}

// repeatTickets says the promises again, with their blocks, when this replica
// lives on as another incarnation: peers have forgotten those of the one before.
// Blocks that were confirmed since are not promised a second time. Within Do.
func (p *peering) repeatTickets(now clock.Instant, c *core.Core, x *index.Index) {
	if inc := c.Self().Inc; inc != p.saidAs {
		p.saidAs = inc
		for _, key := range slices.Sorted(maps.Keys(p.made)) {
			it, told := c.Own(core.Tickets).Get(int64(now), key)
			if !told {
				continue
			}
			m := p.made[key]
			blocks := x.StillPromised(index.Ticket(core.TicketNo(key)))
			c.Put(now, core.Tickets, key, encodeTicket(m.target, m.boot, blocks), clock.Instant(it.Until).Sub(now))
		}
	}
	if own := c.Own(core.Tickets); len(p.made) > 2*own.Len()+leastMade {
		for key := range p.made { // order-free: each by itself
			if _, told := own.Get(int64(now), key); !told {
				delete(p.made, key)
			}
		}
	}
}

// leastMade is up to how many promises that are over may be remembered.
const leastMade = 64

// A ticket is: worker, rank, boot, blocks, 8 bytes each.
const ticketFields = 4

func encodeTicket(t kv.Target, boot kv.Boot, blocks []kv.Key) []byte {
	w := wire.NewWriter(nil)
	w.Array(ticketFields)
	w.Uint(uint64(t.Worker))
	w.Int(int64(t.Rank))
	w.Uint(uint64(boot))
	w.Data(encodeKeys(blocks[:min(len(blocks), maxTicketBlocks)]))
	return w.Bytes()
}

func decodeTicket(b []byte) (t kv.Target, boot kv.Boot, blocks []kv.Key, ok bool) {
	r := wire.NewReader(b)
	if r.Array(1) < ticketFields {
		return t, 0, nil, false
	}
	t = kv.Target{Worker: kv.WorkerID(r.Uint(math.MaxUint64)), Rank: int16(r.Int(math.MinInt16, math.MaxInt16))}
	boot = kv.Boot(r.Uint(math.MaxUint64))
	blocks = decodeKeys(r.Data(8 * maxTicketBlocks))
	return t, boot, blocks, r.Err() == nil
}

func encodeKeys(keys []kv.Key) []byte {
	b := make([]byte, 0, 8*len(keys))
	for _, k := range keys {
		b = binary.LittleEndian.AppendUint64(b, uint64(k))
	}
	return b
}

func decodeKeys(b []byte) []kv.Key {
	keys := make([]kv.Key, 0, len(b)/8)
	for ; len(b) >= 8; b = b[8:] {
		keys = append(keys, kv.Key(binary.LittleEndian.Uint64(b)))
	}
	return keys
}

// peerTicket names a promise that a peer made.
type peerTicket struct {
	writer core.Replica
	key    string
}

// hearTicket shows a peer's promise in the index, as long as it says and its
// target's cache is that which the peer means. A promise heard again only gets
// another deadline: of its blocks, those confirmed since are not promised any
// more. Within Do.
func (p *peering) hearTicket(r *Router, writer core.Replica, key string, it *crdt.PageItem) {
	id, now := peerTicket{writer, key}, r.deps.Clock.Now()
	no, known := p.tickets[id]
	if it == nil {
		r.deps.Index.End(no)
		delete(p.tickets, id)
		return
	}
	deadline := min(clock.Instant(it.Until), now.Add(mostPromise))
	if known {
		r.deps.Index.Extend(no, deadline)
	}
	if known || len(it.Value) == 0 || deadline <= now {
		return
	}
	target, boot, blocks, ok := decodeTicket(it.Value)
	if !ok {
		p.bad.Add(1)
		return
	}
	m := memberOf(r.deps.Fleet.View(), target)
	if current, known := p.core.Boot(target); m == nil || !known || current != boot || m.Outdated() {
		return
	}
	if no := r.deps.Index.Begin(m.Cache().Slot, blocks, deadline); no != 0 {
		p.tickets[id] = no
	}
}

// voidTickets ends the promises of replicas that are gone. Within Do.
func (p *peering) voidTickets(x *index.Index, alive map[string]bool) {
	// order-free: each promise ends by itself
	for id, no := range p.tickets {
		if !alive[id.writer.Name] {
			x.End(no)
			delete(p.tickets, id)
		}
	}
}

func memberOf(v *fleet.View, t kv.Target) *fleet.Member {
	for _, m := range v.Members {
		if m.Target == t {
			return m
		}
	}
	return nil
}
