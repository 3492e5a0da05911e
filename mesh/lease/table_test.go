package lease

import (
	"log/slog"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/kv"
)

// The table that decisions read has the leases of the state, after every entry
// of a log.
func TestTableHasTheState(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newMachine(1, NewState(), func(*machine, []entry) {})
		if rapid.Bool().Draw(t, "restored") {
			s := NewState()
			s.put(&Lease{Key: Key{2}, Token: Token{1, 1}})
			m = newMachine(1, s, m.applied)
		}
		for index := range uint64(rapid.IntRange(1, 40).Draw(t, "entries")) {
			c := Command{Kind: Kind(rapid.IntRange(int(Acquire), int(Revoke)).Draw(t, "kind")), Key: Key{rapid.ByteRange(0, 4).Draw(t, "key")},
				Holder: Holder{Target: kv.Target{Worker: kv.WorkerID(rapid.Uint64Range(1, 3).Draw(t, "worker"))}}}
			if l, ok := m.state.Lease(c.Key); ok && rapid.Bool().Draw(t, "knows") {
				c.Expect = l.Token
			}
			m.apply(index+2, (&Proposal{Commands: []Command{c}}).Append(nil))
			held := m.table.Load().list(10, func(Key) bool { return true }, latest)
			got, want := make(map[Key]Lease), make(map[Key]Lease)
			for _, l := range held {
				got[l.Key] = l
			}
			for k, l := range m.state.leases { // order-free: a copy
				want[k] = *l
				if x, ok, at := m.table.Load().lease(k); !ok || x != *l || at != index+2 {
					t.Fatalf("read %+v, %v at %d, want %+v at %d", x, ok, at, *l, index+2)
				}
			}
			if !maps.Equal(got, want) {
				t.Fatalf("the table has %v, the state %v", got, want)
			}
			if !slices.IsSortedFunc(held, func(a, b Lease) int { return int(b.Used) - int(a.Used) }) {
				t.Fatalf("not the last used first: %v", held)
			}
		}
	})
}

// A decision reads leases while something holds the state for long: this test
// ends only because it doesn't wait.
func TestReadersDoNotWait(t *testing.T) {
	s := NewState()
	s.put(&Lease{Key: Key{1}, Token: Token{1, 1}})
	g, err := NewGroup(Config{}, Deps{Clock: new(clock.Virtual), Log: slog.New(slog.DiscardHandler), Saved: s.Append(nil)})
	if err != nil {
		t.Fatal(err)
	}
	m := g.table.Load()
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, found, fresh := g.Lease(Key{1}); !found || fresh || g.Fresh() {
		t.Errorf("found %v, fresh %v", found, fresh)
	}
}

// While a snapshot of many leases comes in parts it is not asked for again; it is
// shown once it is whole, and a part that is missing stops it.
func TestASnapshotComesInParts(t *testing.T) {
	s := NewState()
	s.put(&Lease{Key: Key{1}, Token: Token{1, 1}})
	s.index = 9
	b := s.Append(nil)
	g, err := NewGroup(Config{}, Deps{Clock: new(clock.Virtual), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	g.leader.Store(&lead{name: "leader", cluster: 5})
	third := len(b) / 3
	parts := []part{{5, 9, 0, 3, b[:third]}, {5, 9, 1, 3, b[third : 2*third]}, {5, 9, 2, 3, b[2*third:]}}
	g.takePart(10, "leader", parts[0])
	g.takePart(20, "leader", parts[2])
	if _, found, _ := g.Lease(Key{1}); found || g.asked != 10 {
		t.Fatalf("with a part missing: found %v, last waited for at %d", found, g.asked)
	}
	for i, p := range parts {
		g.takePart(clock.Instant(30+i), "leader", p)
	}
	if _, found, _ := g.Lease(Key{1}); !found || g.asked != 32 || g.table.Load().state.Digest() != s.Digest() {
		t.Errorf("whole: found %v, last waited for at %d", found, g.asked)
	}
}

// BenchmarkLease is a read of one among 200,000 leases, alone and while snapshots
// of all of them are made, as for a peer that lacks them.
func BenchmarkLease(b *testing.B) {
	s := NewState()
	var key Key
	for i := range 200_000 {
		key[0], key[1], key[2] = byte(i), byte(i>>8), byte(i>>16)
		s.put(&Lease{Key: key, Token: Token{1, uint64(i)}})
	}
	m := newMachine(1, s, func(*machine, []entry) {})
	read := func(b *testing.B) {
		for b.Loop() {
			if _, ok, _ := m.table.Load().lease(key); !ok {
				b.Fatal("not found")
			}
		}
	}
	b.Run("alone", read)
	b.Run("beside-snapshots", func(b *testing.B) {
		stop, ended := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(ended)
			for {
				select {
				case <-stop:
					return
				default:
					if _, err := m.Snapshot(); err != nil {
						b.Error(err)
					}
				}
			}
		}()
		read(b)
		close(stop)
		<-ended
	})
	b.Run("snapshot", func(b *testing.B) {
		for b.Loop() {
			if _, err := m.Snapshot(); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// All leases come page by page, each once.
func TestLeasesComeInPages(t *testing.T) {
	s := NewState()
	for i := range 25 {
		s.put(&Lease{Key: Key{byte(i * 7), byte(i)}, Token: Token{1, uint64(i)}, Used: uint64(i)})
	}
	g, err := NewGroup(Config{}, Deps{Clock: new(clock.Virtual), Log: slog.New(slog.DiscardHandler), Saved: s.Append(nil)})
	if err != nil {
		t.Fatal(err)
	}
	if d := g.Describe(3, "", false); len(d.Held) != 3 || d.Held[0].Index != 24 || d.Held[2].Index != 22 {
		t.Errorf("used last are %+v", d.Held)
	}
	seen, after := map[string]bool{}, ""
	for range 10 {
		d := g.Describe(4, after, true)
		for _, h := range d.Held {
			if seen[h.Key] || h.Key <= after {
				t.Errorf("%s comes after %s, or twice", h.Key, after)
			}
			seen[h.Key], after = true, h.Key
		}
	}
	if len(seen) != 25 {
		t.Errorf("%d of 25 leases came", len(seen))
	}
}
