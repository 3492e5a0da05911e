package model

import (
	"slices"

	"github.com/rhizome-router/rhizome/kv"
)

// Kind says what an Event tells.
type Kind uint8

const (
	// Admitted: a request got its KV blocks (again, after a preemption).
	Admitted Kind = iota
	// FirstToken: the prompt is computed and the first token is out. HBMTokens
	// and TierTokens are final.
	FirstToken
	// Tokens: Tokens more tokens came out, the last of them at At. The first
	// token of all is told by FirstToken only.
	Tokens
	// Finished: the last token is out and the blocks are released. Tokens is
	// the output's length.
	Finished
	// Preempted: the pool ran out, the request waits again and will be
	// recomputed.
	Preempted
	// Cancelled: a cancelled request's slot and blocks are free.
	Cancelled
	// Stored: blocks are on a tier, a run in prefix order.
	Stored
	// Removed: blocks left a tier.
	Removed
)

// Event is one thing that happened.
type Event struct {
	Kind Kind
	At   float64 // modelled microseconds
	ID   uint64  // all but Stored and Removed

	Tokens     int // Tokens, Finished
	HBMTokens  int // Admitted, FirstToken: prompt tokens found in HBM
	TierTokens int // Admitted, FirstToken: prompt tokens loaded from a lower tier

	// Stored, Removed. Blocks is only valid during the call.
	Tier      kv.Tier
	HasParent bool // Stored: Parent is the block before Blocks[0]
	Parent    kv.EngineHash
	Blocks    []kv.EngineHash
}

// Sink receives events in the order in which things happened.
type Sink func(Event)

// change is a Stored or Removed that is told when the current iteration ends,
// as engines do.
type change struct {
	removed   bool
	hasParent bool
	parent    kv.EngineHash
	hash      kv.EngineHash   // the one block, when run is nil
	run       []kv.EngineHash // part of a request's keys
}

// journal keeps the changes of one iteration by tier. Lower tiers are told
// first, so that a block that moves down is never gone in between.
type journal struct {
	changes [kv.NumTiers][]change
	pending bool
	scratch []kv.EngineHash
}

func (j *journal) add(t kv.Tier, c change) {
	j.changes[t] = append(j.changes[t], c)
	j.pending = true
}

// flush tells everything pending with time at.
func (j *journal) flush(at float64, sink Sink) {
	if !j.pending {
		return
	}
	j.pending = false
	for t := kv.Tier(kv.NumTiers); t > 0; {
		t--
		list := j.changes[t]
		j.changes[t] = list[:0]
		for rest := list; len(rest) > 0; {
			n, e := j.merge(rest)
			rest = rest[n:]
			e.At, e.Tier = at, t
			sink(e)
		}
		clear(list) // drop the keys of past requests
	}
}

// merge makes one event of as many leading changes as one event can tell, and
// returns how many.
func (j *journal) merge(list []change) (int, Event) {
	first := list[0]
	if !first.removed && first.run != nil {
		return 1, Event{Kind: Stored, HasParent: first.hasParent, Parent: first.parent, Blocks: first.run}
	}
	j.scratch = append(j.scratch[:0], first.hash)
	n := 1
	if first.removed {
		for ; n < len(list) && list[n].removed; n++ {
			j.scratch = append(j.scratch, list[n].hash)
		}
		return n, Event{Kind: Removed, Blocks: j.scratch}
	}
	// Spilled blocks come deepest first: a run grows at its front.
	last := first
	for ; n < len(list); n++ {
		c := list[n]
		if c.removed || c.run != nil || !last.hasParent || last.parent != c.hash {
			break
		}
		j.scratch = append(j.scratch, c.hash)
		last = c
	}
	slices.Reverse(j.scratch)
	return n, Event{Kind: Stored, HasParent: last.hasParent, Parent: last.parent, Blocks: j.scratch}
}
