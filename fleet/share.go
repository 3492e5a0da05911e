package fleet

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/cost"
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

// shareLife is how long a share counts without being said again. Replicas
// repeat theirs several times in that time, so only those of a replica that
// can't be heard any more run out.
const shareLife = 3 * time.Second

// peerShares are the shares of the other replicas on one member, by replica.
type peerShares struct {
	mu   sync.Mutex
	from []heardShare
}

type heardShare struct {
	replica int
	share   Share
	at      clock.Instant
}

func (p *peerShares) find(replica int) (int, bool) {
	return slices.BinarySearchFunc(p.from, replica, func(h heardShare, r int) int { return cmp.Compare(h.replica, r) })
}

// HearShare records what another replica has in flight on the member, in place
// of what it said before.
func (m *Member) HearShare(now clock.Instant, replica int, s Share) {
	m.peers.mu.Lock()
	defer m.peers.mu.Unlock()
	i, known := m.peers.find(replica)
	switch {
	case known && s == (Share{}):
		m.peers.from = slices.Delete(m.peers.from, i, i+1)
	case known:
		m.peers.from[i] = heardShare{replica, s, now}
	case s != (Share{}):
		m.peers.from = slices.Insert(m.peers.from, i, heardShare{replica, s, now})
	}
}

// PeerShare returns what the other replicas have in flight on the member
// together.
func (m *Member) PeerShare(now clock.Instant) Share {
	m.peers.mu.Lock()
	defer m.peers.mu.Unlock()
	m.peers.from = slices.DeleteFunc(m.peers.from, func(h heardShare) bool { return now.Sub(h.at) > shareLife })
	var sum cost.Load
	inFlight := 0
	for i := range m.peers.from {
		m.peers.from[i].share.AddTo(&sum)
		inFlight += m.peers.from[i].share.InFlight
	}
	return ShareOf(&sum, inFlight)
}
