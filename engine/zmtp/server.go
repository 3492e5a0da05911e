package zmtp

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"sync"
	"time"
)

const (
	serverMaxPeers        = 1024
	serverMaxMessageBytes = 1 << 20 // what a subscriber or a requester may send
)

// server accepts peers for Pub and Router. Two goroutines a peer: one reads,
// one writes its outbox.
type server struct {
	ln       net.Listener
	typ      SocketType
	queue    int // outbox limit, messages
	opened   func(*peer)
	message  func(*peer, [][]byte) error // its error ends the peer
	command  func(*peer, string, []byte) error
	gone     func(*peer)
	stop     context.CancelFunc
	ctx      context.Context
	wg       sync.WaitGroup
	closeErr func() error

	mu    sync.Mutex
	conns map[net.Conn]struct{}
}

// peer is one connection of a server.
type peer struct {
	nc   net.Conn
	info peerInfo
	out  *outbox
}

// start binds addr "host:port" and serves until close.
func (s *server) start(addr string) error {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return fmt.Errorf("zmtp: %s socket: listen on %s: %w", s.typ, addr, err)
	}
	s.ln = ln
	s.conns = make(map[net.Conn]struct{})
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.closeErr = sync.OnceValue(s.shutdown)
	s.wg.Go(s.accept)
	return nil
}

func (s *server) accept() {
	for s.ctx.Err() == nil {
		nc, err := s.ln.Accept()
		if err != nil {
			// Out of file descriptors, say: wait instead of spinning.
			select {
			case <-s.ctx.Done():
			case <-time.After(50 * time.Millisecond):
			}
			continue
		}
		if !s.track(nc) {
			nc.Close()
			continue
		}
		s.wg.Go(func() {
			defer s.forget(nc)
			s.serve(nc)
		})
	}
}

// serve lives as long as one peer. A peer that misbehaves is hung up on.
func (s *server) serve(nc net.Conn) {
	tune(nc)
	r := bufio.NewReaderSize(nc, 4<<10)
	info, err := handshake(s.ctx, nc, r, s.typ, defaultHandshakeTimeout)
	if err != nil {
		return
	}
	p := &peer{nc: nc, info: info, out: newOutbox(s.queue)}
	s.opened(p)
	defer s.gone(p)

	var writer sync.WaitGroup
	writer.Go(func() {
		p.out.run(nc) // an error shows in the reader, whose connection we close
		nc.Close()
	})
	defer writer.Wait()
	defer nc.Close()
	defer p.out.close()

	in := receiver{r: r, maxBytes: serverMaxMessageBytes, maxParts: defaultParts}
	in.command = func(name string, data []byte) error {
		if name != "PING" {
			return s.command(p, name, data)
		}
		answer, err := pong(data)
		if err == nil {
			p.out.put(answer, true)
		}
		return err
	}
	for {
		frames, err := in.message()
		if err != nil || s.message(p, frames) != nil {
			return
		}
	}
}

func (s *server) track(nc net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil || len(s.conns) >= serverMaxPeers {
		return false
	}
	s.conns[nc] = struct{}{}
	return true
}

func (s *server) forget(nc net.Conn) {
	nc.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, nc)
}

func (s *server) shutdown() error {
	s.mu.Lock()
	s.stop()
	err := s.ln.Close()
	for nc := range s.conns {
		nc.Close()
	}
	s.mu.Unlock()
	s.wg.Wait()
	return err
}
