package fleet

import (
	"context"
	"encoding/binary"
	"sync"
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/crdt"
	"github.com/rhizome-router/rhizome/kv"
	"github.com/rhizome-router/rhizome/mesh/core"
)

// sharePages are the pages Loads of the peers, as shares of the members. A
// target that is no member, or none yet, keeps what was said of it: discovery
// may be behind the mesh.
type sharePages struct {
	mu      sync.Mutex
	members map[kv.Target]*Member // of the view
	said    map[kv.Target]map[*Peer]Share
	peers   map[core.Replica]*pagePeer
	bad     uint64 // values that could not be read
}

// pagePeer is a peer and how many values of its page are here.
type pagePeer struct {
	Peer
	values map[string]struct{}
}

// meanKey is where a replica's mean request time stands among its loads.
const meanKey = "mean"

// hear takes a value of a peer's page; nil for one that went.
func (p *sharePages) hear(now clock.Instant, writer core.Replica, key string, value *crdt.PageItem) {
	p.mu.Lock()
	defer p.mu.Unlock()
	peer := p.peers[writer]
	if peer == nil {
		if value == nil {
			return
		}
		peer = &pagePeer{Peer: Peer{id: writer}, values: make(map[string]struct{})}
		peer.Heard(now)
		p.peers[writer] = peer
	}
	peer.values[key] = struct{}{}
	if value == nil {
		if delete(peer.values, key); len(peer.values) == 0 {
			delete(p.peers, writer)
		}
	}
	if key == meanKey {
		if value != nil && len(value.Value) == 8 {
			peer.SetMeanRequest(time.Duration(binary.LittleEndian.Uint64(value.Value)))
		}
		return
	}
	t, ok := core.TargetOf(key)
	if !ok {
		return
	}
	var s Share
	if value != nil {
		if s, ok = decodeShare(value.Value); !ok {
			p.bad++ // and what it said before counts no more
		}
	}
	p.set(t, &peer.Peer, s)
}

func (p *sharePages) set(t kv.Target, peer *Peer, s Share) {
	said := p.said[t]
	switch {
	case s != (Share{}) && said == nil:
		p.said[t] = map[*Peer]Share{peer: s}
	case s != (Share{}):
		said[peer] = s
	default:
		if delete(said, peer); len(said) == 0 {
			delete(p.said, t)
		}
	}
	if m := p.members[t]; m != nil {
		m.HearShare(peer, s)
	}
}

// unread counts the values that could not be read.
func (p *sharePages) unread() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.bad
}

// show makes members those that are told, and tells new ones what was said of
// them before.
func (p *sharePages) show(members []*Member) {
	p.mu.Lock()
	defer p.mu.Unlock()
	was := p.members
	p.members = make(map[kv.Target]*Member, len(members))
	for _, m := range members {
		p.members[m.Target] = m
		if was[m.Target] != m {
			for peer, s := range p.said[m.Target] {
				m.HearShare(peer, s)
			}
		}
	}
}

// listen notes when each peer last spoke.
func (p *sharePages) listen(c *core.Core) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, peer := range p.peers {
		if at, ok := c.Heard(core.Loads, id); ok {
			peer.Heard(at)
		}
	}
}

// PutMeanRequest tells the peers how long a request takes on average: with that
// half-life what this replica has in flight fades once it can't be heard.
func PutMeanRequest(now clock.Instant, c *core.Core, d time.Duration) {
	c.Put(now, core.Loads, meanKey, binary.LittleEndian.AppendUint64(nil, uint64(d)), 0)
}

const (
	// tellEvery is how often this replica looks for what its peers should be
	// told: about as often as the mesh sends.
	tellEvery = 5 * time.Millisecond
	// listenEvery is how often it looks whether they can be heard.
	listenEvery = 50 * time.Millisecond
)

// exchange keeps the peers' shares and the replica's own up to date until ctx
// ends.
func (f *Fleet) exchange(ctx context.Context) {
	var listened clock.Instant
	for f.deps.Clock.Sleep(ctx, tellEvery) == nil {
		if now := f.deps.Clock.Now(); now.Sub(listened) >= listenEvery {
			listened = now
			f.Listen()
		}
		if f.deps.Tell != nil {
			f.deps.Tell()
		}
	}
}

// Listen notes which peers can still be heard, for a driver that does without
// Run: some ten times a second.
func (f *Fleet) Listen() {
	f.mesh.Do(func(_ clock.Instant, c *core.Core) { f.shares.listen(c) })
}
