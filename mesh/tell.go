package mesh

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/mesh/core"
)

// Tell sends words to one peer, to all of them if to is empty, at most once and
// without waiting. It reports whether a connection stands; there may be no room
// in its queue all the same. At most core.MaxToldBytes are sent.
func (n *Node) Tell(to string, t core.Topic, words []byte) (sent bool) {
	n.Do(func(_ clock.Instant, c *core.Core) { sent = c.Tell(to, t, words) })
	return sent
}

// HearTold has f told of what peers tell on a topic. It is called within Do, and
// words are valid during the call. It is said before Run.
func (n *Node) HearTold(t core.Topic, f func(from string, words []byte)) { n.ears.told[t] = f }

// Told is part of core.Sink.
func (e *ears) Told(from string, t core.Topic, words []byte) {
	if f := e.told[t]; f != nil {
		f(from, words)
	}
}

// Peer is another replica as membership has it.
type Peer struct {
	Name string
	Addr netip.AddrPort
	// Alive says that it is a member; Left that it said goodbye, and so is no
	// member any more.
	Alive, Left bool
	// Up says that a connection to it stands. Membership may have word of a replica
	// by others while none does.
	Up bool
	// Minor is the version of the protocol that it speaks within the major one.
	Minor byte
	// Since is when it came, or was missed.
	Since clock.Instant
}

// rememberGone is how long replicas that are no members any more are told of.
const rememberGone = time.Minute

// Peers returns the other replicas by name, those gone in the last minute
// included.
func (n *Node) Peers() []Peer {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := n.deps.Clock.Now()
	up := make(map[string]bool)
	for _, p := range n.core.Peers(now) {
		up[p.Name] = p.Up
	}
	var all []Peer
	for name, p := range n.members { // order-free: sorted below
		if !p.Alive && now.Sub(p.Since) > rememberGone {
			delete(n.members, name)
			continue
		}
		of := *p
		of.Up = up[name]
		all = append(all, of)
	}
	slices.SortFunc(all, func(a, b Peer) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// HearPeers has f told whenever [Node.Peers] changed, from the goroutine that
// follows membership, which must not be held up. It is said before Run.
func (n *Node) HearPeers(f func()) { n.membersHeard = append(n.membersHeard, f) }

func (n *Node) membersChanged() {
	for _, f := range n.membersHeard {
		f()
	}
}

// memberHere and memberGone need mu.
func (n *Node) memberHere(name string, addr netip.AddrPort, minor byte) {
	p := n.members[name]
	if p == nil || !p.Alive {
		p = &Peer{Name: name, Alive: true, Since: n.deps.Clock.Now()}
		n.members[name] = p
	}
	p.Addr, p.Minor = addr, minor
}

// LeastMinor returns the least minor version that a member speaks, this replica
// included: what a later one adds to the protocol is not to be used.
func (n *Node) LeastMinor() byte {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.leastMinor()
}

// minorOf returns the minor version of a replica; 0 for one that is not known.
func (n *Node) minorOf(name string) byte {
	n.mu.Lock()
	defer n.mu.Unlock()
	if p := n.members[name]; p != nil {
		return p.Minor
	}
	return 0
}

// leastMinor needs mu.
func (n *Node) leastMinor() byte {
	least := n.meta.minor
	for _, p := range n.members { // order-free: a minimum
		if p.Alive {
			least = min(least, p.Minor)
		}
	}
	return least
}

func (n *Node) memberGone(name string, left bool) {
	now := n.deps.Clock.Now()
	for other, p := range n.members { // order-free: each by itself
		if !p.Alive && now.Sub(p.Since) > rememberGone {
			delete(n.members, other)
		}
	}
	if p := n.members[name]; p != nil {
		p.Alive, p.Left, p.Since = false, left, now
	}
}
