package transport

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"
)

// within fails unless ch is closed within a bound.
func within(t *testing.T, what string, bound time.Duration, ch <-chan struct{}) {
	t.Helper()
	began := time.Now()
	select {
	case <-ch:
		t.Logf("%s: after %v", what, time.Since(began).Round(time.Millisecond))
	case <-time.After(bound):
		t.Fatalf("%s: not within %v", what, bound)
	}
}

// liveness is what a replica learns of peers that die, restart, move or are cut
// off. slack is what a busy machine may add to the time that this takes.
func liveness(t *testing.T, g place, cut func(a, b *Endpoint), slack time.Duration) {
	a, b := g.listen(t, "a"), g.listen(t, "b1")
	// A peer that restarts at its old address answers the next packet with a
	// reset: a heartbeat later the old connection is over.
	c := channel(t, a, addr(b))
	at := addr(b)
	b.Crash()
	b = g.listenAt(t, "b2", at)
	within(t, "restarted", HeartbeatInterval+100*time.Millisecond+slack, c.Done())
	if why := kindOf(c.session); why != "reset" && slack == 0 {
		t.Errorf("it ended for %q, want a reset", why)
	}
	// A new connection is made at once.
	if c = channel(t, a, at); c.Peer() != b.Self() {
		t.Errorf("connected with %v, want %v", c.Peer(), b.Self())
	}
	// One that dies without a word is given up after SilenceTimeout. Moved to
	// another address, it is reached there meanwhile.
	b.Crash()
	b = g.listen(t, "b3")
	if moved := channel(t, a, addr(b)); moved.Peer() != b.Self() {
		t.Errorf("connected with %v, want %v", moved.Peer(), b.Self())
	}
	within(t, "dead", SilenceTimeout+100*time.Millisecond+slack, c.Done())
	if why := kindOf(c.session); why != "silent" {
		t.Errorf("it ended for %q, want silence", why)
	}
	// A cut is noticed at both ends.
	c = channel(t, a, addr(b))
	back := channel(t, b, addr(a))
	cut(a, b)
	within(t, "cut, one end", SilenceTimeout+100*time.Millisecond+slack, c.Done())
	within(t, "cut, the other end", HeartbeatInterval+slack, back.Done())
	closed(t, a)
	closed(t, b)
}

func TestLivenessInMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newInMemory(1)
		defer g.Close()
		liveness(t, g, func(a, b *Endpoint) { g.partition(addrsOf(a), addrsOf(b)) }, 0)
	})
}

func TestLivenessInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newBubble()
		liveness(t, g, func(a, b *Endpoint) { g.partition(addrsOf(a), addrsOf(b)) }, 0)
	})
}

// On sockets, in real time; a cut is the end of b here.
func TestLivenessOnSockets(t *testing.T) {
	t.Parallel()
	liveness(t, sockets{}, func(_, b *Endpoint) { b.Crash() }, patience)
}

// A network that swallows everything and then works again does so for
// connections, too.
func TestSwallowedPackets(t *testing.T) {
	t.Parallel()
	a, b := listen(t, "a"), listen(t, "b")
	p := newProxy(t, b.Self().Addr, func(int, []byte) {})
	c := channel(t, a, p.addr())
	p.setCut(true)
	within(t, "a's end", patience, c.Done())
	eventually(t, "b's end is over", func() bool { return liveSessions(b) == 0 })
	p.setCut(false)
	channel(t, a, p.addr())
}

func addrsOf(e *Endpoint) []netip.AddrPort { return []netip.AddrPort{e.Self().Addr} }

// channel connects, however often that takes: a machine may be too busy for a
// handshake in time.
func channel(t testing.TB, from *Endpoint, to string) *Channel {
	t.Helper()
	var c *Channel
	for end := time.Now().Add(patience); ; time.Sleep(redialAfter) {
		var err error
		if c, err = from.Delta().Open(t.Context(), to); err == nil {
			return c
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

// The same when the restarted peer is the one that dials: the old connection is
// replaced at once.
func TestRestartedPeerDials(t *testing.T) {
	onBoth(t, func(t *testing.T, listen func(string) *Endpoint) {
		a, b := listen("a"), listen("b1")
		c := channel(t, b, addr(a))
		eventually(t, "a knows b", func() bool { return liveSessions(a) == 1 })
		// What a new start of b at b's address would send.
		b2 := listen("b2")
		b2.advertise = b.advertise
		channel(t, b2, addr(a))
		within(t, "the old connection ends", patience, c.Done())
	})
}

// A peer that closes says so.
func TestClosedPeerIsNoticedAtOnce(t *testing.T) {
	onBoth(t, func(t *testing.T, listen func(string) *Endpoint) {
		a, b := listen("a"), listen("b")
		c := channel(t, a, addr(b))
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		within(t, "the connection ends", patience, c.Done())
		if why := kindOf(c.session); why != "peer" {
			t.Errorf("it ended for %q, want the peer", why)
		}
	})
}

// A dial that nobody answers says so, and what to look at.
func TestNobodyThere(t *testing.T) {
	t.Parallel()
	_, err := listen(t, "a").Delta().Open(soon(t), "127.0.0.1:9")
	if err == nil || !strings.Contains(err.Error(), "127.0.0.1:9: no answer within 5s") {
		t.Errorf("error %v", err)
	}
}

// Drop is for who knows better.
func TestDrop(t *testing.T) {
	onBoth(t, func(t *testing.T, listen func(string) *Endpoint) {
		a, b := listen("a"), listen("b")
		c := channel(t, a, addr(b))
		a.Drop(addr(b))
		within(t, "the connection ends", patience, c.Done())
		channel(t, a, addr(b))
	})
}

// Close waits for everything, also for what is going on.
func TestCloseWhileBusy(t *testing.T) {
	onBoth(t, func(t *testing.T, listen func(string) *Endpoint) {
		a, b := listen("a"), listen("b")
		out := open(t, a, addr(b), 1)
		in := accept(t, b)
		done := make(chan error, 3)
		go func() {
			for {
				if err := out.Send(soon(t), make([]byte, 1<<20)); err != nil {
					done <- err
					return
				}
			}
		}()
		go func() {
			_, err := in.Class()
			for err == nil {
				_, err = in.Receive()
			}
			done <- err
		}()
		go func() { _, err := b.Delta().Accept(soon(t)); done <- err }()
		_, _ = a.Gossip().WriteTo([]byte("x"), "127.0.0.1:9") // a dial that nobody answers
		for _, e := range []*Endpoint{a, b} {
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		}
		for range cap(done) {
			if err := <-done; err == nil || err == io.EOF {
				t.Errorf("ended with %v, want an error", err)
			}
		}
		if _, err := a.Delta().Open(soon(t), addr(b)); err == nil {
			t.Error("a closed endpoint dials")
		}
	})
}

// Packets are never waited for, and errors are what memberlist understands.
func TestGossipPackets(t *testing.T) {
	onBoth(t, func(t *testing.T, listen func(string) *Endpoint) {
		a, b := listen("a"), listen("b")
		want := strings.Repeat("p", GossipPacketBytes)
		if _, err := a.Gossip().WriteToAddress([]byte(want), memberlist.Address{Addr: addr(b), Name: "b"}); err != nil {
			t.Fatal(err)
		}
		select {
		case p := <-b.Gossip().PacketCh():
			if string(p.Buf) != want || p.From.String() != addr(a) || p.Timestamp.IsZero() {
				t.Errorf("got %d bytes from %v at %v", len(p.Buf), p.From, p.Timestamp)
			}
		case <-time.After(patience):
			t.Fatal("no packet")
		}
		// The way back takes the same connection.
		if _, err := b.Gossip().WriteTo([]byte("back"), addr(a)); err != nil {
			t.Fatal(err)
		}
		<-a.Gossip().PacketCh()
		if liveSessions(a) != 1 || liveSessions(b) != 1 {
			t.Errorf("%d and %d connections", liveSessions(a), liveSessions(b))
		}
		// A peer that isn't there costs no time, however many packets.
		began := time.Now()
		for i := range 3 * sendQueuePackets {
			if _, err := a.Gossip().WriteTo(fmt.Append(nil, i), "127.0.0.1:9"); err != nil {
				t.Fatal(err)
			}
		}
		if d := time.Since(began); d > time.Second {
			t.Errorf("%d packets for nobody took %v", 3*sendQueuePackets, d)
		}
		if n := value(t, a.metrics.dropped.WithLabelValues("send_queue")); n < sendQueuePackets {
			t.Errorf("%v packets were dropped at a full queue, want %d or more", n, sendQueuePackets)
		}
		for what, send := range map[string]func() error{
			"a name":    func() error { _, err := a.Gossip().WriteTo([]byte("x"), "b:7400"); return err },
			"too large": func() error { _, err := a.Gossip().WriteTo(make([]byte, maxDatagramBytes+1), addr(b)); return err },
			"no dial":   func() error { _, err := a.Gossip().DialTimeout("127.0.0.1:9", 10*time.Millisecond); return err },
		} {
			if _, ok := send().(*net.OpError); !ok {
				t.Errorf("%s: %T, want *net.OpError", what, send())
			}
		}
	})
}

// A plane that is closed turns streams away; the others go on.
func TestClosedPlanes(t *testing.T) {
	onBoth(t, func(t *testing.T, listen func(string) *Endpoint) {
		a, b := listen("a"), listen("b")
		if err := b.Raft().Close(); err != nil {
			t.Fatal(err)
		}
		if err := b.Gossip().Shutdown(); err != nil {
			t.Fatal(err)
		}
		for name, dial := range map[string]func() (net.Conn, error){
			"raft":   func() (net.Conn, error) { return a.Raft().Dial(raft.ServerAddress(addr(b)), patience) },
			"gossip": func() (net.Conn, error) { return a.Gossip().DialTimeout(addr(b), patience) },
		} {
			c, err := dial()
			if err != nil {
				t.Fatal(err)
			}
			_ = c.SetDeadline(time.Now().Add(patience))
			if _, err := c.Write([]byte("anybody?")); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%s: a stream to a closed plane: %v", name, err)
			}
			_ = c.Close()
		}
		if _, err := b.Raft().Dial(raft.ServerAddress(addr(a)), patience); err == nil {
			t.Error("a closed plane dials")
		}
		if _, err := b.Gossip().WriteTo(nil, addr(a)); err == nil {
			t.Error("a closed plane sends")
		}
		open(t, a, addr(b), 1)
		accept(t, b)
	})
}

// Close ends a Write that waits for a peer that doesn't read.
func TestCloseDuringWrite(t *testing.T) {
	onBoth(t, func(t *testing.T, listen func(string) *Endpoint) {
		a, b := listen("a"), listen("b")
		c, err := a.Raft().Dial(raft.ServerAddress(addr(b)), patience)
		if err != nil {
			t.Fatal(err)
		}
		failed := make(chan error, 1)
		go func() {
			for {
				if _, err := c.Write(make([]byte, streamWindowBytes)); err != nil {
					failed <- err
					return
				}
			}
		}()
		if _, err := b.Raft().Accept(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the window is full", func() bool {
			return value(t, a.metrics.streamBytes[RaftPlane][0]) >= streamWindowBytes
		})
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		select {
		case <-failed:
		case <-time.After(patience):
			t.Error("the write goes on")
		}
	})
}

// What the transport tells about itself, with labels of closed sets, is there
// while an endpoint is.
func TestMetrics(t *testing.T) {
	reg := prometheus.NewRegistry()
	a := listen(t, "a", func(_ *Config, o *Options) { o.Metrics = reg })
	b := listen(t, "b")
	if err := open(t, a, addr(b), 1).Send(soon(t), make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	if got := value(t, a.metrics.connections.WithLabelValues("delta")); got != 1 {
		t.Errorf("%v connections, want 1", got)
	}
	if got := value(t, a.metrics.bytes.WithLabelValues("delta", "sent")); got != 1000+frameHeaderBytes {
		t.Errorf("%v bytes sent, want %d", got, 1000+frameHeaderBytes)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	series := 0
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "rhizome_transport_") {
			t.Errorf("a metric named %s", f.GetName())
		}
		series += len(f.Metric)
	}
	if series < 10 || series > 60 {
		t.Errorf("%d series", series)
	}
	if _, err := Listen(Config{Listen: "127.0.0.1:0", Secrets: []string{testSecret(1)}}, Options{Boot: "c", Metrics: reg}); err == nil {
		t.Error("two endpoints count in one place")
	}
	closed(t, a)
	if families, _ := reg.Gather(); len(families) != 0 {
		t.Errorf("%d metrics are left behind", len(families))
	}
}
