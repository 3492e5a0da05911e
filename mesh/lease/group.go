package lease

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/mesh"
	"github.com/rhizome-router/rhizome/mesh/core"
)

// Deps are what a Group works on.
type Deps struct {
	// Node and Plane are the mesh and its Raft plane; nil for a replica that is
	// alone, which agrees with itself by waiting for nobody.
	Node  *mesh.Node
	Self  string // this replica's name in the mesh
	Plane raft.StreamLayer
	Clock clock.Clock
	Log   *slog.Logger
	Seed  uint64
	// Saved is a snapshot from an earlier life ([Group.Save]); nil for none.
	Saved []byte
	// Events is told what came of each entry of the log, in order, on every
	// replica; it must not block. After a gap it is told of nothing in it.
	Events func([]Event)
	// Fence is told of each incarnation that is dead, possibly this one's own,
	// and Checkpoint of what is settled.
	Fence      func(Origin)
	Checkpoint func([]Low, []StreamMark)
	// Low and Marks return this replica's lowest open promise and how far its
	// streams are.
	Low   func() uint64
	Marks func() []StreamMark
}

// Group is this replica's part in what is agreed on. Some replicas vote, all
// know.
type Group struct {
	cfg  Config
	deps Deps
	port *port
	rand *rand.Rand

	table atomic.Pointer[machine] // what is agreed, as far as is known here
	inc   atomic.Uint64           // this replica's incarnation
	news  feed
	inbox chan inWord
	kick  chan struct{}

	// The rest is Run's goroutine's.
	voter   atomic.Pointer[voter] // nil while this replica runs no Raft
	own     advert
	watch   watch
	peers   map[string]*heardPeer
	looked  clock.Instant
	woke    clock.Instant // from the last stop
	told    clock.Instant
	wasTold advert
	expire  *Expirer
	ring    ring
	brought []*legend // of clusters that ended
	parts   assembly
	asked   clock.Instant
	lowAt   clock.Instant
	fenced  map[Origin]clock.Instant // when that was proposed, by this leader
	elected elections
	checked clock.Instant
	servers int           // started so far
	shown   atomic.Uint64 // Cluster that the table is of
	done    uint64        // where in its log what it came to was told
	addedAt uint64
	change  chan error // of the one change of the voters that is under way
	owners  buckets

	proposals chan []Command
	intake    chan []byte
	no        uint64
	waiting   waiters
	leaving   atomic.Bool
	gone      chan struct{}
	leader    atomic.Pointer[lead]
	addresses atomic.Pointer[map[string]raft.ServerAddress] // of servers
	work      sync.WaitGroup                                // answers to reads, and the change that is under way
	reads     chan struct{}                                 // a slot for each that is answered
	counts    counts
}

// lead is what is known of the cluster's leader.
type lead struct {
	name    string
	cluster Cluster
	index   uint64
	at      clock.Instant
	servers []Server
	term    uint64
}

// heardPeer is what another replica told last.
type heardPeer struct {
	advert
	at clock.Instant
}

type inWord struct {
	from string
	b    []byte
}

const (
	tickEvery     = 50 * time.Millisecond
	maxInbox      = 4096
	maxIntake     = 4096
	fenceAfter    = 10 * time.Second
	settleEvery   = 10 * time.Second
	maxRevocation = 1024
	maxPeers      = 1024
	maxReads      = 64
	lowEvery      = time.Second
	forgetAdvert  = 2 * time.Minute // longer than those who died are remembered
)

// NewGroup returns a group that takes part in nothing yet.
func NewGroup(cfg Config, deps Deps) (*Group, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("leases: %w", err)
	}
	g := &Group{
		cfg: cfg, deps: deps, port: &port{plane: deps.Plane}, rand: clock.Rand(deps.Seed, "lease "+deps.Self),
		inbox: make(chan inWord, maxInbox), kick: make(chan struct{}, 1), peers: make(map[string]*heardPeer),
		expire: NewExpirer(cfg.TTL, cfg.MaxLeases), fenced: make(map[Origin]clock.Instant), proposals: make(chan []Command, maxIntake),
		intake: make(chan []byte, maxIntake), gone: make(chan struct{}), owners: newBuckets(cfg.NewPerSecond),
	}
	g.news.more, g.reads = make(chan struct{}, 1), make(chan struct{}, maxReads)
	g.addresses.Store(&map[string]raft.ServerAddress{})
	g.port.where = g.address
	state := NewState()
	if len(deps.Saved) > 0 {
		s, err := Restore(deps.Saved)
		if err != nil {
			return nil, err
		}
		state = s
	}
	g.table.Store(newMachine(0, state, g.applied))
	if deps.Node != nil {
		for _, t := range []core.Topic{core.Agreement, core.Agreed} {
			deps.Node.HearTold(t, g.hear)
		}
		deps.Node.HearPeers(func() { g.poke() })
	}
	return g, nil
}

// hear queues a peer's words. It is called within the node's Do.
func (g *Group) hear(from string, words []byte) {
	select {
	case g.inbox <- inWord{from, slices.Clone(words)}:
	default:
		g.counts.dropped.Add(1)
	}
}

func (g *Group) poke() {
	select {
	case g.kick <- struct{}{}:
	default:
	}
}

// origin returns this replica's incarnation.
func (g *Group) origin() Origin { return Origin{g.deps.Self, g.inc.Load()} }

// Run takes part until ctx ends; then it hands over what it leads, and returns
// when nothing of it runs any more.
func (g *Group) Run(ctx context.Context) error {
	if g.deps.Node == nil {
		<-ctx.Done()
		return nil
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	wg.Go(g.port.accept)
	wg.Go(func() { g.propose(running) })
	wg.Go(func() { g.commit(running) })
	err := g.loop(ctx)
	stop()
	if v := g.voter.Swap(nil); v != nil {
		err = errors.Join(err, v.stop())
	}
	err = errors.Join(err, g.deps.Plane.Close())
	g.work.Wait()
	wg.Wait()
	return err
}

// loop is the owner of what the group knows of others.
func (g *Group) loop(ctx context.Context) error {
	tick := time.NewTicker(tickEvery)
	defer tick.Stop()
	ended := ctx.Done()
	var leaving <-chan time.Time
	for {
		select {
		case <-ended:
			ended = nil
			g.leaving.Store(true)
			leaving = time.After(leaveWithin)
		case <-leaving:
			return nil
		case w := <-g.inbox:
			g.receive(w.from, w.b)
			continue
		case <-g.news.more:
			g.drain()
			continue
		case <-g.kick:
		case <-tick.C:
		}
		g.drain()
		now := g.deps.Clock.Now()
		v := g.look(now)
		if g.leaving.Load() && (g.own.Server == "" || v.alive() == 0) {
			return nil
		}
		g.take(now, plan(v))
		g.lead(now)
		g.tell(now)
		g.catchUp(now)
		g.unpack(now)
	}
}

// leaveWithin bounds how long a replica that ends waits for another to take its
// place.
const leaveWithin = 2 * time.Second

// look makes the view of now, and brings the own advert up to date.
func (g *Group) look(now clock.Instant) *view {
	stopped := g.wakes(now)
	m := g.table.Load()
	m.mu.RLock()
	g.own.Gen, g.own.Index = m.state.Gen(), m.state.Index()
	copyOf := m.state.Cluster()
	m.mu.RUnlock()
	g.own.Inc, g.own.Leaving = g.inc.Load(), g.leaving.Load()
	if g.deps.Low != nil && now.Sub(g.lowAt) >= lowEvery {
		g.own.Low, g.lowAt = g.deps.Low(), now
	}
	view := &view{self: g.deps.Self, copyOf: copyOf, looked: g.deps.Node.Looked(), addedAt: g.addedAt}
	addresses := make(map[string]raft.ServerAddress)
	for _, p := range g.deps.Node.Peers() {
		s := seen{name: p.Name, alive: p.Alive}
		if h := g.peers[p.Name]; h != nil {
			s.advert, s.heard, s.age = h.advert, true, now.Sub(h.at)
			s.alive = s.alive && !h.Leaving
			// Others may have word of one that can't be reached from here.
			if p.Alive && p.Up && h.Server != "" {
				addresses[h.Server] = raft.ServerAddress(p.Addr.String())
			}
		}
		view.others = append(view.others, s)
	}
	for name, h := range g.peers { // order-free: each by itself
		if now.Sub(h.at) > forgetAdvert {
			delete(g.peers, name)
		}
	}
	g.addresses.Store(&addresses)
	g.own.Server, g.own.Applied, g.own.Leads, g.own.Servers, g.own.Voters = "", 0, false, nil, 0
	if v := g.voter.Load(); v != nil {
		view.running = now.Sub(v.began)
		// A leader that was stopped for a while, as processes are, believes that it
		// leads until its Raft has run again; others may have gone on.
		g.own.Server, g.own.Applied, g.own.Leads = v.id, v.raft.AppliedIndex(), v.ready.Load() && v.raft.State() == raft.Leader && !stopped
		if g.own.Leads {
			g.own.Term, g.own.Servers = v.raft.CurrentTerm(), v.servers()
			g.own.Voters = 0
			for _, s := range g.own.Servers {
				view.own = g.own
				if s.Voter && (s.ID == v.id || view.of(s.ID) != nil) {
					g.own.Voters++
				}
			}
		}
	}
	view.own = g.own
	g.watch.look(now, view)
	g.knowLeader(now, view)
	return view
}

// wakes reports whether this replica was stopped until now, as processes are, for
// so long that others may have gone on without it; at most what waited for it in
// sockets is then as old as that.
func (g *Group) wakes(now clock.Instant) bool {
	stopped := g.looked != 0 && now.Sub(g.looked) >= wakesWithin
	g.looked = now
	if stopped {
		g.woke = now
	}
	return stopped
}

// wakesWithin is how long what waited for a replica that was stopped may take to
// be heard; a shorter stop makes nothing look newer than it may be.
const wakesWithin = freshFor / 2

// knowLeader remembers whom to ask.
func (g *Group) knowLeader(now clock.Instant, v *view) {
	g.elected.look(g, now, v)
	if v.own.Leads {
		g.setLeader(&lead{g.deps.Self, v.own.Cluster, v.own.Index, now, public(v.own.Servers), v.own.Term})
		return
	}
	for o := range v.leaders {
		if o.Cluster == v.own.Cluster {
			at := now.Add(-o.age)
			if at.Sub(g.woke) < wakesWithin {
				at = at.Add(-freshFor) // it may have been said long ago: a hint
			}
			g.setLeader(&lead{o.name, o.Cluster, o.Index, at, public(o.Servers), o.Term})
			return
		}
	}
}

func (g *Group) setLeader(l *lead) {
	if old := g.leader.Swap(l); old == nil || old.name != l.name {
		g.counts.changes.Add(1)
	}
}

func public(servers []server) []Server {
	all := make([]Server, 0, len(servers))
	for _, s := range servers {
		all = append(all, Server(s))
	}
	return all
}

// advertPeriod is how often a replica tells how it stands that has so many peers:
// more rarely the more there are, but never so that what it told is no news.
func advertPeriod(peers int) time.Duration {
	return min(advertsEvery*time.Duration(1+peers/16), freshAdvert-time.Second)
}

// tell tells the others how this replica stands, when that is due or new.
func (g *Group) tell(now clock.Instant) {
	o, w := &g.own, &g.wasTold
	every := advertPeriod(len(g.peers))
	if g.own.Leads {
		every = advertsEvery // by it the others know how fresh their tables are
	}
	if now.Sub(g.told) < every && o.Cluster == w.Cluster && o.Server == w.Server && o.Leads == w.Leads && o.Leaving == w.Leaving &&
		o.YieldTo == w.YieldTo && o.Gen == w.Gen && o.Inc == w.Inc && slices.Equal(o.Servers, w.Servers) {
		return
	}
	g.told, g.wasTold = now, g.own
	g.deps.Node.Tell("", core.Agreement, g.own.words())
}
