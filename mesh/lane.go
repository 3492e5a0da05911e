package mesh

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/mesh/core"
	"github.com/rhizome-router/rhizome/transport"
)

// lane is the way to one peer: a queue a class, which are sent while a
// connection stands.
type lane struct {
	name   string
	addr   netip.AddrPort
	cancel context.CancelFunc
	queues [2]chan []byte // by class; nil while no connection stands; guarded by Node.mu
}

// maxQueuedFrames bounds a queue besides the bytes of all.
const maxQueuedFrames = 8192

// enqueue hands a frame to a lane, or drops it if there is no room. It needs mu.
func (n *Node) enqueue(now clock.Instant, l *lane, m core.Message) {
	if l == nil || l.queues[m.Class] == nil {
		return
	}
	if n.queued.Load()+int64(len(m.Frame)) <= int64(n.cfg.MaxQueueBytes) {
		select {
		case l.queues[m.Class] <- m.Frame:
			n.queued.Add(int64(len(m.Frame)))
			return
		default:
		}
	}
	n.dropped.Add(1)
	n.core.Overflowed(now, l.name)
}

// Pauses between attempts to connect to a member. Who can't be reached from here
// while others have word of it is rare, and its leases must be equal 2 s after it
// can be, so the longest is shorter than those of the search for lost replicas.
const (
	firstPause = 250 * time.Millisecond
	maxPause   = time.Second
)

// connect keeps a connection to a member until ctx ends.
func (n *Node) connect(ctx context.Context, l *lane) {
	pause := firstPause
	for ctx.Err() == nil {
		began := n.deps.Clock.Now()
		if err := n.serve(ctx, l); err != nil && ctx.Err() == nil {
			n.deps.Log.Debug("no connection to a peer", "peer", l.name, "addr", l.addr, "err", err)
		}
		if n.deps.Clock.Now().Sub(began) > 2*dialTimeout { // it stood for a while
			pause = firstPause
		}
		if n.deps.Clock.Sleep(ctx, pause) != nil {
			return
		}
		pause = min(maxPause, pause*3/2)
	}
}

// serve connects and sends until the connection ends.
func (n *Node) serve(ctx context.Context, l *lane) error {
	dialling, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	ch, err := n.deps.Endpoint.Delta().Open(dialling, l.addr.String())
	if err != nil {
		return err
	}
	if got := ch.Peer().Boot; got != l.name {
		return fmt.Errorf("%s answers at its address", got)
	}
	var streams [2]*transport.Outbound
	for class := range streams {
		if streams[class], err = ch.Stream(dialling, transport.Class(class)); err != nil {
			return err
		}
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	var queues [2]chan []byte
	for class := range queues {
		queues[class] = make(chan []byte, maxQueuedFrames)
	}
	n.mu.Lock()
	l.queues = queues
	n.mu.Unlock()
	n.Do(func(now clock.Instant, c *core.Core) { c.Up(now, l.name) })
	var wg sync.WaitGroup
	for class, out := range streams {
		wg.Go(func() { end(n.send(ctx, out, queues[class])) })
	}
	select {
	case <-ch.Done():
		end(errors.New("the connection ended"))
	case <-ctx.Done():
	}
	wg.Wait()
	n.mu.Lock()
	l.queues = [2]chan []byte{}
	n.mu.Unlock()
	for _, q := range queues {
		close(q) // nobody sends to it any more
		for frame := range q {
			n.queued.Add(-int64(len(frame)))
		}
	}
	n.Do(func(now clock.Instant, c *core.Core) {
		if next := n.lanes[l.name]; next == nil || next == l { // else another lane may be up
			c.Down(now, l.name)
		}
	})
	return context.Cause(ctx)
}

// send writes a queue to a stream until ctx ends or it can't.
func (n *Node) send(ctx context.Context, out *transport.Outbound, queue <-chan []byte) error {
	defer out.Close()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case frame := <-queue:
			err := out.Send(ctx, frame)
			n.queued.Add(-int64(len(frame)))
			if err != nil {
				return err
			}
		}
	}
}
