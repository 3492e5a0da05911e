package lease

import (
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/raft"
)

// freshFor is how long what the leader said last makes the local table more than
// a hint.
const freshFor = 2 * time.Second

// Server is one that votes, or is about to.
type Server struct {
	ID    string `json:"id"`
	Voter bool   `json:"voter"`
}

// Status is how a replica stands with what is agreed on.
type Status struct {
	// Cluster names the run of Raft that is followed, Gen and Index how far what
	// is known of it goes.
	Cluster string `json:"cluster,omitempty"`
	Gen     uint64 `json:"generation"`
	Index   uint64 `json:"index"`
	// Leader is the replica that leads, empty while none is heard of.
	Leader string `json:"leader,omitempty"`
	Leads  bool   `json:"leads"`
	// Server is this replica's name in Raft; empty where it has no vote.
	Server  string   `json:"server,omitempty"`
	Term    uint64   `json:"term,omitempty"`
	Servers []Server `json:"servers,omitempty"` // as the leader last told
	// Fresh says that the table has all that the leader told within 2 s; else
	// leases are hints. Lag is how many entries of the log are missing.
	Fresh  bool   `json:"fresh"`
	Lag    uint64 `json:"lag"`
	Leases int    `json:"leases"`
	Digest string `json:"digest"` // equal for equal leases
	// What happened since the replica started.
	Grants        uint64 `json:"grants"`
	Renewals      uint64 `json:"renewals"`
	Conflicts     uint64 `json:"conflicts"`
	Revocations   uint64 `json:"revocations"`
	Fences        uint64 `json:"fences"`
	Checkpoints   uint64 `json:"checkpoints"`
	Dropped       uint64 `json:"dropped"` // proposals
	Limited       uint64 `json:"limited"` // new leases past an API key's limit
	Snapshots     uint64 `json:"snapshots"`
	LeaderChanges uint64 `json:"leader_changes"`
	// SpuriousElections are those that this replica won though the leader before
	// was there all the time: see elections.
	SpuriousElections uint64 `json:"spurious_elections"`
	Incarnation       uint64 `json:"incarnation"`
}

// Status returns how this replica stands.
func (g *Group) Status() Status {
	now := g.deps.Clock.Now()
	m := g.table.Load()
	m.mu.RLock()
	s := Status{Gen: m.state.Gen(), Index: m.state.Index(), Leases: m.state.Len(), Digest: fmt.Sprintf("%016x", m.state.Digest())}
	m.mu.RUnlock()
	if l := g.leader.Load(); l != nil {
		s.Cluster = fmt.Sprintf("%016x", uint64(l.cluster))
		s.Servers = l.servers
		if now.Sub(l.at) < freshFor {
			s.Leader = l.name
			s.Lag = l.index - min(l.index, s.Index)
			s.Fresh = s.Lag == 0 && Cluster(g.shown.Load()) == l.cluster
		}
	}
	if v := g.voter.Load(); v != nil {
		s.Server, s.Term, s.Leads = v.id, v.raft.CurrentTerm(), v.ready.Load() && v.raft.State() == raft.Leader
	}
	c := &g.counts
	s.Grants, s.Renewals, s.Conflicts, s.Revocations = c.event[Granted].Load(), c.event[Renewed].Load(), c.event[Conflict].Load(), c.event[Revoked].Load()
	s.Fences, s.Checkpoints = c.event[Fenced].Load(), c.event[Checkpointed].Load()
	s.Dropped, s.Limited, s.Snapshots, s.LeaderChanges, s.Incarnation = c.dropped.Load(), c.limited.Load(), c.snapshots.Load(), c.changes.Load(), g.inc.Load()
	s.SpuriousElections = c.spurious.Load()
	return s
}

// Fresh reports whether what is known here is all that was agreed: see
// [Status.Fresh].
func (g *Group) Fresh() bool {
	_, _, fresh := g.Lease(Key{})
	return fresh
}

// TTL is how long a lease lasts unused.
func (g *Group) TTL() time.Duration { return g.cfg.TTL }

// Lease returns a workflow's lease as far as is known here, and whether that is
// more than a hint: the leader was heard within 2 s, and nothing it told is
// missing. It waits for nobody.
func (g *Group) Lease(k Key) (l Lease, found, fresh bool) {
	l, found, index := g.table.Load().table.Load().lease(k)
	to := g.leader.Load()
	return l, found, to != nil && index >= to.index && g.deps.Clock.Now().Sub(to.at) < freshFor && Cluster(g.shown.Load()) == to.cluster
}

// Description is what operators are shown.
type Description struct {
	// Enabled is false for a replica that agrees with nobody: no mesh is
	// configured.
	Enabled bool `json:"enabled"`
	Status
	// Held are leases, those used last or, where that was asked for, by key.
	Held []Held `json:"held"`
}

// Held is a lease as operators are shown it. Workflows' names are not kept.
type Held struct {
	Key    string `json:"key"`
	Target string `json:"target"` // kv.Target as text
	Boot   string `json:"boot"`
	Gen    uint64 `json:"generation"` // of the token
	Index  uint64 `json:"index"`
}

// Describe returns how this replica stands, and leases, limit at most: those used
// last, or byKey those whose keys, as text, are after a given one. A nil group
// describes that there is none.
func (g *Group) Describe(limit int, after string, byKey bool) Description {
	if g == nil {
		return Description{Held: []Held{}}
	}
	d := Description{Enabled: true, Status: g.Status(), Held: []Held{}}
	order := latest
	if byKey {
		order = func(a, b Lease) int { return slices.Compare(a.Key[:], b.Key[:]) }
	}
	past := func(k Key) bool { return !byKey || hex.EncodeToString(k[:]) > after }
	for _, l := range g.table.Load().table.Load().list(limit, past, order) {
		d.Held = append(d.Held, Held{fmt.Sprintf("%x", l.Key), l.Holder.Target.String(), fmt.Sprintf("%016x", uint64(l.Holder.Boot)), l.Token.Gen, l.Token.Index})
	}
	return d
}
