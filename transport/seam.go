package transport

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/quic-go/quic-go"
)

// carrier makes connections: QUIC on a socket, or a Network in memory.
type carrier interface {
	// dial connects to a peer's plane. That it succeeds doesn't mean that the
	// peer takes us; its hello does.
	dial(ctx context.Context, p Plane, to netip.AddrPort) (link, error)
	// accept returns the next connection of a peer; net.ErrClosed at the end.
	accept(ctx context.Context) (link, error)
	// local returns the address that the carrier is bound to.
	local() netip.AddrPort
	// close lets go of everything. Peers are not told: close links first.
	close() error
	// vanish is close without a word to anyone, as a crash would.
	vanish()
}

// link is one connection: datagrams, streams both ways, one-way streams.
type link interface {
	plane() Plane
	remote() netip.AddrPort
	// boot is who the peer's certificate says it is; "" if it doesn't.
	boot() string
	// Context ends with the connection; its cause is why.
	Context() context.Context
	// SendDatagram sends at most maxDatagramBytes. It may block a while.
	SendDatagram(b []byte) error
	// ReceiveDatagram returns a buffer that is the caller's to keep.
	ReceiveDatagram(ctx context.Context) ([]byte, error)
	openStream(ctx context.Context) (bidiStream, error)
	acceptStream(ctx context.Context) (bidiStream, error)
	openUni(ctx context.Context) (sendStream, error)
	acceptUni(ctx context.Context) (receiveStream, error)
	// close ends the connection and tells the peer why.
	close(why string)
}

// The streams' methods are those of quic-go, so that its types are these.
type sendStream interface {
	Write(b []byte) (int, error)
	// TryWriteAll queues all of b, or nothing (quic.ErrWouldBlock).
	TryWriteAll(b []byte) error
	SetWriteDeadline(t time.Time) error
	SetPriority(urgency int8, incremental bool)
	Close() error
	CancelWrite(code quic.StreamErrorCode)
}

type receiveStream interface {
	Read(b []byte) (int, error)
	SetReadDeadline(t time.Time) error
	CancelRead(code quic.StreamErrorCode)
}

type bidiStream interface {
	sendStream
	receiveStream
	SetDeadline(t time.Time) error
}

// Codes that a stream is cancelled with; peers only log them.
const (
	codeDone     quic.StreamErrorCode = 0 // the reader has had enough
	codeBadFrame quic.StreamErrorCode = 1
	codeFull     quic.StreamErrorCode = 2 // nobody takes streams here now
)

// ErrFull is returned by TrySend when the peer reads more slowly than we write.
var ErrFull = errors.New("the peer's window is full")

// Plane is one of the uses of the mesh's port.
type Plane uint8

// The planes.
const (
	GossipPlane Plane = iota
	RaftPlane
	DeltaPlane
	planes
)

// String names the plane, for logs and labels.
func (p Plane) String() string { return [...]string{"gossip", "raft", "delta"}[p] }

// alpn is the plane's protocol name; its number is the major version.
func (p Plane) alpn() string { return "rz-" + p.String() + "/1" }

func alpns() []string {
	out := make([]string, 0, planes)
	for p := range planes {
		out = append(out, p.alpn())
	}
	return out
}

func planeOf(alpn string) (Plane, bool) {
	i := slices.Index(alpns(), alpn)
	return Plane(max(i, 0)), i >= 0
}

// Peer is who is at the other end.
type Peer struct {
	// Addr is the address that the peer advertises.
	Addr netip.AddrPort
	// Boot is the peer's name, unique per start of its process.
	Boot string
}

func (p Peer) String() string { return fmt.Sprintf("%s (%s)", p.Addr, p.Boot) }

// parsePeer reads the address of a peer; peers have no host names here, since
// who resolves them also decides how long to believe the answer.
func parsePeer(addr string) (netip.AddrPort, error) {
	a, err := netip.ParseAddrPort(addr)
	if err != nil || a.Port() == 0 {
		return a, &net.AddrError{Err: "a peer's address is ip:port", Addr: addr}
	}
	return canonical(a), nil
}
