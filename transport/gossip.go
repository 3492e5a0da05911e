package transport

import (
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

// GossipPacketBytes is what memberlist's UDPBufferSize must be set to: it
// leaves room for memberlist's own additions within a datagram.
const GossipPacketBytes = 1150

// Bounds of the gossip plane.
const (
	sendQueuePackets    = 64
	receiveQueuePackets = 256
	streamQueue         = 32
)

// Gossip is memberlist's transport on the gossip plane. Packets go as
// datagrams through a bounded queue and a goroutine per peer, since memberlist
// answers probes from the goroutine that reads packets: one peer that can't be
// reached must not hold it up.
type Gossip struct {
	endpoint *Endpoint
	packets  chan *memberlist.Packet
	streams  chan net.Conn

	mu      sync.Mutex
	closed  bool
	senders map[netip.AddrPort]*sender
}

var _ memberlist.NodeAwareTransport = (*Gossip)(nil)

// sender sends the packets for one peer. It ends when it had nothing to do for
// UnusedTimeout.
type sender struct {
	to    netip.AddrPort
	queue chan []byte
}

func newGossip(e *Endpoint) *Gossip {
	return &Gossip{
		endpoint: e,
		packets:  make(chan *memberlist.Packet, receiveQueuePackets),
		streams:  make(chan net.Conn, streamQueue),
		senders:  make(map[netip.AddrPort]*sender),
	}
}

// FinalAdvertiseAddr returns the address that the endpoint tells its peers, or
// ip and port if memberlist was told to advertise others.
func (g *Gossip) FinalAdvertiseAddr(ip string, port int) (net.IP, int, error) {
	if ip == "" {
		self := g.endpoint.advertise
		return net.IP(self.Addr().AsSlice()), int(self.Port()), nil
	}
	parsed := net.ParseIP(ip)
	if parsed == nil {
		return nil, 0, &net.AddrError{Err: "advertise an IP address", Addr: ip}
	}
	return parsed, port, nil
}

// WriteTo is WriteToAddress for an address without a name.
func (g *Gossip) WriteTo(b []byte, addr string) (time.Time, error) {
	return g.WriteToAddress(b, memberlist.Address{Addr: addr})
}

// WriteToAddress queues a packet and returns at once. The error is nil or a
// *net.OpError, as memberlist needs it: after any other one it would not
// suspect a peer that can't be reached. A packet that finds the queue full is
// dropped without an error, as a network would.
func (g *Gossip) WriteToAddress(b []byte, addr memberlist.Address) (time.Time, error) {
	fail := func(err error) (time.Time, error) {
		return time.Now(), &net.OpError{Op: "write", Net: "udp", Err: err}
	}
	to, err := parsePeer(addr.Addr)
	if err != nil {
		return fail(err)
	}
	if len(b) > maxDatagramBytes {
		g.drop("oversized")
		return fail(errors.New("the packet is larger than a datagram; set UDPBufferSize to GossipPacketBytes"))
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return fail(net.ErrClosed)
	}
	s := g.senders[to]
	if s == nil {
		if len(g.senders) >= maxPeers {
			g.drop("send_queue")
			return time.Now(), nil
		}
		s = &sender{to: to, queue: make(chan []byte, sendQueuePackets)}
		if !g.endpoint.goes(func() { g.send(s) }) {
			return fail(net.ErrClosed)
		}
		g.senders[to] = s
	}
	select {
	case s.queue <- append([]byte(nil), b...):
	default:
		g.drop("send_queue")
	}
	return time.Now(), nil
}

func (g *Gossip) drop(where string) { g.endpoint.metrics.dropped.WithLabelValues(where).Inc() }

// send sends what is queued for one peer, over whatever connection there is.
func (g *Gossip) send(s *sender) {
	unused := time.NewTimer(UnusedTimeout)
	defer unused.Stop()
	sent := g.endpoint.metrics.datagrams.WithLabelValues("sent")
	for {
		var b []byte
		select {
		case <-g.endpoint.ctx.Done():
			return
		case b = <-s.queue:
			unused.Reset(UnusedTimeout)
		case <-unused.C:
			g.mu.Lock()
			if len(s.queue) == 0 { // nobody queues without the lock
				delete(g.senders, s.to)
				g.mu.Unlock()
				return
			}
			g.mu.Unlock()
			unused.Reset(UnusedTimeout)
			continue
		}
		session, err := g.endpoint.connect(g.endpoint.ctx, GossipPlane, s.to)
		if err == nil {
			err = session.SendDatagram(b)
		}
		if err == nil {
			sent.Inc()
			session.touch()
			continue
		}
		g.drop("unreachable")
		for len(s.queue) > 0 { // what waited meanwhile is old news
			<-s.queue
			g.drop("unreachable")
		}
	}
}

// receive hands on the packets of one session.
func (g *Gossip) receive(s *session) {
	from := net.UDPAddrFromAddrPort(s.peer.Addr)
	received := g.endpoint.metrics.datagrams.WithLabelValues("received")
	for {
		b, err := s.ReceiveDatagram(s.Context())
		if err != nil {
			return
		}
		received.Inc()
		s.touch()
		select {
		case g.packets <- &memberlist.Packet{Buf: b, From: from, Timestamp: time.Now()}:
		default:
			g.drop("receive_queue")
		}
	}
}

// PacketCh returns the packets received.
func (g *Gossip) PacketCh() <-chan *memberlist.Packet { return g.packets }

// take queues a peer's stream for memberlist.
func (g *Gossip) take(c net.Conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	select {
	case g.streams <- c:
		return true
	default:
		return false
	}
}

// StreamCh returns the streams that peers opened.
func (g *Gossip) StreamCh() <-chan net.Conn { return g.streams }

// DialTimeout is DialAddressTimeout for an address without a name.
func (g *Gossip) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	return g.DialAddressTimeout(memberlist.Address{Addr: addr}, timeout)
}

// DialAddressTimeout opens a stream to a peer. The error is a *net.OpError.
func (g *Gossip) DialAddressTimeout(addr memberlist.Address, timeout time.Duration) (net.Conn, error) {
	c, err := g.endpoint.dialStream(GossipPlane, addr.Addr, timeout)
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: err}
	}
	return c, nil
}

// Shutdown closes the gossip plane. The rest of the endpoint goes on.
func (g *Gossip) Shutdown() error {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.endpoint.closeSessions("closing", func(s *session) bool { return s.plane() == GossipPlane })
	return nil
}
