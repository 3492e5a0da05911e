package policy

import (
	"slices"
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/kv"
)

// replicaSync is Dynamo's option --router-replica-sync: each replica tells the others when a sequence of its
// begins, when its prefill is complete, and when it is freed. Nobody confirms
// or repeats that; what was told and not freed is forgotten after 300 s.
//
// Source: ai-dynamo/dynamo, lib/kv-router/src/sequences/replica_sync.rs and
// the expiry in single.rs.
type replicaSync struct {
	say   []sequenceEvent
	heard []heardSequence // in the order heard
}

type sequenceEvent struct {
	kind     sequenceKind
	id       uint64
	worker   int
	uncached int // tokens to compute
	keys     []kv.Key
}

type sequenceKind uint8

const (
	sequenceAdded sequenceKind = iota
	sequencePrefilled
	sequenceFreed
)

type heardSequence struct {
	id uint64
	at clock.Instant
}

const sequenceExpiry = 300 * time.Second

// begin books an own request with its blocks, and tells of it.
func (d *dynamo) begin(r *Request, worker, uncached int) {
	d.book.add(r.ID, worker, uncached, r.Keys)
	if d.cfg.Replicas > 1 {
		d.shared.say = append(d.shared.say, sequenceEvent{sequenceAdded, r.ID, worker, uncached, slices.Clone(r.Keys)})
	}
}

// FirstToken implements Router.
func (d *dynamo) FirstToken(_ clock.Instant, id uint64) {
	d.book.firstToken(id)
	d.tell(sequenceEvent{kind: sequencePrefilled, id: id})
}

// Done implements Router.
func (d *dynamo) Done(_ clock.Instant, id uint64, _ Usage) {
	d.book.done(id)
	d.tell(sequenceEvent{kind: sequenceFreed, id: id})
}

func (d *dynamo) tell(e sequenceEvent) {
	if d.cfg.Replicas > 1 {
		d.shared.say = append(d.shared.say, e)
	}
}

// Tell implements Peer.
func (d *dynamo) Tell(clock.Instant) any {
	if len(d.shared.say) == 0 {
		return nil
	}
	said := d.shared.say
	d.shared.say = nil
	return said
}

// Hear implements Peer.
func (d *dynamo) Hear(now clock.Instant, _ int, said any) {
	d.forgetOld(now)
	told, _ := said.([]sequenceEvent)
	for _, e := range told {
		switch e.kind {
		case sequenceAdded:
			d.book.add(e.id, e.worker, e.uncached, e.keys)
			d.shared.heard = append(d.shared.heard, heardSequence{e.id, now})
		case sequencePrefilled:
			d.book.firstToken(e.id)
		case sequenceFreed:
			d.book.done(e.id)
		}
	}
}

// forgetOld releases sequences heard of so long ago that the news of their end
// must have been lost.
func (d *dynamo) forgetOld(now clock.Instant) {
	h := d.shared.heard
	for len(h) > 0 && now.Sub(h[0].at) > sequenceExpiry {
		d.book.done(h[0].id)
		h = h[1:]
	}
	d.shared.heard = h
}
