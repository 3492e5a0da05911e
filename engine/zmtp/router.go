package zmtp

import (
	"encoding/binary"
	"errors"
	"net"
	"sync/atomic"
)

// ErrQueueFull is what a reply returns when it was dropped because the peer
// doesn't drain its queue, or has gone.
var ErrQueueFull = errors.New("zmtp: reply dropped: the peer's queue is full or the peer has gone")

const defaultRouterQueue = 1000 // messages, libzmq's default

// RouterOptions says how a [Router] behaves. The zero value takes the defaults.
type RouterOptions struct {
	// QueueMessages is how many replies wait for one peer before the next ones
	// are dropped for it (the high-water mark). Default 1000.
	QueueMessages int
}

// Handler is called for each message of each peer, one at a time per peer and
// concurrently for different peers. frames are as the peer sent them: a REQ
// puts an empty frame in front, and wants one in front of the reply. reply
// never blocks, may be called any number of times, from anywhere, also after
// the handler returned, and keeps nothing of its arguments; it returns
// ErrQueueFull when the reply was dropped.
type Handler func(identity []byte, frames [][]byte, reply func(frames ...[]byte) error)

// Router is a bound ROUTER socket for DEALER and REQ peers.
type Router struct {
	srv    server
	handle Handler
	nextID atomic.Uint32
}

// ListenRouter binds addr "host:port" (port 0: any free one) and serves peers
// until Close.
func ListenRouter(addr string, opt RouterOptions, handle Handler) (*Router, error) {
	r := &Router{handle: handle}
	r.srv = server{
		typ: ROUTER, queue: orDefault(opt.QueueMessages, defaultRouterQueue),
		opened: r.name, gone: func(*peer) {}, message: r.message,
		command: func(*peer, string, []byte) error { return nil },
	}
	if err := r.srv.start(addr); err != nil {
		return nil, err
	}
	return r, nil
}

// Addr returns the bound address.
func (r *Router) Addr() net.Addr { return r.srv.ln.Addr() }

// Close hangs up on all peers and waits for the handlers to return.
func (r *Router) Close() error { return r.srv.closeErr() }

// name gives a peer without identity one, in libzmq's way: a zero byte that no
// peer may choose, then a number.
func (r *Router) name(p *peer) {
	if len(p.info.identity) == 0 {
		p.info.identity = binary.BigEndian.AppendUint32([]byte{0}, r.nextID.Add(1))
	}
}

func (r *Router) message(p *peer, frames [][]byte) error {
	r.handle(p.info.identity, frames, func(reply ...[]byte) error {
		if len(reply) == 0 {
			return errors.New("zmtp: a reply needs at least one frame")
		}
		if !p.out.put(encodeMessage(reply), false) {
			return ErrQueueFull
		}
		return nil
	})
	return nil
}
