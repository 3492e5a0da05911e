package transport

import (
	"bytes"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/quic-go/quic-go/testutils/simnet"

	"github.com/rhizome-router/rhizome/clock"
)

// ground is where members run: a network in memory, QUIC on a simulated
// network, QUIC on loopback sockets.
type ground interface {
	place
	partition(a, b []netip.AddrPort)
	heal()
}

type place interface {
	// listen opens an endpoint at an address of its own.
	listen(t *testing.T, boot string) *Endpoint
	listenAt(t *testing.T, boot, addr string) *Endpoint
}

// inMemory is a Network with a delay of 1 ms.
type inMemory struct {
	*Network
	next int
}

func newInMemory(seed uint64) *inMemory {
	n := NewNetwork(seed)
	n.Faulty(Faults{Delay: 500 * time.Microsecond, Jitter: 500 * time.Microsecond})
	return &inMemory{Network: n}
}

func (g *inMemory) listen(t *testing.T, boot string) *Endpoint {
	g.next++
	return g.listenAt(t, boot, fmt.Sprintf("10.0.0.%d:7400", g.next))
}

func (g *inMemory) listenAt(t *testing.T, boot, addr string) *Endpoint {
	e, err := g.Listen(addr, Config{}, Options{Boot: boot})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func (g *inMemory) partition(a, b []netip.AddrPort) { g.Partition(a, b) }
func (g *inMemory) heal()                           { g.Heal() }

// bubble is QUIC and TLS as they are on a simulated network, in virtual time.
type bubble struct {
	simnet.PerfectRouter
	next byte

	mu   sync.Mutex
	cut  map[path]bool
	loss float64
	rand *rand.Rand
}

func newBubble() *bubble {
	return &bubble{cut: make(map[path]bool), rand: clock.Rand(1, "bubble")}
}

// SendPacket passes on what is neither cut nor lost.
func (g *bubble) SendPacket(p simnet.Packet) error {
	from, to := p.From.(*net.UDPAddr).AddrPort(), p.To.(*net.UDPAddr).AddrPort()
	g.mu.Lock()
	cut := g.cut[path{canonical(from), canonical(to)}] || g.rand.Float64() < g.loss
	g.mu.Unlock()
	if cut {
		return nil
	}
	_ = g.PerfectRouter.SendPacket(p) // to nobody: lost, as it would be
	return nil
}

func (g *bubble) listen(t *testing.T, boot string) *Endpoint {
	g.next++
	return g.listenAt(t, boot, fmt.Sprintf("10.0.0.%d:7400", g.next))
}

func (g *bubble) listenAt(t *testing.T, boot, addr string) *Endpoint {
	link := simnet.SimulatedLink{Latency: time.Millisecond, UploadPacket: g}
	at := net.UDPAddrFromAddrPort(netip.MustParseAddrPort(addr))
	socket := simnet.NewSimConn(at, &link)
	link.Start()
	g.AddNode(at, &link)
	e, err := Listen(Config{Secrets: []string{testSecret(1)}}, Options{Boot: boot, Socket: linked{socket, &link, new(sync.Once)}})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// linked is a socket that takes its link with it.
type linked struct {
	*simnet.SimConn
	link *simnet.SimulatedLink
	once *sync.Once
}

func (l linked) Close() error {
	l.once.Do(func() {
		_ = l.SimConn.Close()
		_ = l.link.Close()
	})
	return nil
}

func (g *bubble) partition(a, b []netip.AddrPort) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, x := range a {
		for _, y := range b {
			g.cut[path{x, y}], g.cut[path{y, x}] = true, true
		}
	}
}

func (g *bubble) heal() {
	g.mu.Lock()
	defer g.mu.Unlock()
	clear(g.cut)
}

// sockets are QUIC on loopback; they can't be cut.
type sockets struct{}

func (s sockets) listen(t *testing.T, boot string) *Endpoint {
	return s.listenAt(t, boot, "127.0.0.1:0")
}

func (sockets) listenAt(t *testing.T, boot, addr string) *Endpoint {
	e, err := Listen(Config{Listen: addr, Secrets: []string{testSecret(1)}}, Options{Boot: boot})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// node is an endpoint with memberlist on it.
type node struct {
	*Endpoint
	list *memberlist.Memberlist
}

// startNode starts memberlist with the profile that the mesh is meant to use.
func startNode(t *testing.T, e *Endpoint) *node {
	t.Helper()
	c := memberlist.DefaultLANConfig()
	c.Name, c.Label = e.Self().Boot, "default"
	c.Transport = e.Gossip()
	c.ProbeInterval, c.ProbeTimeout = 500*time.Millisecond, 200*time.Millisecond
	c.GossipInterval, c.GossipNodes = 50*time.Millisecond, 4
	c.PushPullInterval = 10 * time.Second
	c.SuspicionMult = 3
	c.UDPBufferSize = GossipPacketBytes
	c.EnableCompression = false
	c.Logger = log.New(io.Discard, "", 0)
	list, err := memberlist.Create(c)
	if err != nil {
		t.Fatal(err)
	}
	return &node{e, list}
}

func (n *node) stop(t *testing.T) {
	t.Helper()
	if err := n.list.Shutdown(); err != nil {
		t.Error(err)
	}
	closed(t, n.Endpoint)
}

// crash ends a node without a word.
func (n *node) crash(t *testing.T) {
	t.Helper()
	n.Crash()
	if err := n.list.Shutdown(); err != nil {
		t.Error(err)
	}
}

func (n *node) sees() []string {
	var names []string
	for _, m := range n.list.Members() {
		names = append(names, m.Name)
	}
	slices.Sort(names)
	return names
}

// agree waits until every node sees exactly these nodes, and returns how long
// that took. Meanwhile those that miss somebody join again, as the mesh will,
// if rejoin says so.
func agree(t *testing.T, what string, all []*node, limit time.Duration, rejoin bool) time.Duration {
	t.Helper()
	var want []string
	for _, n := range all {
		want = append(want, n.Self().Boot)
	}
	slices.Sort(want)
	began, last := time.Now(), time.Now()
	for {
		ok := true
		for _, n := range all {
			ok = ok && slices.Equal(n.sees(), want)
		}
		took := time.Since(began)
		if ok {
			t.Logf("%d nodes, %s: %v", len(all), what, took.Round(time.Millisecond))
			return took
		}
		if took > limit {
			for _, n := range all {
				t.Logf("%s sees %v", n.Self().Boot, n.sees())
			}
			t.Fatalf("%s: not within %v", what, limit)
		}
		if rejoin && time.Since(last) > time.Second {
			last = time.Now()
			for _, n := range all {
				for _, other := range all {
					if !slices.Contains(n.sees(), other.Self().Boot) {
						_, _ = n.list.Join([]string{addr(other.Endpoint)})
						break
					}
				}
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// form starts n members, which join by the first three.
func form(t *testing.T, g place, n int, limit time.Duration) []*node {
	t.Helper()
	var all []*node
	var seeds []string
	for i := range n {
		all = append(all, startNode(t, g.listen(t, fmt.Sprintf("n%02d", i))))
		if i < 3 {
			seeds = append(seeds, addr(all[i].Endpoint))
		}
	}
	var joins sync.WaitGroup
	for _, m := range all {
		joins.Go(func() {
			if _, err := m.list.Join(seeds); err != nil {
				t.Error(err)
			}
		})
	}
	joins.Wait()
	agree(t, "formed", all, limit, false)
	return all
}

// membership is the life of a mesh: it forms, notices a crash within what the
// profile promises, falls apart in a partition and is whole again after it.
func membership(t *testing.T, g ground, n int, apart time.Duration) {
	all := form(t, g, n, 5*time.Second)
	victim := all[n-1]
	rest := all[:n-1]
	victim.crash(t)
	agree(t, "crash noticed", rest, 6*time.Second, false)
	again := startNode(t, g.listen(t, "again"))
	if _, err := again.list.Join([]string{addr(rest[0].Endpoint)}); err != nil {
		t.Fatal(err)
	}
	all = append(rest[:len(rest):len(rest)], again)
	agree(t, "joined anew", all, 5*time.Second, false)

	half := n / 2
	left, right := all[:half], all[half:]
	addrs := func(nodes []*node) (out []netip.AddrPort) {
		for _, m := range nodes {
			out = append(out, m.Self().Addr)
		}
		return out
	}
	g.partition(addrs(left), addrs(right))
	agree(t, "the left half is by itself", left, 30*time.Second, false)
	agree(t, "the right half is by itself", right, 30*time.Second, false)
	time.Sleep(apart)
	g.heal()
	agree(t, "whole again", all, 5*time.Second, true)
	for _, m := range all {
		m.stop(t)
	}
	settle()
}

// settle lets memberlist's last probes run out, which its Shutdown doesn't wait
// for. In virtual time that takes none.
func settle() { time.Sleep(10 * time.Second) }

// sizes are how many members there are, and how long a partition lasts: once
// past the some 30 s that memberlist would heal by itself.
var sizes = map[int]time.Duration{3: 40 * time.Second, 16: time.Second}

func TestMembershipInMemory(t *testing.T) {
	for n, apart := range sizes {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newInMemory(uint64(n))
				defer g.Close()
				membership(t, g, n, apart)
			})
		})
	}
}

// A bad network makes things slower. It must not make connections look dead.
func TestMembershipOnABadNetwork(t *testing.T) {
	badly := func(t *testing.T, g place) {
		all := form(t, g, 6, 15*time.Second)
		all[5].crash(t)
		agree(t, "crash noticed", all[:5], 15*time.Second, false)
		time.Sleep(20 * time.Second)
		for _, m := range all[:5] {
			// The one that crashed fell silent, and nobody else.
			if n := value(t, m.metrics.closed.WithLabelValues("gossip", "silent")); n > 2 {
				t.Errorf("%s took %v connections for dead", m.Self().Boot, n)
			}
			m.stop(t)
		}
		settle()
	}
	t.Run("memory", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g := newInMemory(1)
			defer g.Close()
			g.Faulty(Faults{Delay: 5 * time.Millisecond, Jitter: 20 * time.Millisecond, Loss: .05, Duplicate: .05, Reorder: .1})
			badly(t, g)
		})
	})
	t.Run("bubble", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g := newBubble()
			g.loss = .05
			badly(t, g)
		})
	})
}

// Real QUIC and TLS in virtual time.
func TestMembershipInABubble(t *testing.T) {
	for n, apart := range sizes {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { membership(t, newBubble(), n, apart) })
		})
	}
}

// And on loopback sockets in real time. Three members are enough here: how soon
// more of them agree is a matter of who else wants this machine's processors.
func TestMembershipOnSockets(t *testing.T) {
	t.Parallel()
	all := form(t, sockets{}, 3, 2*patience)
	all[2].crash(t)
	agree(t, "crash noticed", all[:2], 2*patience, false)
	for _, m := range all[:2] {
		m.stop(t)
	}
	eventually(t, "memberlist's last probes have run out", func() bool {
		stacks := make([]byte, 4<<20)
		return !bytes.Contains(stacks[:runtime.Stack(stacks, true)], []byte("memberlist.(*Memberlist).probe"))
	})
}
