package zmtp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"time"
)

// SocketType is a ZeroMQ socket type as named on the wire.
type SocketType string

// The socket types of this package. Peers may be of other types too, see
// accepts.
const (
	SUB    SocketType = "SUB"
	DEALER SocketType = "DEALER"
	PUB    SocketType = "PUB"
	ROUTER SocketType = "ROUTER"
)

// accepts returns the peers that a socket of type t may talk to.
func (t SocketType) accepts() []string {
	switch t {
	case SUB:
		return []string{"PUB", "XPUB"}
	case PUB:
		return []string{"SUB", "XSUB"}
	case DEALER:
		return []string{"ROUTER", "REP", "DEALER"}
	case ROUTER:
		return []string{"DEALER", "REQ", "ROUTER"}
	}
	return nil
}

const (
	greetingBytes    = 64
	maxHandshakeBody = 64 << 10 // bound of a READY command
	socketBuffer     = 1 << 20  // bytes; rides out a short stall of the reader
	readBuffer       = 64 << 10
)

// defaultHandshakeTimeout bounds greeting and READY.
const defaultHandshakeTimeout = 5 * time.Second

// peerInfo is what a peer said of itself in its READY.
type peerInfo struct {
	socketType string
	identity   []byte
}

// handshake greets the peer on c and checks its answer. It is bounded by ctx
// and timeout and leaves c without a deadline.
func handshake(ctx context.Context, c net.Conn, r *bufio.Reader, t SocketType, timeout time.Duration) (peerInfo, error) {
	if err := c.SetDeadline(time.Now().Add(timeout)); err != nil {
		return peerInfo{}, err
	}
	stop := context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })
	info, err := exchange(c, r, t)
	if !stop() && ctx.Err() != nil {
		return peerInfo{}, fmt.Errorf("handshake: %w", context.Cause(ctx))
	}
	if err != nil {
		return peerInfo{}, fmt.Errorf("handshake: %w", err)
	}
	return info, c.SetDeadline(time.Time{})
}

func exchange(c net.Conn, r *bufio.Reader, t SocketType) (peerInfo, error) {
	hello := append(greeting(), ready(t)...)
	if _, err := c.Write(hello); err != nil {
		return peerInfo{}, err
	}
	var g [greetingBytes]byte
	// The first ten bytes tell a stranger (an HTTP server, say) before we wait
	// for bytes that won't come.
	if _, err := io.ReadFull(r, g[:10]); err != nil {
		return peerInfo{}, unexpected(err)
	}
	if g[0] != 0xff || g[9]&1 == 0 {
		return peerInfo{}, fmt.Errorf("%w: greeting starts with %x: is this a ZeroMQ port?", errMalformed, g[:10])
	}
	if _, err := io.ReadFull(r, g[10:]); err != nil {
		return peerInfo{}, unexpected(err)
	}
	if g[10] < 3 {
		return peerInfo{}, fmt.Errorf("peer speaks ZMTP %d, need 3 or later (libzmq 4)", g[10])
	}
	if m := strings.TrimRight(string(g[12:32]), "\x00"); m != "NULL" {
		return peerInfo{}, fmt.Errorf("peer wants security mechanism %q, only NULL is supported", m)
	}
	flags, body, err := readFrame(r, maxHandshakeBody)
	if err != nil {
		return peerInfo{}, unexpected(err)
	}
	if flags&flagCommand == 0 {
		return peerInfo{}, fmt.Errorf("%w: message before READY", errMalformed)
	}
	return parseReady(body, t)
}

// greeting returns our 64 bytes: ZMTP 3.0, NULL. With minor version 0, peers
// send subscriptions as messages; their 3.1 commands are understood as well.
func greeting() []byte {
	g := make([]byte, greetingBytes)
	g[0], g[9], g[10] = 0xff, 0x7f, 3
	copy(g[12:], "NULL")
	return g
}

func ready(t SocketType) []byte {
	data := appendProperty(nil, "Socket-Type", string(t))
	if t == DEALER {
		data = appendProperty(data, "Identity", "")
	}
	return appendCommand(nil, "READY", data)
}

func appendProperty(dst []byte, name, value string) []byte {
	dst = append(dst, byte(len(name)))
	dst = append(dst, name...)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(value)))
	return append(dst, value...)
}

func parseReady(body []byte, t SocketType) (peerInfo, error) {
	name, data, err := parseCommand(body)
	if err != nil {
		return peerInfo{}, err
	}
	switch name {
	case "READY":
	case "ERROR":
		return peerInfo{}, fmt.Errorf("peer refuses: %q", errorReason(data))
	default:
		return peerInfo{}, fmt.Errorf("%w: command %q in place of READY", errMalformed, name)
	}
	var info peerInfo
	for len(data) > 0 {
		var key string
		var value []byte
		if key, value, data, err = cutProperty(data); err != nil {
			return peerInfo{}, err
		}
		switch {
		case strings.EqualFold(key, "Socket-Type"):
			info.socketType = string(value)
		case strings.EqualFold(key, "Identity"):
			info.identity = bytes.Clone(value)
		}
	}
	if len(info.identity) > 255 {
		return peerInfo{}, fmt.Errorf("%w: identity of %d bytes", errMalformed, len(info.identity))
	}
	if !slices.Contains(t.accepts(), info.socketType) {
		return peerInfo{}, fmt.Errorf("peer is a %q socket, a %s socket talks to %s only",
			info.socketType, t, strings.Join(t.accepts(), ", "))
	}
	return info, nil
}

func cutProperty(data []byte) (key string, value, rest []byte, err error) {
	n := 1 + int(data[0])
	if len(data) < n+4 {
		return "", nil, nil, fmt.Errorf("%w: READY property cut short", errMalformed)
	}
	size := binary.BigEndian.Uint32(data[n:])
	if uint64(len(data)-n-4) < uint64(size) {
		return "", nil, nil, fmt.Errorf("%w: READY property cut short", errMalformed)
	}
	end := n + 4 + int(size)
	return string(data[1:n]), data[n+4 : end], data[end:], nil
}

// tune sets what every connection of this package wants: small frames sent at
// once, dead peers noticed in half a minute, room for a burst.
func tune(c net.Conn) {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return
	}
	// Each is an improvement only; none is needed for a correct connection.
	tcp.SetNoDelay(true)
	tcp.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3})
	tcp.SetReadBuffer(socketBuffer)
}
