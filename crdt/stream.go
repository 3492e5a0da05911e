// Package crdt holds the data that replicas share and the rules by which
// copies of it become equal.
//
// The central type is [Stream]; start reading at [Stream.Apply]. [Log] is the
// set of a replica's streams and bounds what they use together. A stream is
// the log of what one engine said about its cache during one boot, and the
// base that follows from it: which blocks are on which tiers. It has one
// writer, the engine, so replicas that applied the same batches have equal
// bases, whatever the order in which the batches reached them. Package index
// shows the base; the stream tells it what changed.
//
// What replicas say of themselves (loads, workers found, …) is on a [Page] each,
// which others copy; what anyone may say is in [Latest]. wire.go and deltawire.go
// tell how all of it is sent.
//
// Everything here is pure: no clock, no goroutine, no input or output. A
// Stream is used by one goroutine at a time.
package crdt

import (
	"math"

	"github.com/rhizome-router/rhizome/index"
	"github.com/rhizome-router/rhizome/kv"
)

// StreamConfig sets what a stream's engine means and how much a stream may
// hold. The zero value is usable.
type StreamConfig struct {
	// Counted says that the engine reports each physical copy of a block: one
	// that was inserted twice is gone after the second removal. Otherwise
	// presence is a set, and the first removal takes the block away.
	Counted bool
	// MaxPendingBytes bounds the batches that wait for a gap to close, by an
	// estimate of their memory; 0 means 1 MiB.
	MaxPendingBytes int
	// MaxBlocks bounds the base, about 33 B a block; 0 means 4 Mi, and more
	// than 16 Mi - 2 is not possible. Blocks past it are refused and counted.
	// Replicas agree only if none refused a block.
	MaxBlocks int
}

// Outcome says what became of a batch or a skip.
type Outcome uint8

const (
	// Applied: it is part of the base now, with what it made possible.
	Applied Outcome = iota
	// Duplicate: it was applied or skipped before, or already waits.
	Duplicate
	// Pending: it waits for those before it.
	Pending
	// Overflow: it would have to wait, but there is no room; it was dropped.
	// The caller asks again from Next on.
	Overflow
)

var outcomeNames = [...]string{"applied", "duplicate", "pending", "overflow"}

// String returns the outcome's name as used in logs and metrics.
func (o Outcome) String() string { return outcomeNames[o] }

// Stream is one engine stream's log position and base.
type Stream struct {
	cfg   StreamConfig
	next  uint64 // W + 1
	ahead ahead
	skips []Range
	base  base
	marks []Mark // the last maxMarks

	log    *Log // nil of a stream alone
	ring   ring
	spoken [kv.NumTiers]uint64 // by tier: the log's clock when a batch last spoke of it
	bytes  int64               // of the base, as the log counts it
}

// NewStream returns an empty stream that expects batch 0 next.
func NewStream(cfg StreamConfig) *Stream {
	return newStream(cfg, nil, &gauge{max: math.MaxInt})
}

func newStream(cfg StreamConfig, log *Log, pending *gauge) *Stream {
	if cfg.MaxPendingBytes == 0 {
		cfg.MaxPendingBytes = 1 << 20
	}
	if cfg.MaxBlocks == 0 {
		cfg.MaxBlocks = 4 << 20
	}
	cfg.MaxBlocks = min(cfg.MaxBlocks, maxEntries)
	s := &Stream{cfg: cfg, log: log, ahead: ahead{maxBytes: cfg.MaxPendingBytes, shared: pending}}
	s.Start(0)
	return s
}

// Start forgets everything and expects batch seq next. It reports no changes:
// the caller drops the index slot. What came before seq counts as skipped, for
// none of it is in the base.
func (s *Stream) Start(seq uint64) {
	s.next = seq
	s.ahead.charge(-s.ahead.bytes)
	s.ahead.batches, s.ahead.skips = nil, nil
	s.skips = nil
	if seq > 0 {
		s.skips = []Range{{0, seq - 1}}
	}
	s.marks = nil
	s.base = base{counted: s.cfg.Counted, max: s.cfg.MaxBlocks}
	s.moved()
}

// moved says that the stream begins anew at its present position.
func (s *Stream) moved() {
	if s.log == nil {
		s.ring.first = s.next
		return
	}
	s.log.emptyRing(s, s.next)
	for t := range s.spoken {
		s.spoken[t] = s.log.clock
	}
	s.weigh()
}

// weigh tells the log the base's size.
func (s *Stream) weigh() {
	if s.log != nil {
		n := s.base.bytes()
		s.log.bases += n - s.bytes
		s.bytes = n
	}
}

// perform applies the batch with number s.next.
func (s *Stream) perform(ops []kv.Op, emit func(index.Change)) {
	s.base.apply(ops, emit)
	if s.log != nil {
		s.log.applied(s, s.next, ops)
	} else {
		s.ring.first = s.next + 1
	}
	s.advance(s.next)
}

// Apply takes the batch with number seq, and with it those that waited for
// nothing else. emit gets each (key, group, tier) that came or went, in order.
// A batch ahead of its turn is kept as it is, and so is each batch of a stream
// of a Log, so the caller must not change ops afterwards.
func (s *Stream) Apply(seq uint64, ops []kv.Op, emit func(index.Change)) Outcome {
	if seq != s.next {
		if seq < s.next {
			return Duplicate
		}
		return s.ahead.keep(seq, ops)
	}
	s.perform(ops, emit)
	s.catchUp(emit)
	return Applied
}

// Skip puts a skip in the place of the batches from … to, both included: they
// are lost to everybody, and the log goes on after them. Those of them that
// were applied before stay so; those that wait give way to the skip, so that
// replicas agree. A stream takes at most 1024 separate skips, then Overflow.
func (s *Stream) Skip(from, to uint64, emit func(index.Change)) Outcome {
	if to < max(from, s.next) {
		return Duplicate
	}
	if to == endOfLog || len(s.skips)+len(s.ahead.skips) >= maxSkips {
		return Overflow
	}
	s.ahead.skip(Range{from, to})
	s.catchUp(emit)
	if s.next <= to {
		return Pending
	}
	return Applied
}

// catchUp applies what waited for the present position.
func (s *Stream) catchUp(emit func(index.Change)) {
	for {
		if ops, ok := s.ahead.take(s.next); ok {
			s.perform(ops, emit)
		} else if to, ok := s.ahead.takeSkip(s.next); ok {
			s.skips = addRange(s.skips, Range{s.next, to})
			s.advance(to)
		} else {
			s.weigh()
			return
		}
	}
}

// advance says that everything up to w is applied or skipped.
func (s *Stream) advance(w uint64) {
	before := s.next
	s.next = w + 1
	if markNo(before) != markNo(s.next) {
		s.Mark()
	}
}

// Next returns the number of the batch expected next: W + 1.
func (s *Stream) Next() uint64 { return s.next }

// Skips returns the numbers that were skipped, as sorted ranges that don't
// touch. They are valid until the next call that changes the stream.
func (s *Stream) Skips() []Range { return s.skips }

// Group returns the number under which changes speak of the engine's KV group
// wire, once a batch with blocks was applied. Main attention is 0 whatever the
// engine calls it: it is the group of the stream's first Insert, for adapters
// insert blocks in main attention and say only Also of other groups. The group
// that the engine calls 0 gets the number that main attention has there.
func (s *Stream) Group(wire uint16) uint16 { return s.base.ownGroup(wire) }

// Held returns the number of blocks of group 0 on a tier.
func (s *Stream) Held(t kv.Tier) int { return s.base.held[t] }

// Digest sums up the base: equal bases have equal digests, and different ones
// almost surely don't. It is a function of the content only. That of a
// truncated stream is not to be compared.
func (s *Stream) Digest() uint64 { return s.base.digest }

// Truncated returns the tiers that the log's limit made this copy forget
// (Log.Trim). While there are any, the base isn't what the log leads to.
func (s *Stream) Truncated() kv.TierMask { return s.base.truncated }

func (s *Stream) truncate(t kv.Tier, emit func(index.Change)) {
	s.base.truncate(t, emit)
	s.marks = nil
	s.weigh()
}

// Each emits everything that is present, as if it had just come, so that a
// fresh index slot can be filled. What two engine hashes share may come twice.
func (s *Stream) Each(emit func(index.Change)) { s.base.each(emit) }

// StreamStats is a snapshot of a stream's size.
type StreamStats struct {
	Blocks         int    // (group, engine hash) pairs in the base
	Unkeyed        int    // of these, without a key because their parent is unknown
	Refused        uint64 // blocks refused: MaxBlocks, or their own parent
	PendingBatches int
	PendingBytes   int   // estimate
	RingBatches    int   // kept for copies to catch up
	RingBytes      int   // estimate
	Bytes          int64 // memory of the base, estimate
}

// Stats returns the current sizes.
func (s *Stream) Stats() StreamStats {
	return StreamStats{
		Blocks:         s.base.blocks,
		Unkeyed:        len(s.base.orphans),
		Refused:        s.base.refused,
		PendingBatches: len(s.ahead.batches),
		PendingBytes:   s.ahead.bytes,
		RingBatches:    len(s.ring.batches),
		RingBytes:      s.ring.bytes,
		Bytes:          s.base.bytes(),
	}
}
