package mesh

import (
	"cmp"
	"context"
	"io"
	"log"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/mesh/core"
	"github.com/rhizome-router/rhizome/transport"
)

// Minor is the version of the protocol within transport's major one. A replica
// tells it in its membership; what a later one adds is used once all members
// have it.
const Minor = 1

// membership returns memberlist's configuration: its fast profile for replicas
// near each other, on the gossip plane. Its own encryption is off, for the plane
// is encrypted and knows who speaks; so is its compression.
func (n *Node) membership() *memberlist.Config {
	c := memberlist.DefaultLANConfig()
	self := n.deps.Endpoint.Self()
	c.Name, c.Label = self.Boot, n.cfg.Transport.Cluster
	c.Transport = n.deps.Endpoint.Gossip()
	c.BindAddr, c.BindPort = self.Addr.Addr().String(), int(self.Addr.Port())
	c.AdvertiseAddr, c.AdvertisePort = c.BindAddr, c.BindPort
	c.ProbeInterval, c.ProbeTimeout = 500*time.Millisecond, 200*time.Millisecond
	c.GossipInterval, c.GossipNodes = 50*time.Millisecond, 4
	c.PushPullInterval, c.SuspicionMult, c.TCPTimeout = 10*time.Second, 3, dialTimeout
	// Suspicion waits for another member's word, but one that was itself away knows
	// nothing of who is suspected, and the default of 6 has a crash show after 10 s.
	c.SuspicionMaxTimeoutMult = 2
	c.UDPBufferSize, c.EnableCompression = transport.GossipPacketBytes, false
	c.Delegate, c.Events = &n.meta, &memberlist.ChannelEventDelegate{Ch: n.events}
	c.Logger = log.New(logWriter{n.deps.Log}, "", 0)
	return c
}

// meta is what a member tells of itself: its Minor, and whether it is about to
// leave. Membership's events don't tell a goodbye from a death.
type meta struct {
	minor   byte
	leaving atomic.Bool
}

func (m *meta) NodeMeta(int) []byte {
	if m.leaving.Load() {
		return []byte{m.minor, 1}
	}
	return []byte{m.minor, 0}
}

// minorOf is the minor version in a member's meta; 0 where it tells none.
func minorOf(meta []byte) byte {
	if len(meta) == 0 {
		return 0
	}
	return meta[0]
}

// leaves reports whether a member's meta says that it is about to leave.
func leaves(meta []byte) bool { return len(meta) > 1 && meta[1] == 1 }

func (*meta) NotifyMsg([]byte)                {}
func (*meta) GetBroadcasts(int, int) [][]byte { return nil }
func (*meta) LocalState(bool) []byte          { return nil }
func (*meta) MergeRemoteState([]byte, bool)   {}

// logWriter passes memberlist's lines on; what it takes for errors is part of
// its work when peers come and go.
type logWriter struct{ log *slog.Logger }

func (w logWriter) Write(b []byte) (int, error) {
	w.log.Debug("membership", "line", strings.TrimSpace(string(b)))
	return len(b), nil
}

var _ io.Writer = logWriter{}

// follow keeps lanes to the members, as they come and go.
func (n *Node) follow(ctx context.Context, wg *sync.WaitGroup) {
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-n.events:
			if e.Node.Name == n.deps.Endpoint.Self().Boot {
				continue
			}
			addr := netip.AddrPortFrom(addrOf(e.Node.Addr), e.Node.Port)
			switch e.Event {
			case memberlist.NodeJoin, memberlist.NodeUpdate:
				n.join(ctx, wg, e.Node.Name, addr, minorOf(e.Node.Meta))
			case memberlist.NodeLeave:
				n.leave(e.Node.Name, addr, leaves(e.Node.Meta))
			}
		}
	}
}

func addrOf(ip net.IP) netip.Addr {
	a, _ := netip.AddrFromSlice(ip)
	return a.Unmap()
}

func (n *Node) join(ctx context.Context, wg *sync.WaitGroup, name string, addr netip.AddrPort, minor byte) {
	n.known.here(addr, name)
	n.mu.Lock()
	old := n.lanes[name]
	if old != nil && old.addr == addr {
		n.mu.Unlock()
		return
	}
	laneCtx, cancel := context.WithCancel(ctx)
	l := &lane{name: name, addr: addr, cancel: cancel}
	n.lanes[name] = l
	n.memberHere(name, addr, minor)
	least := n.leastMinor()
	n.mu.Unlock()
	if old != nil {
		old.cancel()
		n.known.left(old.addr, name) // it moved: nobody is there to be looked for
	} else {
		n.deps.Log.Info("a replica is here", "peer", name, "addr", addr)
		if minor != n.meta.minor {
			n.deps.Log.Warn("replicas speak different minor versions of the mesh's protocol; what only the later one has is not used", "peer", name, "its", minor, "ours", n.meta.minor, "used", least)
		}
	}
	n.Do(func(now clock.Instant, c *core.Core) { c.Alive(now, name) })
	n.membersChanged()
	wg.Go(func() { n.connect(laneCtx, l) })
}

// leave forgets a member. One that left by itself is not looked for.
func (n *Node) leave(name string, addr netip.AddrPort, itself bool) {
	n.mu.Lock()
	l := n.lanes[name]
	delete(n.lanes, name)
	n.memberGone(name, itself)
	// One that was started again at the same address is a member before the death
	// of the former one is noticed: the connections there are its own.
	taken := false
	for _, other := range n.lanes { // order-free: any
		taken = taken || other.addr == addr
	}
	n.mu.Unlock()
	if l != nil {
		l.cancel()
	}
	if itself {
		n.known.left(addr, name)
		n.deps.Log.Info("a replica has left", "peer", name)
	} else {
		n.known.gone(addr, name, n.deps.Clock.Now())
		n.deps.Log.Warn("a replica does not answer any more", "peer", name, "addr", addr)
		if !taken {
			n.deps.Endpoint.Drop(addr.String())
		}
	}
	n.Do(func(now clock.Instant, c *core.Core) { c.Dead(now, name) })
	n.membersChanged()
}

// How replicas that are not members are looked for. Membership itself never
// looks again for one that it took for dead.
const (
	dialTimeout   = time.Second
	resolveEvery  = 5 * time.Second
	maxDials      = 8
	lookEvery     = 50 * time.Millisecond
	searchPause   = 2 * time.Second // at most, until patientAfter
	patientAfter  = 10 * time.Minute
	patientPause  = time.Minute
	lookupTimeout = 3 * time.Second
)

// rejoin looks for replicas at the addresses that are configured and at those
// where replicas were, until ctx ends.
func (n *Node) rejoin(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	dials := make(chan struct{}, maxDials)
	resolved := clock.Instant(-1 << 62)
	for ctx.Err() == nil {
		now := n.deps.Clock.Now()
		if now.Sub(resolved) >= resolveEvery {
			resolved = now
			wg.Go(func() { n.resolve(ctx) })
		}
		for _, addr := range n.known.due(now, n.deps.Endpoint.Self().Addr, cap(dials)-len(dials)) {
			dials <- struct{}{}
			wg.Go(func() {
				defer func() { <-dials }()
				_, err := n.list.Join([]string{addr.String()})
				n.known.tried(addr, err == nil, n.deps.Clock.Now())
			})
		}
		if n.deps.Clock.Sleep(ctx, lookEvery) != nil {
			return
		}
	}
}

// resolve looks up the configured peers' addresses.
func (n *Node) resolve(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	for _, peer := range n.cfg.Peers {
		host, portText, _ := net.SplitHostPort(peer)
		port, _ := strconv.ParseUint(portText, 10, 16)
		addrs := []netip.Addr{}
		if ip, err := netip.ParseAddr(host); err == nil {
			addrs = append(addrs, ip)
		} else if addrs, err = n.deps.Lookup(ctx, host); err != nil {
			n.deps.Log.Debug("a peer's name does not resolve", "peer", peer, "err", err)
		}
		for _, a := range addrs {
			n.known.seed(netip.AddrPortFrom(a.Unmap(), uint16(port)), n.deps.Clock.Now())
		}
	}
	n.known.mu.Lock()
	n.known.resolved = true
	n.known.mu.Unlock()
}

// addressBook is where replicas are, were or may be.
type addressBook struct {
	most int
	mu   sync.Mutex
	at   map[netip.AddrPort]*address
	// resolved says that the configured peers' addresses were looked up once.
	resolved bool
}

type address struct {
	name    string // the replica that was seen there last
	member  bool   // it is a member now
	trying  bool
	tried   bool          // ever
	since   clock.Instant // when it was missed first
	next    clock.Instant // when to try again
	pause   time.Duration
	touched clock.Instant
}

func newAddressBook(most int) *addressBook {
	return &addressBook{most: most, at: make(map[netip.AddrPort]*address)}
}

// size returns the number of addresses.
func (b *addressBook) size() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.at)
}

// entry returns an address's entry, made if there is room.
func (b *addressBook) entry(addr netip.AddrPort, now clock.Instant) *address {
	a := b.at[addr]
	if a == nil {
		if len(b.at) >= b.most {
			b.evict()
		}
		a = &address{since: now, pause: firstPause}
		b.at[addr] = a
	}
	a.touched = max(a.touched, now)
	return a
}

// evict forgets the address that is no member's and was spoken of longest ago.
func (b *addressBook) evict() {
	var oldest netip.AddrPort
	for addr, a := range b.at { // order-free: the minimum of an order
		if o := b.at[oldest]; !a.member && (o == nil || a.touched < o.touched || a.touched == o.touched && addr.Compare(oldest) < 0) {
			oldest = addr
		}
	}
	delete(b.at, oldest)
}

func (b *addressBook) seed(addr netip.AddrPort, now clock.Instant) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.entry(addr, now)
}

// looked reports whether a replica was looked for at every address there is.
func (b *addressBook) looked(self netip.AddrPort) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for addr, a := range b.at { // order-free: any
		if !a.tried && !a.member && addr != self {
			return false
		}
	}
	return b.resolved
}

func (b *addressBook) here(addr netip.AddrPort, name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	a := b.entry(addr, 0)
	a.name, a.member = name, true
}

func (b *addressBook) gone(addr netip.AddrPort, name string, now clock.Instant) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if a := b.at[addr]; a != nil && a.name == name {
		*a = address{name: name, since: now, pause: firstPause, next: now.Add(firstPause), touched: now}
	}
}

func (b *addressBook) left(addr netip.AddrPort, name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if a := b.at[addr]; a != nil && a.name == name {
		delete(b.at, addr)
	}
}

// due returns the addresses to try now, at most that many: those that wait
// longest. When many replicas were started anew elsewhere, where they used to be
// must not take the turns of where they are.
func (b *addressBook) due(now clock.Instant, self netip.AddrPort, most int) []netip.AddrPort {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []netip.AddrPort
	for addr, a := range b.at { // order-free: sorted below
		if !a.member && !a.trying && a.next <= now && addr != self {
			out = append(out, addr)
		}
	}
	slices.SortFunc(out, func(x, y netip.AddrPort) int {
		return cmp.Or(cmp.Compare(b.at[x].next, b.at[y].next), x.Compare(y))
	})
	out = out[:min(len(out), most)]
	for _, addr := range out {
		b.at[addr].trying = true
	}
	return out
}

func (b *addressBook) tried(addr netip.AddrPort, found bool, now clock.Instant) {
	b.mu.Lock()
	defer b.mu.Unlock()
	a := b.at[addr]
	if a == nil {
		return
	}
	a.trying, a.tried = false, true
	longest := searchPause
	if now.Sub(a.since) >= patientAfter {
		longest = patientPause
	}
	if found {
		// Whoever answered is a member under the address that it tells, which may
		// be another.
		a.pause = longest
	}
	a.next = now.Add(a.pause)
	a.pause = min(longest, a.pause*3/2)
}
