package index

import (
	"container/heap"
	"slices"
	"sync"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/kv"
)

// Ticket names the promises of one dispatch. The zero Ticket promises nothing
// and may be ended and extended without effect.
type Ticket uint64

// promises is the speculation overlay's book-keeping: which ticket promised
// what. That a block is promised at all is a mark on its holder, which Apply
// takes away when the block is confirmed, for good: a later eviction doesn't
// bring the promise back.
type promises struct {
	mu      sync.Mutex
	max     int
	last    Ticket
	tickets map[Ticket]*ticket
	queue   deadlines
	slots   map[Slot]map[kv.Key]promiseCount // by slot and block; empty ones are kept until the slot is dropped
	blocks  int                              // in them
	refused uint64
	spare   []*ticket // to use again
	spares  int       // keys that these have room for
}

const (
	// maxSpare bounds the tickets kept to be used again, and maxSpareKeys what all
	// of them have room for together: 8 MiB.
	maxSpare, maxSpareKeys = 1024, 1 << 20
)

// of returns the promises of a slot.
func (p *promises) of(s Slot) map[kv.Key]promiseCount {
	m := p.slots[s]
	if m == nil {
		m = make(map[kv.Key]promiseCount)
		p.slots[s] = m
	}
	return m
}

// ticket returns an empty ticket, used before or not.
func (p *promises) ticket() *ticket {
	if n := len(p.spare); n > 0 {
		t := p.spare[n-1]
		p.spare = p.spare[:n-1]
		p.spares -= cap(t.keys)
		return t
	}
	return new(ticket)
}

// discard takes back a ticket that is over.
func (p *promises) discard(t *ticket) {
	if len(p.spare) < maxSpare && p.spares+cap(t.keys) <= maxSpareKeys {
		*t = ticket{keys: t.keys[:0]}
		p.spare = append(p.spare, t)
		p.spares += cap(t.keys)
	}
}

// promiseCount is how many open tickets share a promise. Tickets numbered
// below first were made before a confirmation settled the promise then
// standing; they have no share in this one.
type promiseCount struct {
	first   Ticket
	tickets uint32
}

type ticket struct {
	no       Ticket
	slot     Slot
	keys     []kv.Key
	deadline clock.Instant
	at       int // in the queue
}

func (p *promises) init(limit int) {
	p.max = limit
	p.tickets = map[Ticket]*ticket{}
	p.slots = map[Slot]map[kv.Key]promiseCount{}
}

// Begin promises that slot s will soon hold the blocks keys on HBM, because a
// request was sent there. Blocks confirmed on its HBM already need no promise.
// The promise ends with End, or with the first Expire at or after deadline, or
// with the slot. Past MaxPromises the rest of keys is not promised.
func (x *Index) Begin(s Slot, keys []kv.Key, deadline clock.Instant) Ticket {
	p := &x.promises
	p.mu.Lock()
	defer p.mu.Unlock()
	if !x.slots.Load().state(s).open() {
		return 0
	}
	t, blocks := p.ticket(), p.of(s)
	t.no, t.slot, t.deadline = p.last+1, s, deadline
	t.keys = slices.Grow(t.keys, len(keys))
	var at ahead
	for i, k := range keys {
		if i%lookahead == 0 {
			at.fetch(x, keys[i:min(i+lookahead, len(keys))])
		}
		prior, ok := holder(0), p.blocks < p.max
		if !ok {
			_, ok = blocks[k]
		}
		if ok {
			prior, ok = x.change(at.shards[i%lookahead], at.places[i%lookahead], s, promised, 0)
		}
		if !ok {
			p.refused += uint64(len(keys) - i)
			break
		}
		if prior&onHBM != 0 {
			continue
		}
		c := promiseCount{first: t.no}
		if prior&promised != 0 {
			c = blocks[k]
		}
		c.tickets++
		before := len(blocks)
		blocks[k] = c
		p.blocks += len(blocks) - before
		t.keys = append(t.keys, k)
	}
	if len(t.keys) == 0 {
		p.discard(t)
		return 0
	}
	p.last = t.no
	p.tickets[t.no] = t
	heap.Push(&p.queue, t)
	return t.no
}

// Promised returns the blocks that an open ticket promised when it began: those
// that were not confirmed on HBM then.
func (x *Index) Promised(no Ticket) []kv.Key {
	p := &x.promises
	p.mu.Lock()
	defer p.mu.Unlock()
	if t, ok := p.tickets[no]; ok {
		return slices.Clone(t.keys)
	}
	return nil
}

// Promises reports whether slot s is promised to hold a block, and was not
// confirmed to.
func (x *Index) Promises(s Slot, k kv.Key) bool {
	return x.slots.Load().state(s).open() && x.holder(s, 0, k)&promised != 0
}

// StillPromised returns those of an open ticket's blocks that were not confirmed
// since it began.
func (x *Index) StillPromised(no Ticket) []kv.Key {
	p := &x.promises
	p.mu.Lock()
	defer p.mu.Unlock()
	t, ok := p.tickets[no]
	if !ok {
		return nil
	}
	var keys []kv.Key
	for _, k := range t.keys {
		if c, ok := p.slots[t.slot][k]; ok && c.first <= no && x.holder(t.slot, 0, k)&promised != 0 {
			keys = append(keys, k)
		}
	}
	return keys
}

// Extend sets a ticket's deadline anew, to a later or an earlier instant. It
// reports whether the ticket is still open.
func (x *Index) Extend(no Ticket, deadline clock.Instant) bool {
	p := &x.promises
	p.mu.Lock()
	defer p.mu.Unlock()
	t, ok := p.tickets[no]
	if ok {
		t.deadline = deadline
		heap.Fix(&p.queue, t.at)
	}
	return ok
}

// Deadline returns when a ticket ends at the latest; false if it has ended.
func (x *Index) Deadline(no Ticket) (clock.Instant, bool) {
	p := &x.promises
	p.mu.Lock()
	defer p.mu.Unlock()
	t, ok := p.tickets[no]
	if !ok {
		return 0, false
	}
	return t.deadline, true
}

// End takes a ticket's promises back: those that no other open ticket shares
// no longer match. Ending a ticket twice, or one that expired, does nothing.
func (x *Index) End(no Ticket) {
	p := &x.promises
	p.mu.Lock()
	defer p.mu.Unlock()
	if t, ok := p.tickets[no]; ok {
		x.end(t)
	}
}

// Expire ends the tickets whose deadline is now or earlier, and returns how
// many there were. It costs little when there are none.
func (x *Index) Expire(now clock.Instant) int {
	p := &x.promises
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for len(p.queue) > 0 && p.queue[0].deadline <= now {
		x.end(p.queue[0])
		n++
	}
	return n
}

// end needs promises.mu.
func (x *Index) end(t *ticket) {
	p := &x.promises
	heap.Remove(&p.queue, t.at)
	delete(p.tickets, t.no)
	blocks := p.slots[t.slot]
	var at ahead
	for i, k := range t.keys {
		if i%lookahead == 0 {
			at.fetch(x, t.keys[i:min(i+lookahead, len(t.keys))])
		}
		c, ok := blocks[k]
		if !ok || c.first > t.no {
			continue
		}
		if c.tickets--; c.tickets > 0 {
			blocks[k] = c
			continue
		}
		delete(blocks, k)
		p.blocks--
		x.change(at.shards[i%lookahead], at.places[i%lookahead], t.slot, 0, promised)
	}
	p.discard(t)
}

// dropPromises ends the tickets of a slot.
func (x *Index) dropPromises(s Slot) {
	p := &x.promises
	p.mu.Lock()
	defer p.mu.Unlock()
	var void []*ticket
	for _, t := range p.queue {
		if t.slot == s {
			void = append(void, t)
		}
	}
	for _, t := range void {
		x.end(t)
	}
	p.blocks -= len(p.slots[s])
	delete(p.slots, s)
}

func (p *promises) stats(st *Stats) {
	p.mu.Lock()
	defer p.mu.Unlock()
	st.Tickets, st.Promises, st.PromisesRefused = len(p.tickets), p.blocks, p.refused
}

// deadlines is a heap of tickets, earliest deadline first.
type deadlines []*ticket

func (q deadlines) Len() int { return len(q) }
func (q deadlines) Less(i, j int) bool {
	if q[i].deadline != q[j].deadline {
		return q[i].deadline < q[j].deadline
	}
	return q[i].no < q[j].no
}
func (q deadlines) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].at, q[j].at = i, j
}
func (q *deadlines) Push(t any) {
	t.(*ticket).at = len(*q)
	*q = append(*q, t.(*ticket))
}
func (q *deadlines) Pop() any {
	old := *q
	t := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	return t
}
