package zmtp

import (
	"context"
	"fmt"
	"net"
)

// Listener takes connections of engines that dial in, which vLLM does unless
// its endpoint holds a "*".
type Listener struct {
	ln  net.Listener
	opt Options
}

// Listen binds endpoint "tcp://host:port"; the host "*" means every address.
func Listen(ctx context.Context, endpoint string, opt Options) (*Listener, error) {
	addr, err := ParseEndpoint(endpoint)
	if err != nil {
		return nil, fmt.Errorf("zmtp: %w", err)
	}
	opt, err = opt.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("zmtp: listen on %s: %w", endpoint, err)
	}
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("zmtp: listen on %s: %w", endpoint, err)
	}
	return &Listener{ln: ln, opt: opt}, nil
}

// Accept waits for the next peer, shakes hands and, as a SUB, subscribes. An
// error that wraps net.ErrClosed means the listener was closed; after any
// other (a peer that isn't what we want) Accept may be called again. ctx
// bounds the handshake; Close unblocks the wait.
func (l *Listener) Accept(ctx context.Context) (*Conn, error) {
	nc, err := l.ln.Accept()
	if err != nil {
		return nil, fmt.Errorf("zmtp: accept on %s: %w", l.ln.Addr(), err)
	}
	c, err := newConn(ctx, nc, l.opt)
	if err != nil {
		return nil, fmt.Errorf("zmtp: peer %s: %w", nc.RemoteAddr(), err)
	}
	return c, nil
}

// Addr returns the bound address.
func (l *Listener) Addr() net.Addr { return l.ln.Addr() }

// Close stops listening. Connections already accepted live on.
func (l *Listener) Close() error { return l.ln.Close() }
