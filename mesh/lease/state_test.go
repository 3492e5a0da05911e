package lease_test

import (
	"bytes"
	"errors"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/crdt"
	"github.com/rhizome-router/rhizome/kv"
	"github.com/rhizome-router/rhizome/mesh/lease"
)

func drawHolder(t *rapid.T) lease.Holder {
	return lease.Holder{
		Target: kv.Target{Worker: kv.WorkerID(rapid.Uint64Range(1, 3).Draw(t, "worker")), Rank: int16(rapid.IntRange(kv.NoRank, 1).Draw(t, "rank"))},
		Boot:   kv.Boot(rapid.Uint64Range(1, 2).Draw(t, "boot")),
	}
}

func drawOrigin(t *rapid.T) lease.Origin {
	return lease.Origin{Name: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "name"), Inc: rapid.Uint64Range(0, 1).Draw(t, "inc")}
}

func drawCluster(t *rapid.T) lease.Cluster {
	return lease.Cluster(rapid.Uint64Range(1, 3).Draw(t, "cluster"))
}

// drawCommand draws a command that means something to s.
func drawCommand(t *rapid.T, s *lease.State) lease.Command {
	c := lease.Command{Kind: lease.Kind(rapid.IntRange(int(lease.Acquire), int(lease.Ended)).Draw(t, "kind"))}
	switch c.Kind {
	case lease.Acquire, lease.Renew, lease.Revoke, lease.Bring:
		c.Key = lease.Key{rapid.ByteRange(0, 5).Draw(t, "key")}
		if l, ok := s.Lease(c.Key); ok && rapid.Bool().Draw(t, "knows") {
			c.Expect = l.Token
		}
		if c.Kind == lease.Bring {
			c.Cluster, c.Expect = drawCluster(t), lease.Token{Gen: 1, Index: rapid.Uint64Range(0, 9).Draw(t, "index")}
		}
		if c.Kind == lease.Revoke {
			c.From = rapid.Uint64Range(0, 9).Draw(t, "from")
		}
		if c.Kind == lease.Acquire || c.Kind == lease.Bring {
			c.Holder, c.Owner = drawHolder(t), rapid.Uint64Range(0, 2).Draw(t, "owner")
		}
	case lease.Fence:
		c.Origin = drawOrigin(t)
	case lease.Checkpoint:
		c.Lows = []lease.Low{{Origin: drawOrigin(t), Ticket: rapid.Uint64().Draw(t, "low")}}
		h := drawHolder(t)
		c.Marks = []lease.StreamMark{{Stream: crdt.StreamID{Target: h.Target, Boot: h.Boot}, Mark: crdt.Mark{W: 1, Skips: 2, Digest: rapid.Uint64().Draw(t, "digest")}}}
	case lease.Generation:
		c.Gen, c.Cluster, c.From = rapid.Uint64Range(0, 9).Draw(t, "gen"), drawCluster(t), rapid.Uint64Range(0, 9).Draw(t, "from")
	case lease.Ended:
		c.Cluster, c.Expect = drawCluster(t), lease.Token{Gen: 1, Index: rapid.Uint64Range(0, 9).Draw(t, "index")}
	}
	return c
}

func drawLog(t *rapid.T) [][]byte {
	s, numbers := lease.NewState(), map[lease.Origin]uint64{}
	var log [][]byte
	for i := range rapid.IntRange(0, 60).Draw(t, "entries") {
		p := lease.Proposal{From: drawOrigin(t)}
		switch rapid.IntRange(0, 5).Draw(t, "number") {
		case 0: // the leader's own
		case 1: // sent twice
			p.No = numbers[p.From]
		default:
			numbers[p.From]++
			p.No = numbers[p.From]
		}
		for range rapid.IntRange(0, 4).Draw(t, "commands") {
			p.Commands = append(p.Commands, drawCommand(t, s))
		}
		entry := p.Append(nil)
		if _, err := s.Apply(uint64(i+1), entry); err != nil {
			t.Fatalf("own proposal %+v: %v", p, err)
		}
		log = append(log, entry)
	}
	return log
}

// TestEqualLogsLeadToEqualStates, also by way of a snapshot at any place.
func TestEqualLogsLeadToEqualStates(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		log := drawLog(t)
		whole, resumed := lease.NewState(), lease.NewState()
		at := rapid.IntRange(0, len(log)).Draw(t, "snapshot at")
		for i, entry := range log {
			if i == at {
				var err error
				if resumed, err = lease.Restore(resumed.Append(nil)); err != nil {
					t.Fatal(err)
				}
			}
			a, _ := whole.Apply(uint64(i+1), entry)
			b, _ := resumed.Apply(uint64(i+1), entry)
			if !reflect.DeepEqual(a, b) {
				t.Fatalf("entry %d: %+v and %+v", i, a, b)
			}
		}
		if !bytes.Equal(whole.Append(nil), resumed.Append(nil)) || whole.Digest() != resumed.Digest() {
			t.Fatal("the states differ")
		}
	})
}

// TestGrantsGrow: whatever is proposed, each grant has a token greater than all
// grants of its workflow before, and a lease changes only by an event that says so.
func TestGrantsGrow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := lease.NewState()
		last, shown := map[lease.Key]lease.Token{}, map[lease.Key]lease.Lease{}
		for i, entry := range drawLog(t) {
			events, _ := s.Apply(uint64(i+1), entry)
			for _, e := range events {
				switch e.Kind {
				case lease.Granted:
					if !last[e.Lease.Key].Less(e.Lease.Token) {
						t.Fatalf("granted %+v after %+v", e.Lease, last[e.Lease.Key])
					}
					last[e.Lease.Key] = e.Lease.Token
					shown[e.Lease.Key] = e.Lease
				case lease.Renewed:
					shown[e.Lease.Key] = e.Lease
				case lease.Revoked:
					delete(shown, e.Lease.Key)
				}
			}
			if s.Len() != len(shown) {
				t.Fatalf("%d leases, the events tell of %d", s.Len(), len(shown))
			}
			for k, l := range shown {
				if got, ok := s.Lease(k); !ok || got != l {
					t.Fatalf("%+v, the events tell %+v", got, l)
				}
			}
		}
	})
}

// TestFencedProposeNothing: what a killed incarnation proposes does nothing.
func TestFencedProposeNothing(t *testing.T) {
	s := lease.NewState()
	dead, index := lease.Origin{Name: "a"}, uint64(0)
	apply := func(p lease.Proposal) []lease.Event {
		index++
		events, err := s.Apply(index, p.Append(nil))
		if err != nil {
			t.Fatal(err)
		}
		return events
	}
	acquire := []lease.Command{{Kind: lease.Acquire, Key: lease.Key{1}}}
	apply(lease.Proposal{Commands: []lease.Command{{Kind: lease.Fence, Origin: dead}}})
	if e := apply(lease.Proposal{From: dead, No: 1, Commands: acquire}); e[0].Kind != lease.Ignored || s.Len() != 0 {
		t.Errorf("a fenced incarnation's proposal came to %+v", e)
	}
	if e := apply(lease.Proposal{From: lease.Origin{Name: "a", Inc: 1}, No: 1, Commands: acquire}); e[0].Kind != lease.Granted {
		t.Errorf("its next incarnation's came to %+v", e)
	}
}

// TestIdleLeasesAreRevoked by the leader's clock, and those too many, and again if
// that was lost.
func TestIdleLeasesAreRevoked(t *testing.T) {
	at := func(s float64) clock.Instant { return clock.Instant(0).Add(time.Duration(s * float64(time.Second))) }
	x := lease.NewExpirer(10*time.Second, 3)
	grant := func(k byte) lease.Event {
		return lease.Event{Kind: lease.Granted, Lease: lease.Lease{Key: lease.Key{k}, Token: lease.Token{Index: uint64(k)}}}
	}
	x.Applied(at(0), []lease.Event{grant(1), grant(2)})
	x.Applied(at(5), []lease.Event{{Kind: lease.Renewed, Lease: grant(1).Lease}})
	if due := x.Due(at(9.9), 9); len(due) != 0 {
		t.Errorf("due early: %+v", due)
	}
	if due := x.Due(at(10), 9); len(due) != 1 || due[0].Key != (lease.Key{2}) || due[0].Expect.Index != 2 {
		t.Errorf("due: %+v, want the second", due)
	}
	if due := x.Due(at(11), 9); len(due) != 0 {
		t.Errorf("asked twice: %+v", due)
	}
	if due := x.Due(at(20), 1); len(due) != 1 || due[0].Key != (lease.Key{2}) {
		t.Errorf("not asked again when it was lost: %+v", due)
	}
	x = lease.NewExpirer(10*time.Second, 3)
	x.Applied(at(5), []lease.Event{grant(2), grant(1)})
	x.Applied(at(11), []lease.Event{{Kind: lease.Revoked, Lease: grant(2).Lease}, grant(3), grant(4), grant(5)})
	if due := x.Due(at(11), 9); len(due) != 1 || due[0].Key != (lease.Key{1}) {
		t.Errorf("one too many: %+v, want the first to go", due)
	}
	x.Rearm(at(20), []lease.Lease{grant(1).Lease})
	if due := x.Due(at(29), 9); len(due) != 0 {
		t.Errorf("a new leader did not grant the whole time again: %+v", due)
	}
}

// A lease that was used again before the log has its revocation for want of use
// stays.
func TestRenewedBeforeItsRevocation(t *testing.T) {
	s, x := lease.NewState(), lease.NewExpirer(time.Second, 9)
	now, index := clock.Instant(1), uint64(0)
	apply := func(c lease.Command) lease.Event {
		t.Helper()
		index++
		p := lease.Proposal{Commands: []lease.Command{c}}
		events, err := s.Apply(index, p.Append(nil))
		if err != nil {
			t.Fatal(err)
		}
		x.Applied(now, events)
		return events[0]
	}
	token := apply(lease.Command{Kind: lease.Acquire, Key: lease.Key{1}}).Lease.Token
	for _, renewed := range []bool{true, false} {
		now = now.Add(time.Second)
		due := x.Due(now, 9)
		if len(due) != 1 {
			t.Fatalf("due: %+v", due)
		}
		want := lease.Revoked
		if renewed { // while that is on its way
			apply(lease.Command{Kind: lease.Renew, Key: lease.Key{1}, Expect: token})
			want = lease.Conflict
		}
		if e := apply(due[0]); e.Kind != want {
			t.Errorf("renewed: %v; the revocation came to %+v", renewed, e)
		}
	}
	if s.Len() != 0 {
		t.Error("a lease that was idle is there still")
	}
}

func FuzzReadProposal(f *testing.F) {
	p := lease.Proposal{From: lease.Origin{Name: "a", Inc: 1}, No: 2, Commands: []lease.Command{
		{Kind: lease.Acquire, Key: lease.Key{1}, Holder: lease.Holder{Target: kv.Target{Worker: 3, Rank: kv.NoRank}, Boot: 4}, Owner: 5},
		{Kind: lease.Renew, Key: lease.Key{1}, Expect: lease.Token{Gen: 1, Index: 2}},
		{Kind: lease.Revoke, Key: lease.Key{1}, Expect: lease.Token{Gen: 1, Index: 2}, From: 3},
		{Kind: lease.Fence, Origin: lease.Origin{Name: "b"}},
		{Kind: lease.Checkpoint, Lows: []lease.Low{{Ticket: 7}}, Marks: []lease.StreamMark{{Mark: crdt.Mark{W: 8}}}},
		{Kind: lease.Generation, Gen: 9, Cluster: 10, From: 11},
		{Kind: lease.Bring, Key: lease.Key{1}, Expect: lease.Token{Gen: 1, Index: 2}, Owner: 5, Cluster: 10},
		{Kind: lease.Ended, Expect: lease.Token{Gen: 1, Index: 2}, Cluster: 10},
	}}
	f.Add(p.Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := lease.ReadProposal(b)
		if err != nil {
			if !errors.Is(err, lease.ErrProposal) {
				t.Errorf("the error is %v", err)
			}
			return
		}
		again, err := lease.ReadProposal(p.Append(nil))
		if err != nil || !reflect.DeepEqual(p, again) {
			t.Errorf("%+v was read again as %+v, %v", p, again, err)
		}
	})
}

func FuzzRestore(f *testing.F) {
	s := lease.NewState()
	p := lease.Proposal{From: lease.Origin{Name: "a"}, No: 1, Commands: []lease.Command{{Kind: lease.Acquire, Key: lease.Key{1}}}}
	_, _ = s.Apply(1, p.Append(nil))
	f.Add(s.Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := lease.Restore(b)
		if err != nil {
			if !errors.Is(err, lease.ErrSnapshot) {
				t.Errorf("the error is %v", err)
			}
			return
		}
		if again, err := lease.Restore(s.Append(nil)); err != nil || again.Digest() != s.Digest() {
			t.Errorf("read again: %v", err)
		}
	})
}
