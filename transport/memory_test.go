package transport

import (
	"bytes"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/rhizome-router/rhizome/clock"
)

func memoryPair(t testing.TB, n *Network) (a, b *Endpoint) {
	t.Helper()
	for i, e := range []**Endpoint{&a, &b} {
		var err error
		if *e, err = n.Listen(fmt.Sprintf("10.0.0.%d:7400", i+1), Config{}, Options{Boot: fmt.Sprint("n", i)}); err != nil {
			t.Fatal(err)
		}
	}
	return a, b
}

// Whatever a network does short of cutting it, streams bring every byte, once
// and in order.
func TestStreamsAreReliable(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		chance := rapid.Float64Range(0, .5)
		millis := rapid.IntRange(0, 50)
		f := Faults{Loss: chance.Draw(rt, "loss"), Duplicate: chance.Draw(rt, "duplicate"), Reorder: chance.Draw(rt, "reorder"),
			Delay: time.Duration(millis.Draw(rt, "delay")) * time.Millisecond, Jitter: time.Duration(millis.Draw(rt, "jitter")) * time.Millisecond}
		sizes := rapid.SliceOfN(rapid.IntRange(0, 300<<10), 1, 12).Draw(rt, "sizes")
		seed := rapid.Uint64().Draw(rt, "seed")
		synctest.Test(t, func(t *testing.T) {
			n := NewNetwork(seed)
			defer n.Close()
			a, b := memoryPair(t, n)
			defer closed(t, b)
			defer closed(t, a)
			out := open(t, a, addr(b), 1) // before the faults: a dial has its time
			n.Faulty(f)
			var sender sync.WaitGroup
			sender.Go(func() {
				for i, size := range sizes {
					if err := out.Send(t.Context(), bytes.Repeat([]byte{byte(i)}, size)); err != nil {
						t.Error(err)
					}
				}
				out.Close()
			})
			in, err := b.Delta().Accept(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := in.Class(); err != nil {
				t.Fatal(err)
			}
			for i, size := range sizes {
				got, err := in.Receive()
				if err != nil || !bytes.Equal(got, bytes.Repeat([]byte{byte(i)}, size)) {
					t.Fatalf("frame %d: %d bytes, %v; want %d", i, len(got), err, size)
				}
			}
			if _, err := in.Receive(); err != io.EOF {
				t.Errorf("after the last frame: %v", err)
			}
			sender.Wait()
		})
	})
}

// gossiped sends numbered packets through a faulty network and returns what
// arrived, in order.
func gossiped(t *testing.T, seed uint64, f Faults, packets int) []string {
	var got []string
	synctest.Test(t, func(t *testing.T) {
		n := NewNetwork(seed)
		defer n.Close()
		a, b := memoryPair(t, n)
		defer closed(t, b)
		defer closed(t, a)
		if _, err := a.connect(t.Context(), GossipPlane, b.Self().Addr); err != nil {
			t.Fatal(err)
		}
		n.FaultyFrom(a.Self().Addr, b.Self().Addr, f)
		for i := range packets {
			if _, err := a.Gossip().WriteTo(fmt.Append(nil, i), addr(b)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Second)
		for len(b.Gossip().packets) > 0 {
			got = append(got, string((<-b.Gossip().packets).Buf))
		}
	})
	return got
}

// Packets are lost, doubled and overtaken about as often as they were told to,
// and alike for equal seeds.
func TestFaultsOfPackets(t *testing.T) {
	const sent = 200 // fits the receive queue
	inOrder := make([]string, sent)
	for i := range inOrder {
		inOrder[i] = fmt.Sprint(i)
	}
	if got := gossiped(t, 1, Faults{Delay: time.Millisecond}, sent); !slices.Equal(got, inOrder) {
		t.Errorf("without faults: %v", got)
	}
	if got := gossiped(t, 1, Faults{Cut: true}, sent); len(got) != 0 {
		t.Errorf("through a cut: %v", got)
	}
	if got := gossiped(t, 1, Faults{Loss: .3}, sent); len(got) < 115 || len(got) > 165 {
		t.Errorf("%d of %d arrived at a loss of 0.3", len(got), sent)
	}
	if got := gossiped(t, 1, Faults{Duplicate: .2}, sent); len(got) < 220 || len(got) > 256 {
		t.Errorf("%d arrived of %d at 0.2 duplicates", len(got), sent)
	}
	late := gossiped(t, 1, Faults{Delay: 5 * time.Millisecond, Reorder: .2}, sent)
	overtaken := 0
	for i := range late[1:] {
		if len(late[i]) > len(late[i+1]) || len(late[i]) == len(late[i+1]) && late[i] > late[i+1] {
			overtaken++
		}
	}
	if len(late) != sent || overtaken < 20 {
		t.Errorf("%d arrived, %d overtaken at 0.2 reordering", len(late), overtaken)
	}
	f := Faults{Delay: time.Millisecond, Jitter: 9 * time.Millisecond, Loss: .2, Duplicate: .2, Reorder: .2}
	one, again, other := gossiped(t, 7, f, sent), gossiped(t, 7, f, sent), gossiped(t, 8, f, sent)
	if !slices.Equal(one, again) || slices.Equal(one, other) {
		t.Error("equal seeds must give equal faults, and others others")
	}
}

// A cut one way is noticed at both ends, and one that is shorter than the
// silence a connection bears only delays.
func TestCuts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := NewNetwork(1)
		defer n.Close()
		a, b := memoryPair(t, n)
		defer closed(t, b)
		defer closed(t, a)
		n.Faulty(Faults{Delay: time.Millisecond})
		out := open(t, a, addr(b), 1)
		in, err := b.Delta().Accept(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := in.Class(); err != nil {
			t.Fatal(err)
		}
		n.FaultyFrom(a.Self().Addr, b.Self().Addr, Faults{Cut: true})
		if err := out.Send(t.Context(), []byte("late")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		n.Heal()
		began := time.Now()
		if got, err := in.Receive(); err != nil || string(got) != "late" || time.Since(began) > time.Second {
			t.Errorf("got %q, %v after %v", got, err, time.Since(began))
		}
		n.FaultyFrom(a.Self().Addr, b.Self().Addr, Faults{Cut: true})
		began = time.Now()
		if _, err := in.Receive(); err == nil {
			t.Error("received through a cut")
		}
		if d := time.Since(began); d > SilenceTimeout+HeartbeatInterval {
			t.Errorf("b noticed after %v", d)
		}
		<-out.session.Context().Done() // b told a; its way is open
		n.Heal()
		n.Partition([]netip.AddrPort{a.Self().Addr}, []netip.AddrPort{b.Self().Addr})
		if _, err := a.Delta().Open(t.Context(), addr(b)); err == nil || !strings.Contains(err.Error(), addr(b)+": no answer within 5s") {
			t.Errorf("dialled through a partition: %v", err)
		}
		n.Heal()
		time.Sleep(redialAfter)
		open(t, a, addr(b), 1)
	})
}

// A crash is silent until another endpoint has the address; that one answers
// with a reset.
func TestCrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := NewNetwork(1)
		defer n.Close()
		a, b := memoryPair(t, n)
		defer closed(t, a)
		if _, err := n.Listen(addr(b), Config{}, Options{Boot: "x"}); err == nil {
			t.Error("two endpoints at one address")
		}
		out := open(t, a, addr(b), 1)
		b.Crash()
		time.Sleep(2 * time.Second)
		if !out.session.alive() {
			t.Error("a crash was noticed at once")
		}
		again, err := n.Listen(addr(b), Config{}, Options{Boot: "again"})
		if err != nil {
			t.Fatal(err)
		}
		defer closed(t, again)
		began := time.Now()
		<-out.session.Context().Done()
		if d := time.Since(began); d > HeartbeatInterval || kindOf(out.session) != "reset" {
			t.Errorf("ended after %v for %q, want a reset within %v", d, kindOf(out.session), HeartbeatInterval)
		}
	})
}

// Connections that nobody uses are closed after UnusedTimeout, at both ends,
// and used ones are not.
func TestUnusedConnectionsAreClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := NewNetwork(1)
		defer n.Close()
		a, b := memoryPair(t, n)
		defer closed(t, b)
		defer closed(t, a)
		began := time.Now()
		out := open(t, a, addr(b), 1)
		if _, err := a.Gossip().WriteTo([]byte("x"), addr(b)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(UnusedTimeout - 2*time.Second)
		if liveSessions(a) != 2 {
			t.Fatalf("%d connections after %v, want 2", liveSessions(a), time.Since(began))
		}
		time.Sleep(4 * time.Second)
		if liveSessions(a) != 1 || liveSessions(b) != 1 {
			t.Errorf("%d and %d connections after %v, want the one with a stream", liveSessions(a), liveSessions(b), time.Since(began))
		}
		a.gossip.mu.Lock()
		if n := len(a.gossip.senders); n != 0 {
			t.Errorf("%d queues after %v", n, time.Since(began))
		}
		a.gossip.mu.Unlock()
		out.Close()
		in, err := b.Delta().Accept(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		in.Close()
		time.Sleep(UnusedTimeout + 2*time.Second)
		if liveSessions(a) != 0 || liveSessions(b) != 0 {
			t.Errorf("%d and %d connections are left", liveSessions(a), liveSessions(b))
		}
	})
}

// Endpoints of different clusters don't meet in memory either.
func TestClustersInMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := NewNetwork(1)
		defer n.Close()
		a, b := memoryPair(t, n)
		defer closed(t, b)
		defer closed(t, a)
		c, err := n.Listen("10.0.0.9:1", Config{Cluster: "other"}, Options{Boot: "c"})
		if err != nil {
			t.Fatal(err)
		}
		defer closed(t, c)
		if _, err := c.Delta().Open(t.Context(), addr(a)); err == nil || !strings.Contains(err.Error(), "cluster") {
			t.Errorf("error %v, want one about clusters", err)
		}
		if liveSessions(a)+liveSessions(b)+liveSessions(c) != 0 {
			t.Error("a session came of it")
		}
	})
}

// Strings of bytes that anyone may send make errors, and neither panics nor
// large allocations.
func FuzzFrames(f *testing.F) {
	f.Add(appendFrame(nil, []byte("payload")))
	f.Add(appendFrame(appendFrame(nil, nil), bytes.Repeat([]byte("x"), 300)))
	f.Add([]byte{0, 64, 0, 0, 1, 2, 3, 4, 5})
	f.Fuzz(func(t *testing.T, b []byte) {
		r := newFrameReader(bytes.NewReader(b), MaxFrameBytes)
		var again []byte
		for {
			payload, err := r.next()
			if err != nil {
				break
			}
			if cap(payload) > 4*max(len(payload), eagerBytes) {
				t.Fatalf("%d bytes allocated for %d", cap(payload), len(payload))
			}
			again = appendFrame(again, payload)
		}
		if !bytes.HasPrefix(b, again) {
			t.Error("what was read is not what was there")
		}
	})
}

func FuzzHello(f *testing.F) {
	f.Add([]byte(`{"boot":"a","addr":"10.0.0.1:7400","later":1}`))
	f.Add([]byte(`{"boot":"","addr":"[::]:0"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := parseHello(b)
		if err == nil && (!bootName.MatchString(h.Boot) || len(h.Boot) > maxBootBytes || h.Addr.Port() == 0 || !h.Addr.IsValid()) {
			t.Errorf("took %+v", h)
		}
	})
}

// Draws of one direction don't depend on those of another.
func TestPathsDrawIndependently(t *testing.T) {
	a, b := netip.MustParseAddrPort("10.0.0.1:1"), netip.MustParseAddrPort("10.0.0.2:1")
	n := &Network{seed: 3, paths: make(map[path]*pathState)}
	want := clock.Rand(3, a.String()+">"+b.String()).Uint64()
	n.path(b, a).rand.Uint64()
	if got := n.path(a, b).rand.Uint64(); got != want {
		t.Errorf("drew %d, want %d", got, want)
	}
}

// A peer that gave up a connection without our knowing, and dials again, is
// answered on its new one.
func TestPeerThatDialsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := NewNetwork(1)
		defer n.Close()
		a, b := memoryPair(t, n)
		defer closed(t, b)
		defer closed(t, a)
		open(t, a, addr(b), 1)
		synctest.Wait()
		old, err := b.connect(t.Context(), DeltaPlane, a.Self().Addr)
		if err != nil {
			t.Fatal(err)
		}
		n.FaultyFrom(a.Self().Addr, b.Self().Addr, Faults{Cut: true})
		a.Drop(addr(b))
		synctest.Wait()
		n.Heal()
		open(t, a, addr(b), 1)
		synctest.Wait()
		now, err := b.connect(t.Context(), DeltaPlane, a.Self().Addr)
		if err != nil {
			t.Fatal(err)
		}
		if now == old || now.dialled || old.alive() || kindOf(old) != "replaced" {
			t.Errorf("the old connection stays in use (alive %v, ended for %q)", old.alive(), kindOf(old))
		}
	})
}
