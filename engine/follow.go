package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/zeebo/xxh3"

	"github.com/rhizome-router/rhizome/engine/kvwire"
)

const (
	// maxRounds bounds the rounds of one replay that each bring something.
	maxRounds = 1000
	// maxIdleRounds bounds the rounds in a row that bring nothing.
	maxIdleRounds = 3
)

// follower puts live and replayed batches into one order and emits them. It
// outlives connections and belongs to the goroutine of Run.
//
// The traps it is built around. An engine that restarts counts from 0 again,
// and may have passed our number by the time we are back: so a replay starts at
// the last batch we have, and its bytes must be the same. Publishers drop
// silently, and a lost tail shows only by the next message: so a silence is
// checked by a replay. The replay itself drops in the middle when we are slow,
// but never at its beginning: so a hole there, and only there, is a real one.
type follower struct {
	f    *Feed
	emit func(FeedEvent)

	started bool   // next is known
	next    uint64 // number of the next batch to apply
	hash    uint64 // of the payload of batch next-1, if hashed
	hashed  bool
	dirty   bool // something was emitted that a restart makes void

	// Of the present connection. An engine sends each number once, and none
	// from before we subscribed.
	floor    uint64 // next when it began
	last     uint64 // greatest live number, if haveLast
	haveLast bool
}

// begin notes that a new connection stands.
func (fo *follower) begin() {
	fo.floor, fo.haveLast = 0, false
	if fo.started {
		fo.floor = fo.next
	}
}

// forget drops what is known of a life of the engine that is over.
func (fo *follower) forget(why string) {
	fo.f.restarts.Add(1)
	fo.f.cfg.Log.Info("engine restarted: its cache starts anew", "events", fo.f.events, "seen_by", why, "next", fo.next)
	fo.started, fo.next, fo.hashed = false, 0, false
	fo.floor, fo.haveLast = 0, false
}

// startOver forgets what was told, of an engine that lives on: what can be
// replayed comes again, or else what it does from now on.
func (fo *follower) startOver() {
	fo.f.resyncs.Add(1)
	fo.f.cfg.Log.Warn("what is known of the worker's cache is wrong: following its KV events anew", "events", fo.f.events, "next", fo.next)
	fo.started, fo.next, fo.hashed = false, 0, false
}

// startAt makes seq the next number. What was emitted before is void.
func (fo *follower) startAt(seq uint64) {
	if fo.dirty || seq != 0 {
		fo.f.resets.Add(1)
		fo.emit(FeedEvent{Kind: FeedReset, Seq: seq})
		fo.dirty = false
	}
	fo.started, fo.next, fo.hashed = true, seq, false
}

// receive takes a live message.
func (fo *follower) receive(ctx context.Context, m kvwire.Message) {
	if fo.started && (m.Seq < fo.floor || fo.haveLast && m.Seq <= fo.last) {
		fo.forget("its numbers going back")
		fo.catchUpOrWarn(ctx, "after a restart")
	}
	fo.last, fo.haveLast = m.Seq, true
	if fo.started && m.Seq > fo.next {
		fo.f.gaps.Add(1)
		fo.catchUpOrWarn(ctx, "to fill a gap")
	}
	if ctx.Err() != nil {
		return // a replay cut short by our own end proves nothing lost
	}
	if fo.started && m.Seq < fo.next {
		return // replayed already
	}
	if !fo.started || m.Seq > fo.next {
		if fo.started {
			fo.f.cfg.Log.Warn("KV events are lost: the index of this worker starts anew",
				"events", fo.f.events, "from", fo.next, "to", m.Seq-1, "fix", "a replay endpoint, or a larger buffer_steps")
		}
		fo.startAt(m.Seq)
	}
	fo.apply(m)
}

// apply emits the batch with number next.
func (fo *follower) apply(m kvwire.Message) {
	b, err := fo.f.decode(m.Payload, fo.f.cfg.Model)
	if err != nil {
		fo.f.undecodable.Add(1)
		fo.f.cfg.Log.Warn("KV event batch is unreadable and skipped", "events", fo.f.events, "seq", m.Seq, "err", err)
		b = kvwire.Batch{Rank: -1, BadEvents: 1}
	}
	fo.hash, fo.hashed = xxh3.Hash(m.Payload), true
	fo.next, fo.dirty = m.Seq+1, true
	fo.emit(FeedEvent{
		Kind: FeedBatch, Seq: m.Seq, Ops: b.Ops, Groups: b.Groups, Rank: b.Rank, BadEvents: b.BadEvents, UnknownEvents: b.UnknownEvents,
	})
}

// catchUp replays what is missing, in as many rounds as that takes. Without a
// replay endpoint it does nothing.
func (fo *follower) catchUp(ctx context.Context) error {
	if fo.f.replay == "" {
		return nil
	}
	idle := 0
	for range maxRounds {
		from := fo.next
		if fo.hashed {
			from-- // the last one again, to see that it is the same engine's
		}
		got, complete, err := fo.f.fetch(ctx, from)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		before, wasStarted := fo.next, fo.started
		whole := fo.absorb(got, complete)
		if complete && whole {
			return nil
		}
		if fo.next != before || fo.started != wasStarted {
			idle = 0
			continue
		}
		if idle++; idle == maxIdleRounds {
			if err == nil {
				err = errors.New("the answers are incomplete")
			}
			return fmt.Errorf("replay from %d on: %d rounds brought nothing: %w", fo.next, idle, err)
		}
	}
	return fmt.Errorf("replay: still incomplete after %d rounds, at %d", maxRounds, fo.next)
}

func (fo *follower) catchUpOrWarn(ctx context.Context, when string) {
	if err := fo.catchUp(ctx); err != nil && ctx.Err() == nil {
		fo.f.cfg.Log.Warn("replay of KV events failed", "replay", fo.f.replay, "when", when, "err", err)
	}
}

// absorb applies what one round brought. It reports false when another round
// is needed, whatever the end marker says: after a hole, or a restart.
func (fo *follower) absorb(got []kvwire.Message, complete bool) (whole bool) {
	if fo.hashed {
		same, known := fo.sameEngine(got, complete)
		switch {
		case !known:
			return false
		case !same:
			fo.forget("its replay")
			return false
		case len(got) > 0 && got[0].Seq == fo.next-1:
			got = got[1:]
		}
	}
	if !fo.started && len(got) == 0 && complete {
		fo.startAt(0) // an engine that did nothing yet
	}
	for i, m := range got {
		switch {
		case !fo.started:
			fo.startAt(m.Seq)
		case m.Seq > fo.next && i > 0:
			return false // dropped on the way, or never there: ask again
		case m.Seq > fo.next:
			fo.f.cfg.Log.Warn("the engine's replay buffer doesn't hold what is missing: the index of this worker starts anew",
				"replay", fo.f.replay, "from", fo.next, "to", m.Seq-1, "fix", "a larger buffer_steps")
			fo.startAt(m.Seq)
		}
		fo.apply(m)
	}
	return true
}

// sameEngine tells from an answer that starts with the last batch we have
// whether the engine is still the one we know. An answer that starts later
// says nothing against it: its buffer has moved on.
func (fo *follower) sameEngine(got []kvwire.Message, complete bool) (same, known bool) {
	if len(got) == 0 {
		return false, complete // it never got as far as we did
	}
	first := got[0]
	return first.Seq != fo.next-1 || xxh3.Hash(first.Payload) == fo.hash, true
}
