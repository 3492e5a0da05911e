package fleet

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/cost"
	"github.com/rhizome-router/rhizome/mesh/core"
)

// Peer is another replica, as one that has requests on the members.
type Peer struct {
	id       core.Replica
	heard    atomic.Int64 // when it last spoke, by our clock
	halfLife atomic.Int64 // of its shares, once it is silent
}

// NewPeer returns a replica that was heard at no time after 0.
func NewPeer(id core.Replica) *Peer { return &Peer{id: id} }

// Heard records that the replica spoke, of whatever.
func (p *Peer) Heard(at clock.Instant) { p.heard.Store(int64(at)) }

// SetMeanRequest records how long a request takes there, on average, from its
// placing to its end.
func (p *Peer) SetMeanRequest(d time.Duration) { p.halfLife.Store(int64(d)) }

const (
	// silentAfter is how long a replica that lives may be silent: three
	// heartbeats.
	silentAfter = 750 * time.Millisecond
	// assumedRequest is how long requests take where nobody knows, and
	// leastRequest and mostRequest bound what a peer may say.
	assumedRequest            = 10 * time.Second
	leastRequest, mostRequest = 100 * time.Millisecond, 5 * time.Minute
	// leastWeight is the weight from which down a share counts for nothing.
	leastWeight = 1.0 / 64
)

// weight is how much of what the replica said counts: all of it as long as it
// can be heard, and then half as much after each mean request time, since its
// requests end whether we hear of it or not.
func (p *Peer) weight(now clock.Instant) float64 {
	silent := now.Sub(clock.Instant(p.heard.Load())) - silentAfter
	if silent <= 0 {
		return 1
	}
	halfLife := max(leastRequest, min(mostRequest, cmp.Or(time.Duration(p.halfLife.Load()), assumedRequest)))
	if w := math.Exp2(-float64(silent) / float64(halfLife)); w >= leastWeight {
		return w
	}
	return 0
}

func (p *Peer) compare(o *Peer) int {
	return cmp.Or(cmp.Compare(p.id.Name, o.id.Name), cmp.Compare(p.id.Inc, o.id.Inc))
}

// peerShares are the shares of the other replicas on one member, by replica.
type peerShares struct {
	mu    sync.Mutex
	from  []heardShare
	peers atomic.Int32 // in from, for PeerShare to read without the lock
}

type heardShare struct {
	peer  *Peer
	share Share
}

// HearShare records what another replica has in flight on the member, in place
// of what it said before.
func (m *Member) HearShare(p *Peer, s Share) {
	m.peers.mu.Lock()
	defer m.peers.mu.Unlock()
	i, known := slices.BinarySearchFunc(m.peers.from, p, func(h heardShare, p *Peer) int { return h.peer.compare(p) })
	switch {
	case known && s == (Share{}):
		m.peers.from = slices.Delete(m.peers.from, i, i+1)
	case known:
		m.peers.from[i] = heardShare{p, s}
	case s != (Share{}):
		m.peers.from = slices.Insert(m.peers.from, i, heardShare{p, s})
	}
	m.peers.peers.Store(int32(len(m.peers.from)))
	m.changes.Add(1) // who counts it sees what changed
}

// PeerShare returns what the other replicas have in flight on the member
// together.
func (m *Member) PeerShare(now clock.Instant) Share {
	if m.peers.peers.Load() == 0 {
		return Share{}
	}
	m.peers.mu.Lock()
	defer m.peers.mu.Unlock()
	var sum cost.Load
	inFlight := 0
	for i := range m.peers.from {
		h := &m.peers.from[i]
		w := h.peer.weight(now)
		if w == 0 {
			continue
		}
		s := h.share.scaled(w)
		s.AddTo(&sum)
		inFlight += s.InFlight
	}
	return ShareOf(&sum, inFlight)
}
