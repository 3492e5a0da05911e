package sim

import (
	"slices"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/crdt"
	"github.com/rhizome-router/rhizome/index"
	"github.com/rhizome-router/rhizome/kv"
	"github.com/rhizome-router/rhizome/mesh/core"
	"github.com/rhizome-router/rhizome/route"
)

// coreOf is what a replica's node keeps.
type coreOf = core.Core

func noChange(index.Change) {}

// ReplicaState is how one replica stands.
type ReplicaState struct {
	Name    string
	Awake   bool // its process runs
	Members []core.PeerState
	Booked  int // requests, by its ledgers
	Index   index.Stats
	Healthy []int // workers
	Reads   []int // workers
	Streams []StreamState
	Lag     core.StreamsState
	Stats   core.Stats
	// Held are the promises of peers that it holds, Told those of its own that peers
	// were told of.
	Held, Told []route.Promise
}

// StreamState is how far someone is with a worker's log.
type StreamState struct {
	Worker    int
	Boot      kv.Boot
	Current   bool // it is the worker's present life, for all that is known
	Next      uint64
	Skips     []crdt.Range
	Digest    uint64
	Held      int // blocks in HBM
	Marks     []crdt.Mark
	Truncated bool
}

// Replica returns how a replica stands now.
func (s *Stage) Replica(n int) ReplicaState {
	r := s.w.replicas[n]
	if r.mesh == nil || r.dead {
		return ReplicaState{}
	}
	r.mesh.index.Expire(s.w.clock.Now()) // the router does it with its next decision
	state := ReplicaState{Name: r.mesh.name, Awake: r.awake(), Index: r.mesh.index.Stats()}
	state.Held, state.Told = r.mesh.router.HeldPromises(), r.mesh.router.ToldPromises()
	for i, m := range r.mesh.members {
		state.Booked += m.Ledger.Booked()
		if m.Healthy() {
			state.Healthy = append(state.Healthy, i)
		}
		if r.mesh.reads[i] {
			state.Reads = append(state.Reads, i)
		}
	}
	r.mesh.node.Do(func(now clock.Instant, c *core.Core) {
		state.Members, state.Lag, state.Stats = c.Peers(now), c.Streams(), c.Stats()
		for id, st := range c.Log().All() {
			boot, known := c.Boot(id.Target)
			state.Streams = append(state.Streams, StreamState{
				Worker: r.mesh.numbers[id.Target], Boot: id.Boot, Current: known && boot == id.Boot, Next: st.Next(), Skips: slices.Clone(st.Skips()),
				Digest: st.Digest(), Held: st.Held(kv.HBM), Marks: slices.Clone(st.Marks()), Truncated: st.Truncated() != 0})
		}
	})
	return state
}

// Truth is what a worker's present life said, all of it, and how many blocks its
// engine holds in HBM. ok is false while it is down.
func (s *Stage) Truth(worker int) (truth StreamState, held int, ok bool) {
	k := s.w.workers[worker]
	if !k.up {
		return StreamState{}, 0, false
	}
	k.journal.flush()
	st := s.scribes[worker]
	for range k.engine.Cached(kv.HBM) {
		held++
	}
	return StreamState{Worker: worker, Boot: kv.Boot(k.boot), Current: true, Next: st.Next(), Digest: st.Digest(), Held: st.Held(kv.HBM)}, held, true
}
