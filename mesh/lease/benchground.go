package lease

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/mesh"
	"github.com/rhizome-router/rhizome/transport"
)

// benchGround is the replicas of a measurement.
type benchGround struct {
	all   []*benchReplica
	lives int
	errs  chan error
	keys  atomic.Uint64
}

type benchReplica struct {
	*Group
	addr     string
	endpoint *transport.Endpoint
	stop     context.CancelFunc
	done     chan struct{}
}

// start adds a replica.
func (g *benchGround) start() error {
	g.lives++
	cfg := mesh.Config{Transport: transport.Config{Listen: "127.0.0.1:0", Cluster: "bench", Secrets: []string{strings.Repeat("0123456789abcdef", 2)}}}
	for _, r := range g.all {
		cfg.Peers = append(cfg.Peers, r.addr)
	}
	name, log := fmt.Sprintf("replica-%d", g.lives), slog.New(slog.DiscardHandler)
	e, err := transport.Listen(cfg.Transport, transport.Options{Boot: name, Log: log})
	if err != nil {
		return err
	}
	node, err := mesh.New(cfg, mesh.Deps{Endpoint: e, Clock: clock.Real(), Log: log, Seed: uint64(g.lives)})
	if err != nil {
		return errors.Join(err, e.Close())
	}
	r := &benchReplica{addr: e.Self().Addr.String(), endpoint: e, done: make(chan struct{})}
	leases := Config{MaxLeases: maxLeases, NewPerSecond: 1 << 30, TTL: time.Hour}
	r.Group, err = NewGroup(leases, Deps{Node: node, Self: name, Plane: e.Raft(), Clock: clock.Real(), Log: log, Seed: uint64(g.lives)})
	if err != nil {
		return errors.Join(err, e.Close())
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.stop = cancel
	go func() {
		defer close(r.done)
		inMesh, leave := context.WithCancel(context.Background())
		member := make(chan error, 1)
		go func() { member <- node.Run(inMesh) }()
		err := r.Group.Run(ctx)
		leave()
		if err = errors.Join(err, <-member); err != nil {
			select {
			case g.errs <- err:
			default:
			}
		}
	}()
	g.all = append(g.all, r)
	return nil
}

func (g *benchGround) close() {
	for _, r := range g.all {
		r.stop()
	}
	for _, r := range g.all {
		<-r.done
	}
}

// await waits until a thing is so.
func (g *benchGround) await(ctx context.Context, what string, is func() bool) error {
	deadline := time.Now().Add(benchWait)
	for !is() {
		if time.Now().After(deadline) {
			return fmt.Errorf("after %v still waiting for %s", benchWait, what)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-g.errs:
			return err
		case <-time.After(5 * time.Millisecond):
		}
	}
	return nil
}

// settled waits until all vote and know the same.
func (g *benchGround) settled(ctx context.Context) error {
	return g.await(ctx, "all replicas to vote", func() bool {
		voters := 0
		for _, r := range g.all {
			s := r.Status()
			if !s.Fresh {
				return false
			}
			if s.Leads {
				voters = len(s.Servers)
				for _, x := range s.Servers {
					if !x.Voter {
						voters--
					}
				}
			}
		}
		return voters == benchReplicas
	})
}
