package fleet

import (
	"math"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/cost"
	"github.com/rhizome-router/rhizome/crdt/wire"
	"github.com/rhizome-router/rhizome/kv"
	"github.com/rhizome-router/rhizome/mesh/core"
)

// Share is what one replica has in flight on a member, as it tells its peers.
type Share struct {
	QueuedTokens    float64 // ΣP: prefill tokens not computed yet
	QueuedPairs     float64
	QueuedSeqs      int
	Decoding        float64 // B
	ContextTokens   float64 // K
	RemainingTokens float64 // Σ d_rem
	UniqueTokens    float64 // U
	InFlight        int
}

// ShareOf returns the share that a load is.
func ShareOf(l *cost.Load, inFlight int) Share {
	return Share{
		QueuedTokens: l.QueuedTokens, QueuedPairs: l.QueuedPairs, QueuedSeqs: l.QueuedSeqs, Decoding: l.Decoding,
		ContextTokens: l.ContextTokens, RemainingTokens: l.RemainingTokens, UniqueTokens: l.UniqueTokens, InFlight: inFlight,
	}
}

// AddTo adds the share to a load.
func (s *Share) AddTo(l *cost.Load) {
	l.QueuedTokens += s.QueuedTokens
	l.QueuedPairs += s.QueuedPairs
	l.QueuedSeqs += s.QueuedSeqs
	l.Decoding += s.Decoding
	l.ContextTokens += s.ContextTokens
	l.RemainingTokens += s.RemainingTokens
	l.UniqueTokens += s.UniqueTokens
}

// scaled returns the share, as far as it is still believed: 0 to 1.
func (s Share) scaled(by float64) Share {
	if by == 1 {
		return s
	}
	count := func(n int) int { return int(math.Round(by * float64(n))) }
	return Share{by * s.QueuedTokens, by * s.QueuedPairs, count(s.QueuedSeqs), by * s.Decoding,
		by * s.ContextTokens, by * s.RemainingTokens, by * s.UniqueTokens, count(s.InFlight)}
}

// toldChange is the change of a number, relative to the larger, that peers are
// told of without an occasion.
const toldChange = 0.1

// Differs reports whether peers that know old should be told of s: a request
// came or went or got its first token, or time has changed a number by a tenth.
func (s *Share) Differs(old *Share) bool {
	if s.InFlight != old.InFlight || s.QueuedSeqs != old.QueuedSeqs {
		return true
	}
	for _, v := range [...][2]float64{
		{s.QueuedTokens, old.QueuedTokens}, {s.QueuedPairs, old.QueuedPairs}, {s.Decoding, old.Decoding},
		{s.ContextTokens, old.ContextTokens}, {s.RemainingTokens, old.RemainingTokens}, {s.UniqueTokens, old.UniqueTokens},
	} {
		if math.Abs(v[0]-v[1]) > toldChange*max(v[0], v[1]) {
			return true
		}
	}
	return false
}

// A share on the page Loads is an array of whole numbers; later versions may
// append others.
const (
	shareFields = 8
	// maxShareTokens and maxSharePairs bound what a peer may say to have in
	// flight on one member, maxShareSeqs the sequences.
	maxShareTokens = 1 << 40
	maxSharePairs  = 1 << 60
	maxShareSeqs   = 1 << 20
)

// encodeShare returns what decodeShare reads: some 20 bytes.
func encodeShare(s *Share) []byte {
	w := wire.NewWriter(nil)
	put := func(v float64, most uint64) { w.Uint(uint64(max(0, min(float64(most), math.Round(v))))) }
	w.Array(shareFields)
	put(s.QueuedTokens, maxShareTokens)
	put(s.QueuedPairs, maxSharePairs)
	put(float64(s.QueuedSeqs), maxShareSeqs)
	put(s.Decoding, maxShareSeqs)
	put(s.ContextTokens, maxShareTokens)
	put(s.RemainingTokens, maxShareTokens)
	put(s.UniqueTokens, maxShareTokens)
	put(float64(s.InFlight), maxShareSeqs)
	return w.Bytes()
}

func decodeShare(b []byte) (s Share, ok bool) {
	r := wire.NewReader(b)
	if r.Array(1) < shareFields {
		return s, false
	}
	get := func(most uint64) float64 { return float64(r.Uint(most)) }
	s.QueuedTokens = get(maxShareTokens)
	s.QueuedPairs = get(maxSharePairs)
	s.QueuedSeqs = int(get(maxShareSeqs))
	s.Decoding = get(maxShareSeqs)
	s.ContextTokens = get(maxShareTokens)
	s.RemainingTokens = get(maxShareTokens)
	s.UniqueTokens = get(maxShareTokens)
	s.InFlight = int(get(maxShareSeqs))
	return s, r.Err() == nil
}

// PutShare tells the peers what this replica has in flight on a target.
func PutShare(now clock.Instant, c *core.Core, t kv.Target, s *Share) {
	key := core.TargetKey(t)
	if *s == (Share{}) {
		c.Delete(core.Loads, key)
		return
	}
	value := encodeShare(s)
	if old, ok := c.Own(core.Loads).Get(int64(now), key); !ok || string(old.Value) != string(value) {
		c.Put(now, core.Loads, key, value, 0)
	}
}
