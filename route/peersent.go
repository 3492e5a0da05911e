package route

import (
	"encoding/binary"
	"math"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/crdt/wire"
	"github.com/rhizome-router/rhizome/fleet"
	"github.com/rhizome-router/rhizome/index"
	"github.com/rhizome-router/rhizome/kv"
	"github.com/rhizome-router/rhizome/mesh/core"
)

// On the page Sent stands what this router sent where, of prompts that the
// workers' events don't speak for: runs of chunks, each with what the member's
// clock was then, by target and a number; and by the target alone that clock at
// the last of them, with how many of its tokens this replica sent. Only who sent
// a thing tells it, and what is told never makes anything younger than it is:
// clocks of replicas differ, so a chunk's age by the clock of its writer counts.
//
// A chunk is told anew when half of its life has passed since it was told.

// sentNews is what the peers may have to be told of a request.
type sentNews struct {
	member *fleet.Member
	slot   index.Slot
	keys   []kv.Key
	clock  uint64
	life   uint64 // by that clock; how long it stays in HBM
}

const (
	// maxSentKeys bounds the chunks told of one target, toldEntries those of all
	// that are remembered as told.
	maxSentKeys = 1 << 16
	toldEntries = 1 << 16
)

// sent notes what a request makes a candidate's cache hold. It needs r.mu.
func (p *peering) sent(c *candidate, keys []kv.Key, clock uint64) {
	if p == nil || len(keys) == 0 {
		return
	}
	if len(p.sentNews) >= maxNews {
		p.refused.Add(1)
		return
	}
	p.sentNews = append(p.sentNews, sentNews{c.member, c.cache.Slot, keys, clock, c.member.Horizon(c.cache).HBM})
}

// toldRuns are the runs on the page of one target, oldest first.
type toldRuns struct {
	slot index.Slot
	runs []toldRun
	keys int
	next uint64
}

type toldRun struct {
	no, clock uint64
	keys      int
}

// putSent puts what was sent on this replica's page, as far as it is not there.
// Within Do.
func (p *peering) putSent(now clock.Instant, c *core.Core, news []sentNews) {
	for i := range news {
		n := &news[i]
		since := n.clock - min(n.clock, n.life/2)
		fresh := p.saidSent.Stale(n.slot, n.keys, since, nil)
		if len(fresh) == 0 {
			continue
		}
		p.saidSent.Touch(n.slot, fresh, n.clock)
		fresh = fresh[:min(len(fresh), maxSentKeys)]
		target := core.TargetKey(n.member.Target)
		t := p.toldSent[n.member.Target]
		if t == nil {
			t = &toldRuns{slot: n.slot}
			p.toldSent[n.member.Target] = t
		}
		for len(t.runs) > 0 && (t.slot != n.slot || t.keys+len(fresh) > maxSentKeys || t.runs[0].clock+n.life < n.clock && n.life < math.MaxUint64-n.clock) {
			c.Delete(core.Sent, sentKey(target, t.runs[0].no))
			t.keys -= t.runs[0].keys
			t.runs = t.runs[1:]
		}
		t.slot = n.slot
		w := wire.NewWriter(nil)
		w.Array(2)
		w.Uint(n.clock)
		w.Data(encodeKeys(fresh))
		c.Put(now, core.Sent, sentKey(target, t.next), w.Bytes(), 0)
		t.runs, t.keys = append(t.runs, toldRun{t.next, n.clock, len(fresh)}), t.keys+len(fresh)
		t.next++
		w = wire.NewWriter(nil)
		w.Array(2)
		w.Uint(n.clock)
		w.Uint(n.member.SentTokens())
		c.Put(now, core.Sent, target, w.Bytes(), 0)
	}
}

func sentKey(target string, no uint64) string {
	return string(binary.BigEndian.AppendUint64([]byte(target), no))
}

// sender is one replica's part in what was sent to a target.
type sender struct {
	target kv.Target
	writer core.Replica
}

// senderState is how far that is.
type senderState struct{ clock, tokens uint64 }

// hearSent takes a value of a peer's page Sent; it reports false while the
// writer's clock is not known, which stands behind what it is needed for when a
// whole page comes.
func (p *peering) hearSent(v *fleet.View, approx *index.Approx, h *heardValue) bool {
	t, ok := core.TargetOf(h.key[:min(len(h.key), targetKeyBytes)])
	if !ok {
		p.bad.Add(1)
		return true
	}
	from := sender{t, h.writer}
	if h.gone {
		if len(h.key) == targetKeyBytes {
			// Its replica is gone, what it sent was sent.
			p.formerSent[t] += p.senders[from].tokens
			delete(p.senders, from)
		}
		return true
	}
	r := wire.NewReader(h.value)
	if r.Array(1) < 2 {
		p.bad.Add(1)
		return true
	}
	clock := r.Uint(math.MaxInt64)
	if len(h.key) == targetKeyBytes {
		s := senderState{clock, r.Uint(math.MaxInt64)}
		if r.Err() != nil {
			p.bad.Add(1)
			return true
		}
		p.senders[from] = s
		p.showPeersSent(v, t)
		return true
	}
	keys := decodeKeys(r.Data(8 * maxSentKeys))
	if r.Err() != nil {
		p.bad.Add(1)
		return true
	}
	s, known := p.senders[from]
	if !known {
		return false
	}
	m := memberOf(v, t)
	if m == nil {
		return true
	}
	cache := m.Cache()
	here, age := m.Clock(&cache), s.clock-min(s.clock, clock)
	if age <= here { // else it is older than all that is known of the cache
		approx.Merge(cache.Slot, keys, here-age)
	}
	return true
}

// pruneSent forgets targets that are no members any more. Within Do.
func (p *peering) pruneSent(c *core.Core, v *fleet.View) {
	// order-free: each target by itself
	for t, told := range p.toldSent {
		if memberOf(v, t) != nil {
			continue
		}
		for _, run := range told.runs {
			c.Delete(core.Sent, sentKey(core.TargetKey(t), run.no))
		}
		c.Delete(core.Sent, core.TargetKey(t))
		delete(p.toldSent, t)
	}
	for t := range p.formerSent { // order-free: each target by itself
		if memberOf(v, t) == nil {
			delete(p.formerSent, t)
		}
	}
}

const targetKeyBytes = 10

// showPeersSent tells a target's member what the others sent there.
func (p *peering) showPeersSent(v *fleet.View, t kv.Target) {
	m := memberOf(v, t)
	if m == nil {
		return
	}
	sum := p.formerSent[t]
	for from, s := range p.senders { // order-free: a sum of whole numbers
		if from.target == t {
			sum += s.tokens
		}
	}
	m.SetPeersSent(sum)
}
