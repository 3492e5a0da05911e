package mesh

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/crdt"
	"github.com/rhizome-router/rhizome/mesh/core"
	"github.com/rhizome-router/rhizome/transport"
)

// Deps are what a Node works on.
type Deps struct {
	// Endpoint is this replica's port; nil for a replica that is alone. The node
	// closes it.
	Endpoint *transport.Endpoint
	// Carry, in place of an Endpoint, takes the frames of a replica called Name,
	// for a driver that does without Run: it hands them to the peers' Receive, and
	// tells the core of peers and of time. It is called within Do.
	Carry func(core.Message)
	Name  string
	// Joining says of a driver's replica that others may be there already, as one
	// with an Endpoint always takes it: see core.Config.
	Joining bool
	Clock   clock.Clock
	Log     *slog.Logger
	// Lookup resolves a host's addresses. Default: the machine's resolver.
	Lookup func(ctx context.Context, host string) ([]netip.Addr, error)
	// StreamLog bounds the streams; Seed is that of random choices.
	StreamLog crdt.LogConfig
	Seed      uint64
}

// Node is this replica in the mesh.
type Node struct {
	cfg  Config
	deps Deps

	mu    sync.Mutex // guards core and lanes
	core  *core.Core
	lanes map[string]*lane // by peer, while it is a member
	ears  ears
	// members are all that were members in the last minute; membersHeard is told
	// that they changed.
	members      map[string]*Peer
	membersHeard []func()

	queued  atomic.Int64 // bytes in all lanes
	dropped atomic.Uint64
	events  chan memberlist.NodeEvent
	list    *memberlist.Memberlist
	known   *addressBook
	meta    meta

	began  clock.Instant
	warmed atomic.Bool // warm was true once
	ready  atomic.Bool // Ready was nil once
}

// alone reports whether a node is in no mesh; a nil one is, too.
func (n *Node) alone() bool { return n == nil || n.deps.Endpoint == nil }

// Host returns the address that peers reach this replica's host at; the zero
// address for a node that is in no mesh.
func (n *Node) Host() netip.Addr {
	if n.alone() {
		return netip.Addr{}
	}
	return n.deps.Endpoint.Self().Addr.Addr()
}

// New returns a node that is not in the mesh yet; those who want to be told what
// it learns say so next, by HearStreams and the like. Without an endpoint it is
// alone for good.
func New(cfg Config, deps Deps) (*Node, error) {
	cfg = cfg.WithDefaults()
	if deps.Endpoint != nil {
		if err := cfg.Validate(); err != nil {
			return nil, fmt.Errorf("mesh: %w", err)
		}
	}
	if deps.Lookup == nil {
		deps.Lookup = func(ctx context.Context, host string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		}
	}
	name := "alone"
	switch {
	case deps.Endpoint != nil:
		name = deps.Endpoint.Self().Boot
	case deps.Carry != nil:
		name = deps.Name
	default:
		cfg.MaxRingBytes = 1 // nobody catches up from it
	}
	n := &Node{
		cfg: cfg, deps: deps, lanes: make(map[string]*lane), members: make(map[string]*Peer),
		events: make(chan memberlist.NodeEvent, 1024), known: newAddressBook(cfg.MaxAddresses), began: deps.Clock.Now(),
	}
	coreCfg := cfg.Core(name, deps.StreamLog, deps.Seed)
	coreCfg.Joining = deps.Endpoint != nil || deps.Joining
	n.core, n.meta.minor = core.New(coreCfg, &n.ears), minor()
	return n, nil
}

// Do runs f with the core, to which nobody else has access meanwhile, and sends
// what came of it. f must not block.
func (n *Node) Do(f func(now clock.Instant, c *core.Core)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := n.deps.Clock.Now()
	f(now, n.core)
	for _, m := range n.core.Out() {
		if n.deps.Carry != nil {
			n.deps.Carry(m)
			continue
		}
		if m.To != "" {
			n.enqueue(now, n.lanes[m.To], m)
			continue
		}
		for _, l := range n.lanes { // order-free: each lane by itself
			n.enqueue(now, l, m)
		}
	}
}

// Ready says why this replica should get no traffic yet: until it has caught up
// with one of its peers, has looked for one everywhere and found none, or has had
// the time to warm up. After that it is ready for good: losing the mesh is no
// reason to take a replica out.
func (n *Node) Ready() error {
	if n.alone() || n.ready.Load() {
		return nil
	}
	if !n.warm() && n.deps.Clock.Now().Sub(n.began) < n.cfg.WarmUp {
		return errors.New("still catching up with the other replicas")
	}
	n.ready.Store(true)
	return nil
}

// warm reports whether the node has ever caught up with a peer, or looked for one
// everywhere and found none.
func (n *Node) warm() (warm bool) {
	if n.warmed.Load() {
		return true
	}
	looked := n.known.looked(n.deps.Endpoint.Self().Addr)
	n.Do(func(now clock.Instant, c *core.Core) {
		warm = c.Warm() || looked && !slices.ContainsFunc(c.Peers(now), func(p core.PeerState) bool { return p.Alive })
	})
	if warm {
		n.warmed.Store(true)
	}
	return warm
}

// Looked reports whether a replica was looked for at every address there is.
func (n *Node) Looked() bool { return n.known.looked(n.deps.Endpoint.Self().Addr) }

// Run takes part in the mesh until ctx ends, and then says goodbye. It returns
// when nothing of it runs any more.
func (n *Node) Run(ctx context.Context) error {
	if n.alone() {
		<-ctx.Done()
		return nil
	}
	list, err := memberlist.Create(n.membership())
	if err != nil {
		return fmt.Errorf("mesh: join membership on %v: %w", n.deps.Endpoint.Self(), errors.Join(err, n.deps.Endpoint.Close()))
	}
	n.list = list
	var wg sync.WaitGroup
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	wg.Go(func() { n.follow(running, &wg) })
	wg.Go(func() { n.accept(running, &wg) })
	wg.Go(func() { n.tick(running) })
	wg.Go(func() { n.rejoin(ctx) })
	n.deps.Log.Info("in the mesh", "replica", n.deps.Endpoint.Self(), "cluster", n.cfg.Transport.Cluster)
	<-ctx.Done()
	// Peers learn it from us instead of missing us, while frames still go out.
	n.meta.leaving.Store(true)
	if err := errors.Join(list.UpdateNode(n.cfg.Leave/2), list.Leave(n.cfg.Leave/2)); err != nil {
		n.deps.Log.Warn("peers may not have heard the goodbye", "err", err)
	}
	stop()
	err = errors.Join(list.Shutdown(), n.deps.Endpoint.Close())
	wg.Wait()
	return err
}

// tickEvery is how often the core looks at the time.
const tickEvery = 5 * time.Millisecond

func (n *Node) tick(ctx context.Context) {
	for n.deps.Clock.Sleep(ctx, tickEvery) == nil {
		n.Do(func(now clock.Instant, c *core.Core) { c.Tick(now) })
	}
}

// accept takes the streams that peers open.
func (n *Node) accept(ctx context.Context, wg *sync.WaitGroup) {
	for {
		in, err := n.deps.Endpoint.Delta().Accept(ctx)
		if err != nil {
			return // the endpoint is closed
		}
		wg.Go(func() { n.receive(in) })
	}
}

// receive takes the frames of one stream until it ends.
func (n *Node) receive(in *transport.Inbound) {
	defer in.Close()
	if _, err := in.Class(); err != nil {
		return
	}
	for {
		frame, err := in.Receive()
		if err != nil {
			return
		}
		n.Do(func(now clock.Instant, c *core.Core) { err = c.Receive(now, in.Peer().Boot, frame) })
		if err != nil {
			n.deps.Log.Warn("a peer does not speak this version of the mesh's protocol; its stream is closed", "peer", in.Peer(), "its_minor", n.minorOf(in.Peer().Boot), "our_minor", n.meta.minor, "err", err)
			return
		}
	}
}
