package bubble

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rhizome-router/rhizome/chaos"
	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/crdt"
	"github.com/rhizome-router/rhizome/kv"
	"github.com/rhizome-router/rhizome/mesh"
	"github.com/rhizome-router/rhizome/mesh/core"
	"github.com/rhizome-router/rhizome/mesh/lease"
	"github.com/rhizome-router/rhizome/transport"
)

// place is where one replica after another lives.
type place struct {
	n, life int
	up      *replica // nil while there is none
	saved   []byte   // its copy of the leases, where that is kept
}

// replica is one life.
type replica struct {
	name     string
	saves    time.Time // next
	endpoint *transport.Endpoint
	node     *mesh.Node
	leases   *lease.Group
	missing  map[crdt.StreamID]crdt.Range // what its engines can't give any more; within Do
	stop     context.CancelFunc
	done     chan error
}

const (
	replicasName = "replicas"
	meshPort     = 7400
)

// address is where the present life is, or the last one was.
func (p *place) address() netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(p.n), byte(1 + p.life%250)}), meshPort)
}

// start begins the next life of a place, at an address of its own, that knows
// nothing.
func (w *world) start(p *place) {
	p.life++
	w.tellNetwork()
	cfg := mesh.Config{Transport: transport.Config{Cluster: "chaos", Secrets: []string{strings.Repeat("0123456789abcdef", 3)}},
		Peers: []string{fmt.Sprintf("%s:%d", replicasName, meshPort)}}
	r := &replica{name: fmt.Sprintf("r%d-%03d", p.n, p.life), saves: time.Now().Add(saveEvery), done: make(chan error, 1), missing: make(map[crdt.StreamID]crdt.Range)}
	seed, log := w.seed*1000+uint64(p.n*100+p.life), slog.New(slog.DiscardHandler)
	var err error
	if r.endpoint, err = w.net.Listen(p.address().String(), cfg.Transport, transport.Options{Boot: r.name}); err != nil {
		w.t.Fatal(err)
	}
	if r.node, err = mesh.New(cfg, mesh.Deps{Endpoint: r.endpoint, Clock: clock.Real(), Log: log, Seed: seed, Lookup: w.lookup}); err != nil {
		w.t.Fatal(err)
	}
	r.leases, err = lease.NewGroup(lease.Config{TTL: chaos.LeaseTTL}, lease.Deps{Node: r.node, Self: r.name, Plane: r.endpoint.Raft(), Clock: clock.Real(), Log: log, Seed: seed, Saved: p.saved})
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	r.stop = stop
	go func() { r.done <- w.live(ctx, r) }()
	p.up = r
	w.tellRunning()
}

// saveEvery is how often replicas save their state.
const saveEvery = time.Minute

// save has a replica save what it does from time to time, if that is kept.
func (w *world) save(p *place) {
	if r := p.up; r != nil && w.keeps() && !time.Now().Before(r.saves) {
		p.saved, r.saves = r.leases.Save(), time.Now().Add(saveEvery)
	}
}

// keeps reports whether what replicas save outlives them.
func (w *world) keeps() bool {
	return slices.ContainsFunc(w.s.Faults, func(f chaos.Fault) bool { return f.Keep })
}

// tellRunning lets clients know which replicas there are.
func (w *world) tellRunning() {
	var all []*replica
	for _, p := range w.places {
		if p.up != nil {
			all = append(all, p.up)
		}
	}
	w.running.Store(&all)
}

// live runs a replica's parts until ctx ends, the mesh last.
func (w *world) live(ctx context.Context, r *replica) error {
	inMesh, leave := context.WithCancel(context.Background())
	defer leave()
	member, agreed := make(chan error, 1), make(chan error, 1)
	go func() { member <- r.node.Run(inMesh) }()
	go func() { agreed <- r.leases.Run(ctx) }()
	for {
		select {
		case <-ctx.Done():
			err := <-agreed
			leave()
			return cmp.Or(err, <-member)
		case <-time.After(readEvery):
		}
		w.read(r)
	}
}

const (
	readEvery = 20 * time.Millisecond
	// readBatches bounds what is read of an engine at a time.
	readBatches = 64
)

// read takes from the engines that are a replica's to read what it lacks.
func (w *world) read(r *replica) {
	for _, e := range w.engines {
		id, batches, up := e.said()
		if !up {
			continue
		}
		r.node.Do(func(now clock.Instant, c *core.Core) {
			if !c.Reads(id.Target.Worker) {
				return
			}
			c.Booted(now, id.Target, id.Boot, "")
			s, err := c.Open(now, id, false)
			if err != nil {
				return
			}
			for n := 0; n < readBatches && s.Next() < uint64(len(batches)); n++ {
				if batches[s.Next()] == nil {
					r.miss(now, c, id, s.Next(), batches)
					return
				}
				if _, err := c.Publish(now, id, false, s.Next(), batches[s.Next()]); err != nil {
					return
				}
			}
		})
	}
}

// miss says, once, that an engine can't give batches from one on any more. That
// shows with the next batch that it can give.
func (r *replica) miss(now clock.Instant, c *core.Core, id crdt.StreamID, from uint64, batches [][]kv.Op) {
	known := slices.IndexFunc(batches[from:], func(b []kv.Op) bool { return b != nil })
	if lost := (crdt.Range{From: from, To: from + uint64(known) - 1}); known > 0 && r.missing[id] != lost {
		r.missing[id] = lost
		_ = c.Lost(now, id, false, lost) // as many streams are held as may be: then none is read
	}
}

// stop ends the life of a place: as a crash does, or with a goodbye.
func (w *world) stop(p *place, crash bool) {
	if crash {
		p.up.endpoint.Crash()
	}
	r := p.up
	p.up = nil
	w.tellRunning()
	r.stop()
	w.ending.Go(func() { // beside the play: one that has crashed is gone for all others at once
		if err := <-r.done; err != nil && !crash {
			w.t.Errorf("%s: %v", r.name, err)
		}
	})
}

// keptMarks is how many of a stream's marks a sample has.
const keptMarks = 8

// generationShift makes a generation and an index one number that grows with both.
const generationShift = 40

// sample says how a place stands.
func (w *world) sample(p *place) chaos.Sample {
	x := chaos.Sample{At: w.now(), Replica: p.n, Leader: -1}
	r := p.up
	if r == nil {
		return x
	}
	x.Live, x.Name, x.Members, x.Joined = true, r.name, []string{r.name}, []string{}
	r.node.Do(func(now clock.Instant, c *core.Core) {
		for _, peer := range c.Peers(now) {
			if peer.Alive {
				x.Members = append(x.Members, peer.Name)
			}
			if peer.Up {
				x.Joined = append(x.Joined, peer.Name)
			}
		}
		x.Corrupt, x.LostOps = c.Stats().Corrupt, c.Stats().LostOps
		for id, s := range c.Log().All() {
			if boot, known := c.Boot(id.Target); known && boot != id.Boot {
				continue
			}
			st := chaos.Stream{Worker: int(id.Target.Worker) - 1, Boot: uint64(id.Boot), Next: s.Next(), Skips: s.SkipsHash(), Digest: s.Digest(), Truncated: s.Truncated() != 0}
			marks := s.Marks()
			for _, m := range marks[max(0, len(marks)-keptMarks):] {
				st.Marks = append(st.Marks, chaos.Mark{Next: m.W + 1, Skips: m.Skips, Digest: m.Digest})
			}
			x.Streams = append(x.Streams, st)
		}
	})
	slices.Sort(x.Members)
	slices.SortFunc(x.Streams, func(a, b chaos.Stream) int { return cmp.Compare(a.Worker, b.Worker) })
	status := r.leases.Status()
	digest, err := strconv.ParseUint(status.Digest, 16, 64)
	if err != nil {
		w.t.Errorf("%s tells %q for a digest", r.name, status.Digest)
	}
	x.Leases, x.Applied = digest, status.Gen<<generationShift|status.Index
	return x
}
