package zmtp

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
)

const (
	defaultPubQueue      = 100_000 // messages, vLLM's hwm
	maxSubscriptions     = 1024    // of one subscriber
	maxSubscriptionBytes = 4096
)

// PubOptions says how a [Pub] behaves. The zero value takes the defaults.
type PubOptions struct {
	// QueueMessages is how many messages wait for one subscriber before the
	// next ones are dropped for it (the high-water mark). Default 100 000.
	QueueMessages int
}

// Pub is a bound PUB socket: it sends each message to the subscribers whose
// topic prefix it matches, and silently drops it for one that is too slow, as
// libzmq does. Its methods are safe for concurrent use.
type Pub struct {
	srv     server
	dropped atomic.Uint64

	mu   sync.Mutex
	subs map[*peer]*subscriptions
}

// ListenPub binds addr "host:port" (port 0: any free one) and takes
// subscribers until Close.
func ListenPub(addr string, opt PubOptions) (*Pub, error) {
	p := &Pub{subs: make(map[*peer]*subscriptions)}
	p.srv = server{
		typ: PUB, queue: orDefault(opt.QueueMessages, defaultPubQueue),
		opened: p.add, gone: p.remove, message: p.message, command: p.command,
	}
	if err := p.srv.start(addr); err != nil {
		return nil, err
	}
	return p, nil
}

// Addr returns the bound address.
func (p *Pub) Addr() net.Addr { return p.srv.ln.Addr() }

// Send sends one message whose topic is its first frame. It never blocks and
// keeps nothing of the caller's slices.
func (p *Pub) Send(frames ...[]byte) {
	if len(frames) == 0 {
		return
	}
	var encoded []byte // once, and only if somebody wants it
	p.mu.Lock()
	defer p.mu.Unlock()
	for sub, wanted := range p.subs {
		if !wanted.match(frames[0]) {
			continue
		}
		if encoded == nil {
			encoded = encodeMessage(frames)
		}
		if !sub.out.put(encoded, false) {
			p.dropped.Add(1)
		}
	}
}

// Subscribers returns how many peers have at least one subscription now.
func (p *Pub) Subscribers() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, s := range p.subs {
		if len(s.prefixes) > 0 {
			n++
		}
	}
	return n
}

// Dropped returns how many messages were dropped so far, counted once for each
// subscriber that missed one.
func (p *Pub) Dropped() uint64 { return p.dropped.Load() }

// Close hangs up on all subscribers, whatever is still queued for them, and
// waits for the goroutines.
func (p *Pub) Close() error { return p.srv.closeErr() }

func (p *Pub) add(sub *peer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.subs[sub] = &subscriptions{}
}

func (p *Pub) remove(sub *peer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.subs, sub)
}

// message takes the subscription form of ZMTP 3.0: 1 or 0, then the prefix.
func (p *Pub) message(sub *peer, frames [][]byte) error {
	if len(frames) != 1 || len(frames[0]) == 0 || frames[0][0] > 1 {
		return nil // an XSUB's own message upstream: not for a PUB
	}
	return p.subscribe(sub, frames[0][0] == 1, frames[0][1:])
}

// command takes the subscription form of ZMTP 3.1.
func (p *Pub) command(sub *peer, name string, data []byte) error {
	switch name {
	case "SUBSCRIBE":
		return p.subscribe(sub, true, data)
	case "CANCEL":
		return p.subscribe(sub, false, data)
	}
	return nil
}

func (p *Pub) subscribe(sub *peer, on bool, prefix []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if on {
		return p.subs[sub].add(prefix)
	}
	p.subs[sub].cancel(prefix)
	return nil
}

// subscriptions are one subscriber's topic prefixes, each as often as it was
// subscribed to. There are few, so a list does.
type subscriptions struct{ prefixes [][]byte }

var errSubscriptions = errors.New("too many or too long subscriptions")

func (s *subscriptions) add(prefix []byte) error {
	if len(s.prefixes) == maxSubscriptions || len(prefix) > maxSubscriptionBytes {
		return fmt.Errorf("%w: at most %d of %d bytes", errSubscriptions, maxSubscriptions, maxSubscriptionBytes)
	}
	s.prefixes = append(s.prefixes, prefix)
	return nil
}

func (s *subscriptions) cancel(prefix []byte) {
	for i, have := range s.prefixes {
		if bytes.Equal(have, prefix) {
			s.prefixes = append(s.prefixes[:i], s.prefixes[i+1:]...)
			return
		}
	}
}

func (s *subscriptions) match(topic []byte) bool {
	for _, prefix := range s.prefixes {
		if bytes.HasPrefix(topic, prefix) {
			return true
		}
	}
	return false
}
