package transport

import (
	"fmt"
	"io"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// journal is a state machine that remembers what was applied.
type journal struct {
	mu      sync.Mutex
	applied []string
}

func (j *journal) Apply(l *raft.Log) any {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.applied = append(j.applied, string(l.Data))
	return nil
}

func (j *journal) read() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.applied)
}

func (j *journal) Snapshot() (raft.FSMSnapshot, error) { return nil, raft.ErrNothingNewToSnapshot }
func (j *journal) Restore(r io.ReadCloser) error       { return r.Close() }

// voter is an endpoint with Raft on it.
type voter struct {
	*Endpoint
	raft    *raft.Raft
	net     *raft.NetworkTransport
	journal *journal
}

func startVoter(t *testing.T, e *Endpoint) *voter {
	t.Helper()
	v := &voter{Endpoint: e, journal: &journal{}}
	quiet := hclog.NewNullLogger()
	v.net = raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{Stream: e.Raft(), MaxPool: 2, Timeout: time.Second, Logger: quiet})
	c := raft.DefaultConfig()
	c.LocalID = raft.ServerID(e.Self().Boot)
	c.HeartbeatTimeout, c.ElectionTimeout, c.LeaderLeaseTimeout = 300*time.Millisecond, 300*time.Millisecond, 150*time.Millisecond
	c.Logger = quiet
	store := raft.NewInmemStore()
	var err error
	if v.raft, err = raft.NewRaft(c, v.journal, store, store, raft.NewDiscardSnapshotStore(), v.net); err != nil {
		t.Fatal(err)
	}
	return v
}

func (v *voter) stop(t *testing.T) {
	t.Helper()
	if err := v.raft.Shutdown().Error(); err != nil {
		t.Error(err)
	}
	if err := v.net.Close(); err != nil {
		t.Error(err)
	}
	closed(t, v.Endpoint)
}

// leaderOf waits for a leader among voters.
func leaderOf(t *testing.T, all []*voter) *voter {
	t.Helper()
	for range 1000 {
		for _, v := range all {
			if v.raft.State() == raft.Leader && v.raft.VerifyLeader().Error() == nil {
				return v
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("no leader in 10 s")
	return nil
}

// consensus is three voters that elect a leader, lose it to a partition, go on
// without it, and have one log again afterwards.
func consensus(t *testing.T, g ground) {
	var all []*voter
	var config raft.Configuration
	for i := range 3 {
		v := startVoter(t, g.listen(t, fmt.Sprint("v", i)))
		all = append(all, v)
		config.Servers = append(config.Servers, raft.Server{ID: raft.ServerID(v.Self().Boot), Address: raft.ServerAddress(addr(v.Endpoint))})
	}
	if err := all[0].raft.BootstrapCluster(config).Error(); err != nil {
		t.Fatal(err)
	}
	var want []string
	apply := func(v *voter, n int) {
		t.Helper()
		for range n {
			want = append(want, fmt.Sprint("entry ", len(want)))
			if err := v.raft.Apply([]byte(want[len(want)-1]), 5*time.Second).Error(); err != nil {
				t.Fatal(err)
			}
		}
	}
	first := leaderOf(t, all)
	apply(first, 20)
	var rest []*voter
	for _, v := range all {
		if v != first {
			rest = append(rest, v)
		}
	}
	for _, v := range rest {
		g.partition([]netip.AddrPort{first.Self().Addr}, []netip.AddrPort{v.Self().Addr})
	}
	cut := time.Now()
	second := leaderOf(t, rest)
	t.Logf("a new leader %v after the cut", time.Since(cut).Round(time.Millisecond))
	apply(second, 20)
	time.Sleep(10 * time.Second) // past the silence that connections bear
	g.heal()
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		if slices.Equal(first.journal.read(), want) {
			t.Logf("one log again %v after the partition", time.Since(began).Round(time.Millisecond))
			break
		}
		if time.Since(began) > 10*time.Second {
			t.Fatalf("the old leader has %d entries, want %d", len(first.journal.read()), len(want))
		}
	}
	for _, v := range all {
		v.stop(t)
	}
	settle()
}

func TestRaftInMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newInMemory(1)
		defer g.Close()
		consensus(t, g)
	})
}

func TestRaftInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { consensus(t, newBubble()) })
}
