package load

import (
	"context"
	"sync"
)

// gate lets requests through and can be shut. It is safe for concurrent use.
type gate struct {
	mu     sync.Mutex
	inside int
	opened chan struct{} // of a shut gate: closed when it opens
	empty  chan struct{} // of a shut gate: closed when nobody is inside
}

// enter waits until the gate is open, or ctx ends. Whoever entered leaves once.
func (g *gate) enter(ctx context.Context) error {
	for {
		g.mu.Lock()
		opened := g.opened
		if opened == nil {
			g.inside++
		}
		g.mu.Unlock()
		if opened == nil {
			return nil
		}
		select {
		case <-opened:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside--
	if g.inside == 0 && g.empty != nil {
		close(g.empty)
		g.empty = nil
	}
}

// shut shuts an open gate and waits until nobody is inside. It returns what
// opens it again.
func (g *gate) shut() (open func()) {
	g.mu.Lock()
	opened, empty := make(chan struct{}), make(chan struct{})
	g.opened, g.empty = opened, empty
	if g.inside == 0 {
		close(empty)
		g.empty = nil
	}
	g.mu.Unlock()
	<-empty
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.opened = nil
		close(opened)
	}
}
