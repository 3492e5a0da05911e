package mesh

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/crdt"
	"github.com/rhizome-router/rhizome/index"
	"github.com/rhizome-router/rhizome/mesh/core"
	"github.com/rhizome-router/rhizome/transport"
)

// benchGround is the replicas of one measurement, in this process and on
// loopback.
type benchGround struct {
	m     benchMesh
	nodes []*Node // whole ones
	stop  context.CancelFunc
	work  sync.WaitGroup
	light []*transport.Endpoint

	mu   sync.Mutex
	errs []error
}

func benchTransport() transport.Config {
	return transport.Config{Listen: "127.0.0.1:0", Cluster: "bench", Secrets: []string{strings.Repeat("0123456789abcdef", 2)}}
}

func newBenchGround(ctx context.Context, m benchMesh, run *convergence) (*benchGround, error) {
	g := &benchGround{m: m}
	ctx, g.stop = context.WithCancel(ctx)
	var peers []string
	for i := range m.whole {
		n, addr, err := g.whole(ctx, i, peers, run)
		if err != nil {
			return nil, errors.Join(err, g.close())
		}
		if len(peers) < 3 {
			peers = append(peers, addr)
		}
		g.nodes = append(g.nodes, n)
	}
	if err := g.await(ctx, "replicas to meet", func() bool { return g.met(m.whole - 1) }); err != nil {
		return nil, errors.Join(err, g.close())
	}
	for i := range m.light {
		if err := g.addLight(ctx, i, run); err != nil {
			return nil, errors.Join(err, g.close())
		}
	}
	err := g.await(ctx, "light replicas to be connected", func() bool { return connections(g.nodes[0]) == m.whole-1+m.light })
	if err != nil {
		return nil, errors.Join(err, g.close())
	}
	return g, nil
}

// whole starts a replica as it ships, with an index.
func (g *benchGround) whole(ctx context.Context, i int, peers []string, run *convergence) (*Node, string, error) {
	cfg := Config{Peers: peers, Transport: benchTransport(), MaxRingBytes: g.m.rings}
	e, err := transport.Listen(cfg.Transport, transport.Options{Boot: fmt.Sprintf("whole-%d", i)})
	if err != nil {
		return nil, "", err
	}
	n, err := New(cfg, Deps{Endpoint: e, Clock: clock.Real(), Log: slog.New(slog.DiscardHandler), Seed: uint64(i)})
	if err != nil {
		return nil, "", errors.Join(err, e.Close())
	}
	n.HearStreams(&arrivals{Shown: core.Shown{Index: index.New(index.Config{})}, run: run, log: func() *crdt.Log { return n.core.Log() }})
	g.work.Go(func() { g.fail(n.Run(ctx)) })
	return n, e.Self().Addr.String(), nil
}

// addLight starts a receiver without an index, to which the first replica sends
// as if membership had told of it.
func (g *benchGround) addLight(ctx context.Context, i int, run *convergence) error {
	e, err := transport.Listen(benchTransport(), transport.Options{Boot: fmt.Sprintf("light-%d", i)})
	if err != nil {
		return err
	}
	g.light = append(g.light, e)
	n, err := New(Config{Transport: benchTransport()}, Deps{Endpoint: e, Clock: clock.Real(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	n.HearStreams(&arrivals{run: run, log: func() *crdt.Log { return n.core.Log() }})
	g.work.Go(func() {
		var streams sync.WaitGroup
		n.accept(ctx, &streams)
		streams.Wait()
	})
	g.nodes[0].join(ctx, &g.work, e.Self().Boot, e.Self().Addr, Minor)
	return nil
}

// readers returns who reads which engine.
func (g *benchGround) readers(ctx context.Context) ([]*Node, error) {
	readers := make([]*Node, meshEngines)
	if g.m.light > 0 {
		for e := range readers {
			readers[e] = g.nodes[0]
		}
		return readers, nil
	}
	err := g.await(ctx, "replicas to share the engines", func() bool {
		for e := range readers {
			readers[e] = nil
			for _, n := range g.nodes {
				reads := false
				n.Do(func(_ clock.Instant, c *core.Core) {
					reads = c.Reads(core.NewChurn(0, 1, 1, false).ID(e).Target.Worker)
				})
				if reads && readers[e] != nil {
					return false
				}
				if reads {
					readers[e] = n
				}
			}
			if readers[e] == nil {
				return false
			}
		}
		return true
	})
	return readers, err
}

// met reports whether every whole replica has that many connections.
func (g *benchGround) met(n int) bool {
	for _, node := range g.nodes {
		if connections(node) != n {
			return false
		}
	}
	return true
}

// connections counts those that a node has.
func connections(n *Node) (connected int) {
	n.Do(func(now clock.Instant, c *core.Core) {
		for _, p := range c.Peers(now) {
			if p.Up {
				connected++
			}
		}
	})
	return connected
}

// patience is how long replicas may take to meet, which is long on a machine
// that is busy with other things.
const patience = time.Minute

// await waits until something is so.
func (g *benchGround) await(ctx context.Context, what string, is func() bool) error {
	for deadline := time.Now().Add(patience); !is(); {
		if time.Now().After(deadline) {
			return fmt.Errorf("waited %v for %s", patience, what)
		}
		if err := clock.Real().Sleep(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

func (g *benchGround) fail(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.errs = append(g.errs, err)
}

// close ends the replicas.
func (g *benchGround) close() error {
	g.stop()
	for _, e := range g.light {
		g.fail(e.Close())
	}
	g.work.Wait()
	return errors.Join(g.errs...)
}
