package sim

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/crdt"
	"github.com/rhizome-router/rhizome/engine"
	"github.com/rhizome-router/rhizome/mesh"
	"github.com/rhizome-router/rhizome/mesh/core"
	"github.com/rhizome-router/rhizome/sim/policy"
)

// replicated is one of the product's several replicas: it shares what it knows
// by the mesh's own core, whose frames the world carries.
type replicated struct {
	*product
	name   string // unique to its life
	node   *mesh.Node
	frames []core.Message // to be carried
	reads  []bool         // whose events this replica reads, by worker
	lives  []int          // of the worker that is read, as its events tell
	nexts  []uint64       // the batch of it that comes next
	looked clock.Instant  // when reads was last asked for
	heard  clock.Instant  // when the peers' silence was
}

// replicaRingBytes bounds what a replica keeps for its peers to catch up with.
const replicaRingBytes = 16 << 20

func replicaName(i int) string { return fmt.Sprintf("replica-%03d", i) }

// newReplicated returns the replicas of a scenario that has several.
func newReplicated(sc *Scenario, cfg func(i int) productConfig) ([]*replicated, error) {
	var all []*replicated
	for i := range sc.Replicas {
		r, err := newLife(sc, replicaName(i), false, cfg(i))
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	for i, r := range all {
		for j := range all {
			if i != j {
				r.met(all[j].name)
			}
		}
		r.node.Do(func(_ clock.Instant, c *core.Core) { c.Settle() })
	}
	return all, nil
}

// newLife returns one replica; joins says that others may be there already.
func newLife(sc *Scenario, name string, joins bool, c productConfig) (*replicated, error) {
	n := sc.Fleet.Workers
	r := &replicated{name: name, reads: make([]bool, n), lives: make([]int, n), nexts: make([]uint64, n)}
	var err error
	r.node, err = mesh.New(mesh.Config{MaxRingBytes: replicaRingBytes}, mesh.Deps{
		Name: name, Joining: joins, Carry: func(m core.Message) { r.frames = append(r.frames, m) },
		Clock: c.Clock, Log: slog.New(slog.DiscardHandler), StreamLog: crdt.LogConfig{}, Seed: c.Seed})
	if err != nil {
		return nil, fmt.Errorf("simulated replica: %w", err)
	}
	c.Mesh = r.node
	if r.product, err = newProduct(sc, c); err != nil {
		return nil, err
	}
	return r, nil
}

// met says that a connection to a peer stands, lost that the peer is dead for
// all that this replica knows, down that the connection broke.
func (r *replicated) met(peer string) {
	r.node.Do(func(now clock.Instant, c *core.Core) { c.Up(now, peer) })
}

func (r *replicated) lost(peer string) {
	r.node.Do(func(now clock.Instant, c *core.Core) { c.Dead(now, peer) })
}

func (r *replicated) down(peer string) {
	r.node.Do(func(now clock.Instant, c *core.Core) { c.Down(now, peer) })
}

// receive takes a peer's frame.
func (r *replicated) receive(from string, frame []byte) (err error) {
	r.node.Do(func(now clock.Instant, c *core.Core) { err = c.Receive(now, from, frame) })
	return err
}

// How often a replica looks, as the product does it.
const (
	meshTick   = 5 * time.Millisecond
	listenTick = 50 * time.Millisecond
	turnTick   = 250 * time.Millisecond
)

// tick lets a replica say what it has to say.
func (r *replicated) tick(now clock.Instant) {
	r.router.Tell()
	if now.Sub(r.heard) >= listenTick {
		r.heard = now
		r.fleet.Listen()
	}
	r.node.Do(func(now clock.Instant, c *core.Core) { c.Tick(now) })
}

// turns begins to read the workers whose turn it has become, and ends the
// others. history returns what a worker's present life said.
func (r *replicated) turns(history func(worker int) (life int, batches []*policy.Batch)) {
	now := r.clock.Now()
	if r.looked != 0 && now.Sub(r.looked) < turnTick {
		return
	}
	r.looked = max(now, 1)
	for i, in := range r.inlets {
		reads := false
		r.node.Do(func(_ clock.Instant, c *core.Core) { reads = c.Reads(in.Member.Target.Worker) })
		if reads == r.reads[i] {
			continue
		}
		if r.reads[i] = reads; !reads {
			in.End()
			continue
		}
		life, batches := history(i)
		r.lives[i] = life
		r.nexts[i] = in.Begin(lifeOf(life))
		for _, b := range batches {
			if b.Seq >= r.nexts[i] {
				r.read(i, b)
			}
		}
		in.Feed(engine.FeedEvent{Kind: engine.FeedConnected})
	}
}

// lifeOf is the start of a worker's process, as its metrics tell it.
func lifeOf(life int) engine.Value { return engine.Value{Value: float64(life), Known: true} }

// Events implements [policy.Router].
func (r *replicated) Events(_ clock.Instant, worker int, b *policy.Batch) {
	if !r.reads[worker] {
		return
	}
	in := r.inlets[worker]
	if b.Life != r.lives[worker] {
		r.lives[worker], r.nexts[worker] = b.Life, b.Seq
		in.Feed(engine.FeedEvent{Kind: engine.FeedReset, Seq: b.Seq})
		in.Process(lifeOf(b.Life))
		in.Feed(engine.FeedEvent{Kind: engine.FeedConnected})
	}
	r.read(worker, b)
}

// read takes a batch of a worker that is read. Where batches before it can't be
// had any more, the cache is known anew from here on, as engine.Feed has it.
func (r *replicated) read(worker int, b *policy.Batch) {
	in := r.inlets[worker]
	if b.Seq > r.nexts[worker] {
		in.Feed(engine.FeedEvent{Kind: engine.FeedReset, Seq: b.Seq})
		in.Feed(engine.FeedEvent{Kind: engine.FeedConnected})
	}
	r.nexts[worker] = max(r.nexts[worker], b.Seq+1)
	in.Feed(engine.FeedEvent{Kind: engine.FeedBatch, Seq: b.Seq, Ops: b.Ops, Rank: -1})
}

// Up implements [policy.Router].
func (r *replicated) Up(_ clock.Instant, worker int, up bool) {
	in := r.inlets[worker]
	if !in.Member.SetHealthy(up) || !r.reads[worker] {
		return
	}
	if up {
		in.Feed(engine.FeedEvent{Kind: engine.FeedConnected})
	} else {
		in.Feed(engine.FeedEvent{Kind: engine.FeedReset})
	}
}
