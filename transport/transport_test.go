package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testSecret is a secret for tests; another n, another secret.
func testSecret(n int) string { return fmt.Sprintf("a secret of 32 bytes or more, no. %d", n) }

// patience is how long a test waits for what should come soon, on a machine
// that is busy with other things.
const patience = 20 * time.Second

func soon(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// logged is a log that tests read.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *logged) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// count returns how many lines hold all parts.
func (l *logged) count(parts ...string) int {
	n := 0
lines:
	for line := range strings.Lines(l.String()) {
		for _, p := range parts {
			if !strings.Contains(line, p) {
				continue lines
			}
		}
		n++
	}
	return n
}

// listen opens an endpoint on a loopback socket.
func listen(t testing.TB, boot string, change ...func(*Config, *Options)) *Endpoint {
	t.Helper()
	cfg, opts := Config{Listen: "127.0.0.1:0", Secrets: []string{testSecret(1)}}, Options{Boot: boot}
	for _, c := range change {
		c(&cfg, &opts)
	}
	e, err := Listen(cfg, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, e) })
	return e
}

func closed(t testing.TB, e *Endpoint) {
	t.Helper()
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}

// onBoth runs a test on sockets and in memory.
func onBoth(t *testing.T, test func(t *testing.T, listen func(boot string) *Endpoint)) {
	t.Run("quic", func(t *testing.T) {
		test(t, func(boot string) *Endpoint { return listen(t, boot) })
	})
	t.Run("memory", func(t *testing.T) {
		n := NewNetwork(1)
		t.Cleanup(n.Close)
		next := uint16(0)
		test(t, func(boot string) *Endpoint {
			next++
			e, err := n.Listen(fmt.Sprintf("10.0.0.%d:7400", next), Config{}, Options{Boot: boot})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { closed(t, e) })
			return e
		})
	})
}

func addr(e *Endpoint) string { return e.Self().Addr.String() }

// open opens a stream of deltas.
func open(t testing.TB, from *Endpoint, to string, class Class) *Outbound {
	t.Helper()
	o, err := channel(t, from, to).Stream(t.Context(), class)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// accept takes a stream of deltas.
func accept(t testing.TB, at *Endpoint) *Inbound {
	t.Helper()
	in, err := at.Delta().Accept(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	return in
}

// eventually waits until a condition holds.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); !ok(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("%s: not within %v", what, patience)
		}
	}
}

func TestDeltasArriveInOrder(t *testing.T) {
	onBoth(t, func(t *testing.T, listen func(string) *Endpoint) {
		a, b := listen("a"), listen("b")
		out := open(t, a, addr(b), 7)
		const frames = 200
		var sender sync.WaitGroup
		sender.Go(func() {
			for i := range frames {
				if err := out.Send(soon(t), fmt.Appendf(nil, "%d %s", i, strings.Repeat("x", i*i))); err != nil {
					t.Error(err)
					return
				}
			}
			out.Close()
		})
		in := accept(t, b)
		if in.Peer() != a.Self() {
			t.Errorf("the stream is from %v, want %v", in.Peer(), a.Self())
		}
		if c, err := in.Class(); err != nil || c != 7 {
			t.Errorf("class %d, %v; want 7", c, err)
		}
		for i := range frames {
			got, err := in.Receive()
			if want := fmt.Sprintf("%d %s", i, strings.Repeat("x", i*i)); err != nil || string(got) != want {
				t.Fatalf("frame %d: %d bytes, %v; want %d", i, len(got), err, len(want))
			}
		}
		if _, err := in.Receive(); err != io.EOF {
			t.Errorf("after the last frame: %v, want EOF", err)
		}
		sender.Wait()
	})
}

// A batch may not be split, so the largest one must go through.
func TestLargestFrame(t *testing.T) {
	onBoth(t, func(t *testing.T, listen func(string) *Endpoint) {
		a, b := listen("a"), listen("b")
		out := open(t, a, addr(b), 1)
		big := make([]byte, MaxFrameBytes)
		big[0], big[MaxFrameBytes-1] = 1, 2
		var sender sync.WaitGroup
		sender.Go(func() {
			if err := out.Send(soon(t), big); err != nil {
				t.Error(err)
			}
		})
		in := accept(t, b)
		if _, err := in.Class(); err != nil {
			t.Fatal(err)
		}
		got, err := in.Receive()
		if err != nil || len(got) != MaxFrameBytes || got[0] != 1 || got[MaxFrameBytes-1] != 2 {
			t.Errorf("%d bytes, %v", len(got), err)
		}
		sender.Wait()
		if err := out.Send(soon(t), make([]byte, MaxFrameBytes+1)); err == nil {
			t.Error("a frame above the bound was sent")
		}
	})
}

// A reader that stops must cost its writer no more than a window, and must not
// stop the other classes or the heartbeats.
func TestSlowReaderFillsOneWindowOnly(t *testing.T) {
	onBoth(t, func(t *testing.T, listen func(string) *Endpoint) {
		a, b := listen("a"), listen("b")
		slow, quick := open(t, a, addr(b), 1), open(t, a, addr(b), 2)
		frame := make([]byte, 64<<10)
		sent := 0
		for ; ; sent += len(frame) {
			if err := slow.TrySend(frame); err == ErrFull {
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
		if sent > streamWindowBytes || sent < streamWindowBytes/2 {
			t.Errorf("%d bytes were queued for a peer that doesn't read, want at most %d", sent, streamWindowBytes)
		}
		if err := quick.TrySend([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			in := accept(t, b)
			c, err := in.Class()
			if err != nil {
				t.Fatal(err)
			}
			if c != 2 {
				continue
			}
			if got, err := in.Receive(); err != nil || string(got) != "hello" {
				t.Errorf("got %q, %v", got, err)
			}
		}
	})
}

func TestRaftStreams(t *testing.T) {
	onBoth(t, func(t *testing.T, listen func(string) *Endpoint) {
		a, b := listen("a"), listen("b")
		var server sync.WaitGroup
		server.Go(func() {
			for {
				c, err := b.Raft().Accept()
				if err != nil {
					return
				}
				server.Go(func() {
					_, _ = io.Copy(c, c)
					_ = c.Close()
				})
			}
		})
		for i := range 200 { // more than a peer may have open at a time
			c, err := a.Raft().Dial(raft.ServerAddress(addr(b)), patience)
			if err != nil {
				t.Fatal(err)
			}
			_ = c.SetDeadline(time.Now().Add(patience))
			want := fmt.Sprint("message ", i)
			if _, err := io.WriteString(c, want); err != nil {
				t.Fatal(err)
			}
			got := make([]byte, len(want))
			if _, err := io.ReadFull(c, got); err != nil || string(got) != want {
				t.Fatalf("echo %d: %q, %v", i, got, err)
			}
			_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
			if _, err := c.Read(got); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatalf("a read past its deadline: %v", err)
			}
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := a.Raft().Dial("b:7400", time.Second); err == nil {
			t.Error("a name was dialled")
		}
		if err := b.Raft().Close(); err != nil {
			t.Fatal(err)
		}
		server.Wait()
	})
}

// Both ends use one connection, and find each other again when both dialled at
// once.
func TestConnectionsAreShared(t *testing.T) {
	onBoth(t, func(t *testing.T, listen func(string) *Endpoint) {
		a, b := listen("a"), listen("b")
		one, err := a.Delta().Open(soon(t), addr(b))
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "b knows a's connection", func() bool { return liveSessions(b) == 1 })
		two, err := b.Delta().Open(soon(t), addr(a))
		if err != nil {
			t.Fatal(err)
		}
		if liveSessions(a) != 1 || liveSessions(b) != 1 || one.Peer() != b.Self() || two.Peer() != a.Self() {
			t.Errorf("%d and %d connections, with %v and %v", liveSessions(a), liveSessions(b), one.Peer(), two.Peer())
		}
		// In use both ways.
		for _, way := range [][2]*Endpoint{{a, b}, {b, a}} {
			if err := open(t, way[0], addr(way[1]), 3).Send(soon(t), []byte("x")); err != nil {
				t.Fatal(err)
			}
			in := accept(t, way[1])
			if c, err := in.Class(); err != nil || c != 3 {
				t.Fatal(c, err)
			}
		}
	})
}

func TestDiallingBothWaysAtOnce(t *testing.T) {
	onBoth(t, func(t *testing.T, listen func(string) *Endpoint) {
		a, b := listen("a"), listen("b")
		var both sync.WaitGroup
		for range 8 {
			for _, way := range [][2]*Endpoint{{a, b}, {b, a}} {
				both.Go(func() {
					if _, err := way[0].Delta().Open(soon(t), addr(way[1])); err != nil {
						t.Error(err)
					}
				})
			}
		}
		both.Wait()
		if n := max(liveSessions(a), liveSessions(b)); n > 2 {
			t.Errorf("%d connections of two dials", n)
		}
		// When both are known at both ends, both use that of the lower boot.
		eventually(t, "both ends use one connection", func() bool {
			sa, err := a.connect(soon(t), DeltaPlane, b.Self().Addr)
			if err != nil {
				t.Fatal(err)
			}
			sb, err := b.connect(soon(t), DeltaPlane, a.Self().Addr)
			if err != nil {
				t.Fatal(err)
			}
			return sa.dialled != sb.dialled
		})
	})
}

// A replica may find its own address among the seeds.
func TestDialsItself(t *testing.T) {
	onBoth(t, func(t *testing.T, listen func(string) *Endpoint) {
		a := listen("a")
		if err := open(t, a, addr(a), 9).Send(soon(t), []byte("me")); err != nil {
			t.Fatal(err)
		}
		in := accept(t, a)
		if _, err := in.Class(); err != nil {
			t.Fatal(err)
		}
		if got, err := in.Receive(); err != nil || string(got) != "me" || in.Peer() != a.Self() {
			t.Errorf("got %q from %v, %v", got, in.Peer(), err)
		}
	})
}

// A dial that nobody answers ends, and says what it tried.
func TestDialOfNobody(t *testing.T) {
	onBoth(t, func(t *testing.T, listen func(string) *Endpoint) {
		a := listen("a")
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		_, err := a.Delta().Open(ctx, "127.0.0.1:9")
		if err == nil || !strings.Contains(err.Error(), "127.0.0.1:9") {
			t.Errorf("error %v, want one that names the address", err)
		}
	})
}

func liveSessions(e *Endpoint) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.live)
}

// value returns what a counter or a gauge stands at.
func value(t testing.TB, m prometheus.Metric) float64 {
	t.Helper()
	var out dto.Metric
	if err := m.Write(&out); err != nil {
		t.Fatal(err)
	}
	return out.GetCounter().GetValue() + out.GetGauge().GetValue()
}
