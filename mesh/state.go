package mesh

import (
	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/mesh/core"
)

// State is how a replica stands in the mesh, as the admin API shows it. Counts
// are since its start.
type State struct {
	// Enabled is false for a replica that shares with nobody; all else is empty
	// then.
	Enabled bool   `json:"enabled"`
	Replica string `json:"replica,omitempty"`
	Address string `json:"address,omitempty"`
	Cluster string `json:"cluster,omitempty"`
	// Minor is the version of the protocol that it speaks within the major one,
	// LeastMinor the least that a member does: what a later one has is not used.
	Minor      byte `json:"minor"`
	LeastMinor byte `json:"least_minor"`
	// Warm says that it has caught up with a peer once, or has looked for one
	// everywhere and found none.
	Warm bool `json:"warm"`
	// Members are the other replicas; those that died or left stay for a minute.
	Members []Member `json:"members"`
	Streams Streamed `json:"streams"`
	// Pages is how many values are known that replicas, this one included, say of
	// themselves, by kind.
	Pages map[string]int `json:"pages"`
	// SentBytes is what was sent to all peers together, by class (live: what has
	// just happened; sync: what a peer lacked), SentPageBytes that part of it
	// that replicas say of themselves, by kind.
	SentBytes     map[string]uint64 `json:"sent_bytes"`
	SentPageBytes map[string]uint64 `json:"sent_page_bytes"`
	// QueuedBytes waits to be sent, of at most MaxQueueBytes; DroppedFrames had
	// no room.
	QueuedBytes   int64  `json:"queued_bytes"`
	MaxQueueBytes int    `json:"max_queue_bytes"`
	DroppedFrames uint64 `json:"dropped_frames"`
	// AppliedBlocks came in peers' batches; DuplicateBatches were here already.
	AppliedBlocks    uint64 `json:"applied_blocks"`
	DuplicateBatches uint64 `json:"duplicate_batches"`
	// Resyncs is how often a peer was asked for what was missing; snapshots are
	// those that were sent, and taken, because that was less than the log.
	Resyncs       uint64 `json:"resyncs"`
	SnapshotsSent uint64 `json:"snapshots_sent"`
	SnapshotsUsed uint64 `json:"snapshots_used"`
	// Corruption counts equal logs that led to different contents: it must be 0.
	// Incomplete counts comparisons of logs that lost different batches, LostOps
	// batches given up for a peer's log.
	Corruption uint64 `json:"corruption"`
	Incomplete uint64 `json:"incomplete"`
	LostOps    uint64 `json:"lost_ops"`
	// Diverged counts marks of streams that replicas agreed on and that the
	// streams here contradict: it must be 0.
	Diverged uint64 `json:"diverged"`
	// TableRows is how many rows the tables have that all replicas write, Wants
	// how many things peers asked for and were not sent yet, AssemblingBytes what
	// came of snapshots that are not whole yet, Addresses how many are known where
	// replicas are, were or may be.
	TableRows       map[string]int `json:"table_rows"`
	Wants           int            `json:"wants"`
	AssemblingBytes int            `json:"assembling_bytes"`
	Addresses       int            `json:"addresses"`
	// Refused counts what was over a bound.
	Refused uint64 `json:"refused"`
}

// Member is what a replica knows of another one.
type Member struct {
	Name    string `json:"name"`
	Address string `json:"address,omitempty"` // empty once it is gone
	// Alive says that it is a member, Up that a connection to it stands.
	Alive bool `json:"alive"`
	Up    bool `json:"up"`
	// Minor is the version of the protocol that it speaks within the major one.
	Minor byte `json:"minor"`
	// SilentSeconds is how long ago it sent anything.
	SilentSeconds float64 `json:"silent_seconds"`
	// Wants is how many things it asked for and was not sent yet.
	Wants int `json:"wants"`
}

// Streamed is how a replica stands with the logs of engines' KV events.
type Streamed struct {
	Held         int    `json:"held"`
	Behind       int    `json:"behind"`      // of which a peer has more
	LagBatches   uint64 `json:"lag_batches"` // that peers are ahead, of all together
	PendingBytes int    `json:"pending_bytes"`
	Unkeyed      int    `json:"unkeyed"`
	Truncated    int    `json:"truncated"`
	RingBytes    int    `json:"ring_bytes"`
	BaseBytes    int64  `json:"base_bytes"`
	// Lagging are those furthest behind, at most 32.
	Lagging []Lagging `json:"lagging,omitempty"`
}

// Lagging is a stream that is behind a peer's.
type Lagging struct {
	Target  string `json:"target"`
	Batches uint64 `json:"batches"`
	Waiting int    `json:"waiting"`
}

// maxLagging bounds Streamed.Lagging.
const maxLagging = 32

var classNames = [...]string{core.Live: "live", core.Sync: "sync"}

// State returns how the node stands.
func (n *Node) State() (s State) {
	if n.alone() {
		return State{Members: []Member{}}
	}
	self := n.deps.Endpoint.Self()
	s = State{
		Members: []Member{},
		Enabled: true, Replica: self.Boot, Address: self.Addr.String(), Cluster: n.cfg.Transport.Cluster, Warm: n.warm(),
		SentBytes: make(map[string]uint64), SentPageBytes: make(map[string]uint64), Pages: make(map[string]int),
		TableRows: make(map[string]int), Addresses: n.known.size(), Minor: n.meta.minor,
		QueuedBytes: n.queued.Load(), MaxQueueBytes: n.cfg.MaxQueueBytes, DroppedFrames: n.dropped.Load(),
	}
	n.Do(func(now clock.Instant, c *core.Core) {
		for _, p := range c.Peers(now) {
			m := Member{Name: p.Name, Alive: p.Alive, Up: p.Up, SilentSeconds: p.Silent.Seconds(), Wants: p.Wants}
			if l := n.lanes[p.Name]; l != nil {
				m.Address = l.addr.String()
			}
			if known := n.members[p.Name]; known != nil {
				m.Minor = known.Minor
			}
			s.Members = append(s.Members, m)
		}
		s.LeastMinor = n.leastMinor()
		s.count(c)
	})
	return s
}

// count fills in what the core counts.
func (s *State) count(c *core.Core) {
	st := c.Stats()
	for class, bytes := range st.BytesByClass {
		s.SentBytes[classNames[class]] = bytes
	}
	for k, bytes := range st.BytesByKind {
		s.SentPageBytes[core.Kind(k).String()] = bytes
	}
	for k, n := range c.Values() {
		s.Pages[core.Kind(k).String()] = n
	}
	held := c.Held()
	for t, n := range held.TableRows {
		s.TableRows[core.Table(t).String()] = n
	}
	s.Wants, s.AssemblingBytes = held.Wants, held.SnapshotBytes
	s.AppliedBlocks, s.DuplicateBatches = st.Ops, st.Duplicates
	s.Resyncs, s.SnapshotsSent, s.SnapshotsUsed = st.Asked, st.SnapshotsSent, st.SnapshotsUsed
	s.Corruption, s.Incomplete, s.LostOps, s.Refused = st.Corrupt, st.Incomplete, st.LostOps, c.Refused()
	s.Diverged = st.Diverged
	streams := c.Streams()
	s.Streams = Streamed{
		Held: streams.Held, Behind: len(streams.Behind), Unkeyed: streams.Unkeyed, Truncated: streams.Log.Truncated,
		PendingBytes: streams.Log.PendingBytes, RingBytes: streams.Log.RingBytes, BaseBytes: streams.Log.BaseBytes,
	}
	for i, lag := range streams.Behind {
		s.Streams.LagBatches += lag.Batches
		if i < maxLagging {
			s.Streams.Lagging = append(s.Streams.Lagging, Lagging{lag.ID.Target.String(), lag.Batches, lag.Waiting})
		}
	}
}
