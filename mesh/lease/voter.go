package lease

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/rhizome-router/rhizome/clock"
)

// voter is this replica's part in one Raft cluster: a server with a name that no
// other has had, whose log is in memory. A replica that has lost its log is
// another server; so no cluster can count on what a server has forgotten.
type voter struct {
	cluster Cluster
	id      string
	began   clock.Instant
	raft    *raft.Raft
	net     *raft.NetworkTransport
	machine *machine
	leads   chan bool // told of changes
	// ready: this replica leads, and its state has all that was agreed before;
	// rearm that it does so anew.
	ready, rearm atomic.Bool
	first        bool // it began the cluster

	done    chan struct{}
	watcher sync.WaitGroup
}

const (
	commitEvery    = 10 * time.Millisecond
	maxAppend      = 512
	snapshotAfter  = 8192
	trailing       = 4096
	applyTimeout   = time.Second
	changeTimeout  = 2 * time.Second
	raftNetTimeout = 2 * time.Second
	raftPool       = 3
)

// startVoter runs Raft as a server called id. first begins the cluster with this
// server alone; otherwise it waits for the leader to take it in.
func startVoter(p *port, cluster Cluster, id string, first bool, heartbeat time.Duration, m *machine, log *slog.Logger) (*voter, error) {
	c := raft.DefaultConfig()
	c.LocalID = raft.ServerID(id)
	c.HeartbeatTimeout, c.ElectionTimeout, c.LeaderLeaseTimeout = heartbeat, heartbeat, heartbeat/2
	c.CommitTimeout, c.MaxAppendEntries, c.BatchApplyCh = commitEvery, maxAppend, true
	c.SnapshotInterval, c.SnapshotThreshold, c.TrailingLogs = 5*time.Second, snapshotAfter, trailing
	c.ShutdownOnRemove, c.NoLegacyTelemetry = false, true
	level := hclog.Info
	if !log.Enabled(context.Background(), slog.LevelDebug) {
		level = hclog.Off // it would write many lines for nobody while a server is away
	}
	c.Logger = hclog.New(&hclog.LoggerOptions{Name: "raft", Output: lines{log}, Level: level, DisableTime: true})
	v := &voter{cluster: cluster, id: id, first: first, machine: m, leads: make(chan bool, 16), done: make(chan struct{})}
	c.NotifyCh = v.leads
	layer := p.open(cluster)
	v.net = raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		// No pipeline: one whose reader has left, for a leader of a later term was
		// heard, blocks its writer for ever, and with it the shutdown (raft 1.8.0;
		// the histories under faults found it).
		MaxRPCsInFlight: 1,
		Stream:          layer, MaxPool: raftPool, Timeout: raftNetTimeout, Logger: c.Logger,
	})
	store, snapshots := raft.NewInmemStore(), raft.NewInmemSnapshotStore()
	if first {
		err := raft.BootstrapCluster(c, store, store, snapshots, v.net, raft.Configuration{Servers: []raft.Server{{ID: c.LocalID, Address: nominal(id)}}})
		if err != nil {
			return nil, errors.Join(fmt.Errorf("begin cluster %016x: %w", uint64(cluster), err), v.net.Close())
		}
	}
	var err error
	if v.raft, err = raft.NewRaft(c, m, store, store, snapshots, v.net); err != nil {
		return nil, errors.Join(fmt.Errorf("run Raft as %s: %w", id, err), v.net.Close())
	}
	return v, nil
}

// lines passes Raft's lines on. What it warns of is part of its work when peers
// come and go; the group says what matters.
type lines struct{ log *slog.Logger }

func (w lines) Write(b []byte) (int, error) {
	w.log.Debug("raft", "line", strings.TrimSpace(string(b)))
	return len(b), nil
}

// stop ends it and waits.
func (v *voter) stop() error {
	v.ready.Store(false)
	end := v.raft.Shutdown()
	err := errors.Join(v.net.Close(), end.Error()) // dials wait until their layer is closed
	close(v.done)
	v.watcher.Wait()
	return err
}

// await does what waits for Raft, for as long as it may answer. What is in the
// queue of its log or of its state machine when it shuts down is told nothing
// any more (raft 1.8.0), so whoever waits for that is left behind, for ever and
// with nothing but it.
func (v *voter) await(do func() error) error {
	told := make(chan error, 1)
	go func() { told <- do() }()
	select {
	case err := <-told:
		return err
	case <-v.done:
		return raft.ErrRaftShutdown
	}
}

// servers returns the cluster's members as this server knows them.
func (v *voter) servers() []server {
	f := v.raft.GetConfiguration()
	if f.Error() != nil {
		return nil
	}
	var all []server
	for _, s := range f.Configuration().Servers {
		all = append(all, server{string(s.ID), s.Suffrage == raft.Voter})
	}
	return all
}

// machine is the state as Raft drives it.
type machine struct {
	cluster Cluster // whose log it is; 0 of what was saved
	mu      sync.RWMutex
	state   *State
	applied func(m *machine, entries []entry) // called within mu
	table   atomic.Pointer[table]             // the state's leases, read without mu
}

func newMachine(cluster Cluster, s *State, applied func(*machine, []entry)) *machine {
	m := &machine{cluster: cluster, state: s, applied: applied}
	m.table.Store(tableOf(s))
	return m
}

// entry is a proposal in the log and what came of it.
type entry struct {
	index  uint64
	bytes  []byte
	from   Origin // who proposed it, as its no-th; 0 for the leader's own
	no     uint64
	events []Event
}

var _ raft.BatchingFSM = (*machine)(nil)

// Apply is part of raft.FSM.
func (m *machine) Apply(l *raft.Log) any { return m.ApplyBatch([]*raft.Log{l})[0] }

// ApplyBatch is part of raft.BatchingFSM. The results are []Event.
func (m *machine) ApplyBatch(logs []*raft.Log) []any {
	m.mu.Lock()
	defer m.mu.Unlock()
	out, entries := make([]any, len(logs)), make([]entry, 0, len(logs))
	for i, l := range logs {
		if l.Type != raft.LogCommand {
			continue
		}
		e := m.apply(l.Index, l.Data)
		out[i] = e.events
		entries = append(entries, e)
	}
	if len(entries) > 0 {
		m.applied(m, entries)
	}
	return out
}

// apply applies one entry. It needs mu.
func (m *machine) apply(index uint64, b []byte) entry {
	p, err := ReadProposal(b)
	if err != nil {
		p = Proposal{} // the same nothing everywhere
	}
	events := m.state.Take(index, &p)
	m.table.Load().took(m.state, events)
	return entry{index, b, p.From, p.No, events}
}

// fenced reports whether an incarnation was killed.
func (m *machine) fenced(o Origin) bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.state.Fenced(o)
}

// Snapshot is part of raft.FSM.
func (m *machine) Snapshot() (raft.FSMSnapshot, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return frozen(m.state.Append(nil)), nil
}

// Restore is part of raft.FSM.
func (m *machine) Restore(r io.ReadCloser) error {
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil {
		return fmt.Errorf("read a snapshot of leases: %w", err)
	}
	s, err := Restore(b)
	if err != nil {
		return err
	}
	t := tableOf(s)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.state = s
	m.table.Store(t)
	m.applied(m, nil)
	return nil
}

// frozen is a snapshot to be written.
type frozen []byte

// Persist is part of raft.FSMSnapshot.
func (f frozen) Persist(sink raft.SnapshotSink) error {
	if _, err := sink.Write(f); err != nil {
		return errors.Join(err, sink.Cancel())
	}
	return sink.Close()
}

// Release is part of raft.FSMSnapshot.
func (frozen) Release() {}
