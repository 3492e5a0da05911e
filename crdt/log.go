package crdt

import (
	"cmp"
	"iter"
	"slices"

	"github.com/rhizome-router/rhizome/index"
	"github.com/rhizome-router/rhizome/kv"
)

// Source is the part of a worker that a stream speaks of.
type Source uint8

const (
	Engine  Source = iota // the engine's own cache
	Offload               // an offloading layer with a feed of its own
	Pool                  // a pool that many workers fetch from
)

// StreamID names a stream in every replica.
type StreamID struct {
	Target kv.Target
	Source Source
	Boot   kv.Boot
}

func compareIDs(a, b StreamID) int {
	return cmp.Or(cmp.Compare(a.Target.Worker, b.Target.Worker), cmp.Compare(a.Target.Rank, b.Target.Rank),
		cmp.Compare(a.Source, b.Source), cmp.Compare(a.Boot, b.Boot))
}

// LogConfig sets what all streams of a Log may use together. The zero value is
// usable.
type LogConfig struct {
	// MaxPendingBytes bounds the batches that wait for a gap to close; 0 means
	// 64 MiB. Each stream's own limit holds besides.
	MaxPendingBytes int
	// MaxRingBytes bounds the batches kept for copies to catch up; 0 means
	// 256 MiB. The oldest of all streams go first, so that each stream keeps
	// about the same time.
	MaxRingBytes int
	// MaxBaseBytes bounds the bases; 0 means 2 GiB. See Trim.
	MaxBaseBytes int64
}

// Log is the streams of a replica and the memory that they share. It and its
// streams are used by one goroutine at a time.
type Log struct {
	cfg     LogConfig
	streams map[StreamID]*Stream
	pending gauge
	clock   uint64 // batches applied
	bases   int64  // bytes of all bases

	ringBytes int
	oldest    []*Stream // of each kept batch of all rings, in the order they came
	stats     LogStats  // only what counts up
}

// NewLog returns a Log without streams.
func NewLog(cfg LogConfig) *Log {
	if cfg.MaxPendingBytes == 0 {
		cfg.MaxPendingBytes = 64 << 20
	}
	if cfg.MaxRingBytes == 0 {
		cfg.MaxRingBytes = 256 << 20
	}
	if cfg.MaxBaseBytes == 0 {
		cfg.MaxBaseBytes = 2 << 30
	}
	return &Log{cfg: cfg, streams: map[StreamID]*Stream{}, pending: gauge{max: cfg.MaxPendingBytes}}
}

// Open returns the stream of an id, made with cfg if there is none yet.
func (l *Log) Open(id StreamID, cfg StreamConfig) *Stream {
	s := l.streams[id]
	if s == nil {
		s = newStream(cfg, l, &l.pending)
		l.streams[id] = s
	}
	return s
}

// Stream returns the stream of an id, or nil.
func (l *Log) Stream(id StreamID) *Stream { return l.streams[id] }

// Close forgets a stream. The caller drops its index slot and uses the stream
// no more.
func (l *Log) Close(id StreamID) {
	if s := l.streams[id]; s != nil {
		s.Start(0)
		delete(l.streams, id)
	}
}

// All returns the streams in the order of their ids.
func (l *Log) All() iter.Seq2[StreamID, *Stream] {
	ids := make([]StreamID, 0, len(l.streams))
	for id := range l.streams { // order-free: sorted below
		ids = append(ids, id)
	}
	slices.SortFunc(ids, compareIDs)
	return func(yield func(StreamID, *Stream) bool) {
		for _, id := range ids {
			if !yield(id, l.streams[id]) {
				return
			}
		}
	}
}

// Trim keeps the bases within MaxBaseBytes. While they are over it, a whole
// tier of one stream goes, the one that no batch spoke of for longest, and the
// stream is truncated: it takes nothing on that tier any more, has no digest,
// marks or snapshot, until Start or Restore. emit gets what is absent now, a
// stream at a time. Batches are applied whatever the limit, so the owner calls
// Trim after applying; it costs little while there is room.
func (l *Log) Trim(emit func(StreamID, index.Change)) {
	for l.bases > l.cfg.MaxBaseBytes {
		var id StreamID
		var coldest *Stream
		var tier kv.Tier
		for i, s := range l.All() {
			for t := range kv.Tier(kv.NumTiers) {
				if s.base.onTier[t] > 0 && (coldest == nil || s.spoken[t] < coldest.spoken[tier] ||
					s == coldest && s.spoken[t] == s.spoken[tier]) { // of equals the slower
					id, coldest, tier = i, s, t
				}
			}
		}
		if coldest == nil {
			return
		}
		coldest.truncate(tier, func(c index.Change) { emit(id, c) })
		l.stats.Truncations++
	}
}

// applied takes note of a batch that s just applied.
func (l *Log) applied(s *Stream, seq uint64, ops []kv.Op) {
	l.clock++
	for i := range ops {
		if t := ops[i].Tier; ops[i].Kind != kv.Clear && t < kv.NumTiers {
			s.spoken[t] = l.clock
		}
	}
	s.ring.push(seq, ops)
	l.ringBytes += opBytes(ops)
	l.oldest = append(l.oldest, s)
	for l.ringBytes > l.cfg.MaxRingBytes {
		l.ringBytes -= l.oldest[0].ring.drop()
		l.oldest[0] = nil
		l.oldest = l.oldest[1:]
		l.stats.RingDropped++
	}
}

// emptyRing forgets the kept batches of s; first is the next to keep.
func (l *Log) emptyRing(s *Stream, first uint64) {
	l.ringBytes -= s.ring.bytes
	if len(s.ring.batches) > 0 {
		l.oldest = slices.DeleteFunc(l.oldest, func(o *Stream) bool { return o == s })
	}
	s.ring = ring{first: first}
}

// LogStats is a snapshot of a Log's size.
type LogStats struct {
	Streams      int
	PendingBytes int   // estimate, as are all bytes here
	RingBytes    int   // batches kept for copies to catch up
	BaseBytes    int64 // bases
	Truncated    int   // (stream, tier) pairs that are truncated now

	PendingRefused uint64 // batches refused by MaxPendingBytes, since NewLog
	RingDropped    uint64 // batches dropped from rings by MaxRingBytes, since NewLog
	Truncations    uint64 // (stream, tier) pairs truncated by MaxBaseBytes, since NewLog
}

// Stats returns the current sizes.
func (l *Log) Stats() LogStats {
	st := l.stats
	st.Streams, st.PendingBytes, st.RingBytes, st.BaseBytes = len(l.streams), l.pending.used, l.ringBytes, l.bases
	st.PendingRefused = l.pending.refused
	for _, s := range l.streams { // order-free: a sum
		for t := range kv.Tier(kv.NumTiers) {
			if s.Truncated().Has(t) {
				st.Truncated++
			}
		}
	}
	return st
}

// gauge is an amount that several holders share.
type gauge struct {
	used, max int
	refused   uint64
}
