package transport

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Times and bounds of connections.
const (
	// HeartbeatInterval is the time between two signs of life on a connection.
	HeartbeatInterval = time.Second
	// SilenceTimeout is how long a peer may give no sign of life until its
	// connections are closed.
	SilenceTimeout = 4 * time.Second
	// UnusedTimeout is how long a connection without streams and datagrams
	// stays open.
	UnusedTimeout = 30 * time.Second
	// dialTimeout bounds a dial, the peer's hello included.
	dialTimeout = 5 * time.Second
	// redialAfter is the least time from a failed dial to the next.
	redialAfter = 250 * time.Millisecond
	// maxPeers bounds the peers of each plane. Twice what a mesh supports: old
	// and new replicas overlap in a roll-out.
	maxPeers = 512
)

// Options are what an Endpoint is given beside its Config.
type Options struct {
	// Boot names this replica; it must be another at each start of the process.
	// Letters, digits, '-', '_' and '.', at most 128.
	Boot string
	// Log takes one line per event. Default: nowhere.
	Log *slog.Logger
	// Metrics takes the endpoint's metrics. Default: nowhere.
	Metrics prometheus.Registerer
	// Wall tells the time for certificates. Default time.Now.
	Wall func() time.Time
	// Socket replaces the UDP socket, for a simulated network; Listen takes it
	// over. The product leaves it out: a socket that isn't the kernel's own loses
	// segmentation offload and batched reads.
	Socket net.PacketConn
}

// withDefaults fills in what was left out.
func (o Options) withDefaults() Options {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Metrics == nil {
		o.Metrics = prometheus.NewRegistry()
	}
	if o.Wall == nil {
		o.Wall = time.Now
	}
	return o
}

// Endpoint is this replica's end of the mesh: one port, the sessions with all
// peers, and the three planes on them. It is safe for concurrent use.
type Endpoint struct {
	boot      string
	advertise netip.AddrPort
	carrier   carrier
	log       *slog.Logger
	metrics   *metrics
	refusals  *refusals

	gossip *Gossip
	raft   *Raft
	delta  *Delta

	ctx  context.Context // ends with the endpoint
	stop context.CancelCauseFunc
	work sync.WaitGroup // every goroutine of the endpoint and its sessions

	mu     sync.Mutex
	closed bool
	slots  map[slotKey]*slot
	live   map[*session]bool // every session, also those that another one replaced
}

type slotKey struct {
	plane Plane
	addr  netip.AddrPort
}

// slot is what is known of one plane of one peer.
type slot struct {
	current  *session      // new streams and datagrams go here; nil or dead: dial
	dialling chan struct{} // closed when the dial under way ends
	failed   error         // what the last dial failed with
	failedAt time.Time
}

// Listen opens the mesh's port. The endpoint lives until Close.
func Listen(cfg Config, opts Options) (*Endpoint, error) {
	cfg, opts = cfg.WithDefaults(), opts.withDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("open the mesh's port: %w", err)
	}
	if !cfg.Enabled() {
		return nil, errors.New("open the mesh's port: neither secrets nor tls is set, so nobody could be trusted")
	}
	e, err := newEndpoint(opts)
	if err != nil {
		return nil, err
	}
	e.carrier, e.advertise, err = listenQUIC(cfg, opts, e.refusals)
	if err != nil {
		return nil, errors.Join(err, e.metrics.unregister())
	}
	e.start()
	return e, nil
}

// newEndpoint makes an endpoint without a carrier.
func newEndpoint(opts Options) (*Endpoint, error) {
	if !bootName.MatchString(opts.Boot) || len(opts.Boot) > maxBootBytes {
		return nil, fmt.Errorf("open the mesh's port: boot is %q: want at most %d letters, digits, '-', '_' and '.'", opts.Boot, maxBootBytes)
	}
	m, err := newMetrics(opts.Metrics)
	if err != nil {
		return nil, err
	}
	e := &Endpoint{
		boot: opts.Boot, log: opts.Log, metrics: m,
		refusals: newRefusals(opts.Log, m),
		slots:    make(map[slotKey]*slot), live: make(map[*session]bool),
	}
	e.ctx, e.stop = context.WithCancelCause(context.Background())
	e.gossip, e.raft, e.delta = newGossip(e), newRaft(e), newDelta(e)
	return e, nil
}

// start takes peers' connections from now on.
func (e *Endpoint) start() {
	e.work.Go(func() {
		for {
			l, err := e.carrier.accept(e.ctx)
			if err != nil {
				return // closed
			}
			e.work.Go(func() { e.welcome(l) })
		}
	})
}

// Gossip returns memberlist's transport.
func (e *Endpoint) Gossip() *Gossip { return e.gossip }

// Raft returns Raft's stream layer.
func (e *Endpoint) Raft() *Raft { return e.raft }

// Delta returns the plane of deltas.
func (e *Endpoint) Delta() *Delta { return e.delta }

// Self returns who this replica is to its peers.
func (e *Endpoint) Self() Peer { return Peer{Addr: e.advertise, Boot: e.boot} }

// Drop closes all connections with the peer at addr, for a caller that knows
// that it is gone. It may be dialled again at once.
func (e *Endpoint) Drop(addr string) {
	a, err := parsePeer(addr)
	if err != nil {
		return
	}
	e.closeSessions("dropped", func(s *session) bool { return s.peer.Addr == a || s.at == a })
}

// closeSessions closes the sessions that match and waits for none.
func (e *Endpoint) closeSessions(why string, match func(*session) bool) {
	e.mu.Lock()
	var hit []*session
	for s := range e.live { // order-free: each is closed on its own
		if match(s) {
			hit = append(hit, s)
		}
	}
	e.mu.Unlock()
	var each sync.WaitGroup
	for _, s := range hit {
		each.Go(func() { s.end(why) })
	}
	each.Wait()
}

// Close tells peers, closes everything and waits for every goroutine.
func (e *Endpoint) Close() error { return e.shut(func() {}) }

// Crash ends the endpoint as a crash of the process would, for tests: nobody is
// told. Its address is free afterwards, and who still sends to it learns of that
// only from a new endpoint there, or from the silence.
func (e *Endpoint) Crash() { _ = e.shut(e.carrier.vanish) }

func (e *Endpoint) shut(first func()) error {
	e.mu.Lock()
	was := e.closed
	e.closed = true // no session enters from here on
	e.mu.Unlock()
	if was {
		return nil
	}
	first()
	e.stop(net.ErrClosed)
	e.closeSessions("closing", func(*session) bool { return true })
	// The carrier goes last: links that are only being made are told of the end
	// by who makes them.
	e.work.Wait()
	return errors.Join(e.carrier.close(), e.metrics.unregister())
}

// goes runs f on a goroutine of the endpoint's, or says that it is closed.
func (e *Endpoint) goes(f func()) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return false
	}
	e.work.Go(f)
	return true
}
