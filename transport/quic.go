package transport

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/quic-go/quic-go"
)

// Windows and limits of each connection. What a peer may make us hold is
// bounded by connectionWindowBytes; the streams' windows together fit in it, so
// that a stream that isn't read never holds up a heartbeat.
const (
	streamWindowBytes     = 2 << 20
	maxUniStreams         = 17 // the control stream and twice the classes of deltas: old and new ones
	maxBidiStreams        = 64
	connectionWindowBytes = (maxUniStreams + 1) * streamWindowBytes
	// maxDatagramBytes fits the smallest packet that QUIC may fall back to.
	maxDatagramBytes = 1162
)

// quicConfig holds for all planes, since a listener can't tell them apart
// before the handshake.
func quicConfig() *quic.Config {
	return &quic.Config{
		HandshakeIdleTimeout: dialTimeout,
		// Heartbeats say sooner that a peer is silent; this is for a peer that
		// hangs in the handshake's last step. 5 s is the least QUIC takes.
		MaxIdleTimeout:                 2 * SilenceTimeout,
		InitialStreamReceiveWindow:     streamWindowBytes,
		MaxStreamReceiveWindow:         streamWindowBytes,
		InitialConnectionReceiveWindow: connectionWindowBytes,
		MaxConnectionReceiveWindow:     connectionWindowBytes,
		MaxIncomingStreams:             maxBidiStreams,
		MaxIncomingUniStreams:          maxUniStreams,
		EnableDatagrams:                true,
	}
}

// quicCarrier is one UDP socket, one quic.Transport and one listener.
type quicCarrier struct {
	socket    net.PacketConn
	transport *quic.Transport
	listener  *quic.Listener
	gate      *gate

	inbound atomic.Int64 // connections that peers began and that aren't over
	shaking atomic.Int64 // of them, those whose handshake isn't over
}

// Bounds of what strangers may begin. While more than retryAbove handshakes are
// under way, an address must first show that it is its sender's own, which
// costs it a round trip and us nothing.
const (
	maxInbound = int64(planes) * maxPeers
	retryAbove = 64
)

// handshakeKey finds, in a connection's context, the function that ends the
// count of its handshake.
type handshakeKey struct{}

// begin counts a connection that a peer begins, or refuses it.
func (c *quicCarrier) begin(ctx context.Context, _ *quic.ClientInfo) (context.Context, error) {
	if c.inbound.Add(1) > maxInbound {
		c.inbound.Add(-1)
		return nil, errors.New("too many connections")
	}
	c.shaking.Add(1)
	shaken := sync.OnceFunc(func() { c.shaking.Add(-1) })
	context.AfterFunc(ctx, func() {
		shaken()
		c.inbound.Add(-1)
	})
	return context.WithValue(ctx, handshakeKey{}, shaken), nil
}

// listenQUIC opens the port and returns the address that peers reach it at.
func listenQUIC(cfg Config, opts Options, r *refusals) (carrier, netip.AddrPort, error) {
	id, err := newIdentity(cfg, opts.Boot, r.oldCertificates)
	if err != nil {
		return nil, netip.AddrPort{}, fmt.Errorf("open the mesh's port: %w", err)
	}
	socket := opts.Socket
	if socket == nil {
		if socket, err = net.ListenPacket("udp", cfg.Listen); err != nil {
			return nil, netip.AddrPort{}, fmt.Errorf("open the mesh's port: %w", err)
		}
	}
	c := &quicCarrier{socket: socket, gate: &gate{identity: id, cluster: cfg.Cluster, wall: opts.Wall, refused: r.add}}
	self, err := advertised(cfg, c.local())
	if err != nil {
		return nil, self, errors.Join(err, socket.Close())
	}
	key, err := id.resetKey(self.String())
	if err != nil {
		return nil, self, errors.Join(err, socket.Close())
	}
	// The socket goes in as it is: wrapped, it would lose segmentation offload.
	c.transport = &quic.Transport{Conn: socket, StatelessResetKey: &key, ConnContext: c.begin,
		VerifySourceAddress: func(net.Addr) bool { return c.shaking.Load() > retryAbove }}
	if c.listener, err = c.transport.Listen(c.gate.server(), quicConfig()); err != nil {
		return nil, self, errors.Join(fmt.Errorf("listen on the mesh's port: %w", err), c.transport.Close(), socket.Close())
	}
	if receive, send, ok := bufferBytes(socket); ok { // as the library has set them
		logBuffers(opts.Log, receive, send)
	}
	return c, self, nil
}

func (c *quicCarrier) local() netip.AddrPort {
	if a, ok := c.socket.LocalAddr().(*net.UDPAddr); ok {
		return canonical(a.AddrPort())
	}
	return netip.AddrPort{}
}

func (c *quicCarrier) dial(ctx context.Context, p Plane, to netip.AddrPort) (link, error) {
	settings := quicConfig()
	settings.HandshakeIdleTimeout = 2 * dialTimeout // ctx ends first, and says more
	conn, err := first(ctx, handshakeAgain, maxHandshakes, func(ctx context.Context) (*quic.Conn, error) {
		return c.transport.Dial(ctx, net.UDPAddrFromAddrPort(to), c.gate.client(p), settings)
	}, func(late *quic.Conn) { _ = late.CloseWithError(0, "another was first") })
	if err != nil {
		return nil, explainQUIC(err)
	}
	return &quicLink{Conn: conn, of: p, names: c.gate.bootOf(conn.ConnectionState().TLS)}, nil
}

func (c *quicCarrier) accept(ctx context.Context) (link, error) {
	for {
		conn, err := c.listener.Accept(ctx)
		if err != nil {
			return nil, net.ErrClosed
		}
		if shaken, ok := conn.Context().Value(handshakeKey{}).(func()); ok {
			shaken()
		}
		state := conn.ConnectionState().TLS
		if p, ok := planeOf(state.NegotiatedProtocol); ok {
			return &quicLink{Conn: conn, of: p, names: c.gate.bootOf(state)}, nil
		}
		_ = conn.CloseWithError(0, "no such plane")
	}
}

func (c *quicCarrier) close() error {
	return errors.Join(c.listener.Close(), c.transport.Close(), c.socket.Close())
}

func (c *quicCarrier) vanish() {
	_ = c.socket.Close()
	_ = c.transport.Close()
}

// quicLink is a QUIC connection.
type quicLink struct {
	*quic.Conn
	of    Plane
	names string // the boot in the peer's certificate
}

func (l *quicLink) plane() Plane { return l.of }
func (l *quicLink) boot() string { return l.names }

func (l *quicLink) remote() netip.AddrPort {
	if a, ok := l.RemoteAddr().(*net.UDPAddr); ok {
		return canonical(a.AddrPort())
	}
	return netip.AddrPort{}
}

// An open stream must not become an interface around a nil pointer.
func (l *quicLink) openStream(ctx context.Context) (bidiStream, error) {
	s, err := l.OpenStreamSync(ctx)
	if err != nil {
		return nil, err
	}
	return s, nil
}

func (l *quicLink) acceptStream(ctx context.Context) (bidiStream, error) {
	s, err := l.AcceptStream(ctx)
	if err != nil {
		return nil, err
	}
	return s, nil
}

func (l *quicLink) openUni(ctx context.Context) (sendStream, error) {
	s, err := l.OpenUniStreamSync(ctx)
	if err != nil {
		return nil, err
	}
	return s, nil
}

func (l *quicLink) acceptUni(ctx context.Context) (receiveStream, error) {
	s, err := l.AcceptUniStream(ctx)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// maxWhyBytes bounds what a peer is told; it must fit a packet.
const maxWhyBytes = 200

func (l *quicLink) close(why string) {
	_ = l.CloseWithError(0, why[:min(len(why), maxWhyBytes)])
}

// TLS alerts in QUIC's crypto errors (RFC 9001 §4.8).
const (
	cryptoBase       = 0x100
	alertBadCert     = 42
	alertNoALPN      = 120
	alertCertMissing = 116
)

// explainQUIC says what an error of a dial means here.
func explainQUIC(err error) error {
	var te *quic.TransportError
	if !errors.As(err, &te) || !te.Remote {
		return err
	}
	switch te.ErrorCode {
	case cryptoBase + alertBadCert, cryptoBase + alertCertMissing:
		return fmt.Errorf("the peer does not take this replica's certificate (its log says why; is the mesh secret the same, and the clock right?): %w", err)
	case cryptoBase + alertNoALPN:
		return fmt.Errorf("the peer speaks another major version than %q: %w", alpns(), err)
	}
	return err
}

// explain says what ended a link before its hello.
func explain(l link, err error) error {
	if l.Context().Err() == nil {
		return err
	}
	why := context.Cause(l.Context())
	var local *quic.ApplicationError
	if errors.As(why, &local) && !local.Remote {
		return err
	}
	return explainQUIC(why)
}
