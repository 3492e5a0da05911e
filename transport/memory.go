package transport

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/rhizome-router/rhizome/clock"
)

// Network is a network in memory: its endpoints are the real ones on links
// that lose, delay, duplicate and reorder what they are told to. It keeps time
// with package time, so that inside a testing/synctest bubble it is virtual.
// Each direction between two addresses draws from a seeded sequence of its own.
//
// A stream loses nothing: what is lost is sent again a retransmission later, as
// long as the connection stands. There is no TLS and no limit of bandwidth.
type Network struct {
	seed uint64
	stop chan struct{}
	wake chan struct{}
	work sync.WaitGroup

	mu     sync.Mutex
	events eventHeap
	count  uint64 // of events ever, which orders those of one instant
	nodes  map[netip.AddrPort]*memoryCarrier
	all    Faults
	paths  map[path]*pathState
}

// Faults is what happens to packets one way between two endpoints.
type Faults struct {
	// Delay is how long a packet takes; up to Jitter is added. Packets with
	// different jitter overtake each other.
	Delay, Jitter time.Duration
	// Loss, Duplicate and Reorder are probabilities, 0 to 1. A reordered packet
	// is held back by another Delay + Jitter.
	Loss, Duplicate, Reorder float64
	// Cut lets nothing through.
	Cut bool
}

// retransmit is how long a stream's lost segment takes to be sent again.
const retransmit = 200 * time.Millisecond

type path struct{ from, to netip.AddrPort }

type pathState struct {
	rand   *rand.Rand
	faults *Faults // nil: those of all paths
	cut    bool    // by Partition
}

// NewNetwork makes a network without faults; Close ends it.
func NewNetwork(seed uint64) *Network {
	n := &Network{
		seed: seed, stop: make(chan struct{}), wake: make(chan struct{}, 1),
		nodes: make(map[netip.AddrPort]*memoryCarrier), paths: make(map[path]*pathState),
	}
	n.work.Go(n.run)
	return n
}

// Close ends the network. Its endpoints should be closed first.
func (n *Network) Close() {
	close(n.stop)
	n.work.Wait()
}

// Listen makes an endpoint at an address, ip:port. Of cfg only the cluster
// counts: endpoints of different clusters refuse each other.
func (n *Network) Listen(addr string, cfg Config, opts Options) (*Endpoint, error) {
	at, err := parsePeer(addr)
	if err != nil {
		return nil, fmt.Errorf("open a port in memory: %w", err)
	}
	e, err := newEndpoint(opts.withDefaults())
	if err != nil {
		return nil, err
	}
	c := &memoryCarrier{network: n, at: at, cluster: cfg.WithDefaults().Cluster, inbound: make(chan *memoryLink, 64),
		done: make(chan struct{}), refusals: e.refusals}
	n.mu.Lock()
	taken := n.nodes[at] != nil
	if !taken {
		n.nodes[at] = c
	}
	n.mu.Unlock()
	if taken {
		return nil, errors.Join(fmt.Errorf("open a port in memory: %s is taken", at), e.metrics.unregister())
	}
	e.carrier, e.advertise = c, at
	e.start()
	return e, nil
}

// Faulty sets what happens to packets between all endpoints.
func (n *Network) Faulty(f Faults) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all = f
}

// FaultyFrom sets what happens to packets from one address to another, in
// place of what Faulty says.
func (n *Network) FaultyFrom(from, to netip.AddrPort, f Faults) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.path(from, to).faults = &f
}

// Partition cuts both ways between addresses of different groups. Addresses in
// no group are not cut from any.
func (n *Network) Partition(groups ...[]netip.AddrPort) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i, g := range groups {
		for j, h := range groups {
			if i == j {
				continue
			}
			for _, from := range g {
				for _, to := range h {
					n.path(from, to).cut = true
				}
			}
		}
	}
}

// Heal ends every partition and every fault of FaultyFrom.
func (n *Network) Heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range n.paths { // order-free: each is set alike
		p.cut, p.faults = false, nil
	}
}

// path returns a direction's state. The caller holds the lock.
func (n *Network) path(from, to netip.AddrPort) *pathState {
	k := path{from, to}
	p := n.paths[k]
	if p == nil {
		p = &pathState{rand: clock.Rand(n.seed, from.String()+">"+to.String())}
		n.paths[k] = p
	}
	return p
}

// fate says when a packet sent now arrives, and when its copy does; ok and
// twice say whether they do at all.
func (n *Network) fate(from, to netip.AddrPort) (first, second time.Duration, ok, twice bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	p := n.path(from, to)
	f := n.all
	if p.faults != nil {
		f = *p.faults
	}
	lost, again, late := p.rand.Float64() < f.Loss, p.rand.Float64() < f.Duplicate, p.rand.Float64() < f.Reorder
	span := float64(f.Jitter)
	first, second = f.Delay+time.Duration(p.rand.Float64()*span), f.Delay+time.Duration(p.rand.Float64()*span)
	if late {
		first += f.Delay + f.Jitter
	}
	ok = !lost && !f.Cut && !p.cut
	return first, second, ok, ok && again
}

// packet delivers once, twice or not at all.
func (n *Network) packet(from, to netip.AddrPort, deliver func()) {
	first, second, ok, twice := n.fate(from, to)
	if ok {
		n.after(first, deliver)
	}
	if twice {
		n.after(second, deliver)
	}
}

// surely delivers once, however often it has to be sent, while wanted says so.
func (n *Network) surely(from, to netip.AddrPort, wanted func() bool, deliver func()) {
	first, _, ok, _ := n.fate(from, to)
	if ok {
		n.after(first, deliver)
		return
	}
	n.after(retransmit, func() {
		if wanted() {
			n.surely(from, to, wanted, deliver)
		}
	})
}

// node returns who has an address now, nil if nobody.
func (n *Network) node(a netip.AddrPort) *memoryCarrier {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.nodes[a]
}

// event is something that happens at a time; it must not block.
type event struct {
	at    time.Time
	count uint64
	do    func()
}

func (n *Network) after(d time.Duration, do func()) {
	n.mu.Lock()
	n.count++
	heap.Push(&n.events, event{time.Now().Add(d), n.count, do})
	n.mu.Unlock()
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// run makes events happen, in order, on one goroutine.
func (n *Network) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		n.mu.Lock()
		var next time.Time
		var do func()
		if len(n.events) > 0 {
			if next = n.events[0].at; !time.Now().Before(next) {
				do = heap.Pop(&n.events).(event).do
			}
		}
		n.mu.Unlock()
		if do != nil {
			do()
			continue
		}
		if next.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(time.Until(next))
		}
		select {
		case <-n.stop:
			return
		case <-n.wake:
		case <-timer.C:
		}
	}
}

type eventHeap []event

func (h eventHeap) Len() int { return len(h) }
func (h eventHeap) Less(i, j int) bool {
	return h[i].at.Before(h[j].at) || h[i].at.Equal(h[j].at) && h[i].count < h[j].count
}
func (h eventHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *eventHeap) Push(x any)   { *h = append(*h, x.(event)) }
func (h *eventHeap) Pop() any {
	last := len(*h) - 1
	x := (*h)[last]
	(*h)[last] = event{}
	*h = (*h)[:last]
	return x
}

// memoryCarrier is one endpoint's place in a Network.
type memoryCarrier struct {
	network  *Network
	at       netip.AddrPort
	cluster  string
	inbound  chan *memoryLink
	refusals *refusals
	once     sync.Once
	done     chan struct{}
}

func (c *memoryCarrier) local() netip.AddrPort { return c.at }

func (c *memoryCarrier) dial(ctx context.Context, p Plane, to netip.AddrPort) (link, error) {
	mine, theirs := newMemoryLinks(c, p, to)
	n := c.network
	wanted := func() bool { return ctx.Err() == nil }
	var refused error
	answered := make(chan struct{})
	n.surely(c.at, to, wanted, func() {
		peer := n.node(to)
		if peer == nil {
			return // nobody there; the dial runs out of time
		}
		theirs.carrier = peer
		why := peer.offer(theirs, c)
		n.surely(to, c.at, wanted, func() {
			refused = why
			close(answered)
		})
	})
	select {
	case <-answered:
	case <-ctx.Done():
		mine.fail(context.Cause(ctx))
		theirs.fail(context.Cause(ctx))
		return nil, context.Cause(ctx)
	}
	if refused != nil {
		mine.fail(refused)
		return nil, refused
	}
	return mine, nil
}

// offer takes a connection that another carrier dials, or says why not.
func (c *memoryCarrier) offer(l *memoryLink, from *memoryCarrier) error {
	if from.cluster != c.cluster {
		r := &refusal{refusedCluster, fmt.Sprintf("it belongs to cluster %q and this is %q", from.cluster, c.cluster)}
		c.refusals.add(from.at.String(), r)
		l.fail(r)
		return fmt.Errorf("the peer does not take this replica: it is of cluster %q", c.cluster)
	}
	select {
	case c.inbound <- l:
		return nil
	default:
		err := errors.New("the peer has too many connections waiting")
		l.fail(err)
		return err
	}
}

func (c *memoryCarrier) accept(ctx context.Context) (link, error) {
	select {
	case l := <-c.inbound:
		return l, nil
	case <-ctx.Done():
	case <-c.done:
	}
	return nil, net.ErrClosed
}

func (c *memoryCarrier) close() error {
	c.vanish()
	return nil
}

func (c *memoryCarrier) vanish() {
	c.once.Do(func() {
		c.network.mu.Lock()
		delete(c.network.nodes, c.at)
		c.network.mu.Unlock()
		close(c.done)
	})
}

// gone says whether the carrier has left the network.
func (c *memoryCarrier) gone() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}
