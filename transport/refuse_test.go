package transport

import (
	"context"
	"crypto/tls"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
)

// stranger is a QUIC client that isn't an Endpoint.
type stranger struct{ *quic.Transport }

func newStranger(t *testing.T) stranger {
	t.Helper()
	socket, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	tr := &quic.Transport{Conn: socket}
	t.Cleanup(func() {
		_ = tr.Close()
		_ = socket.Close()
	})
	return stranger{tr}
}

func (s stranger) dial(t *testing.T, to *Endpoint, c *tls.Config) (*quic.Conn, error) {
	t.Helper()
	conn, err := s.Dial(soon(t), net.UDPAddrFromAddrPort(to.Self().Addr), c, quicConfig())
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = conn.CloseWithError(0, "") })
	return conn, nil
}

// member returns TLS settings that a mesh of testSecret(1) takes.
func member(t *testing.T, boot string) *gate {
	t.Helper()
	id, err := newIdentity(Config{Cluster: "default", Secrets: []string{testSecret(1)}}, boot, nil)
	if err != nil {
		t.Fatal(err)
	}
	return &gate{identity: id, cluster: "default", wall: time.Now, refused: func(string, *refusal) {}}
}

// ends waits until a connection is over and returns why.
func ends(t *testing.T, c *quic.Conn) error {
	t.Helper()
	select {
	case <-c.Context().Done():
		return context.Cause(c.Context())
	case <-time.After(patience):
		t.Fatal("the connection lives on")
		return nil
	}
}

// Who isn't of the mesh, or not of this one, is turned away: the dial fails, no
// session comes of it, and each end says why, once.
func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Config, *Options)
		reason string // at the end dialled; the dialler verifies first and may stop there
		says   string
	}{
		{"another secret", func(c *Config, _ *Options) { c.Secrets = []string{testSecret(2)} }, refusedAuthority, "same mesh secret"},
		{"another cluster", func(c *Config, _ *Options) { c.Cluster = "other" }, refusedCluster, "this is"},
		{"a clock a month ahead", func(_ *Config, o *Options) {
			o.Wall = func() time.Time { return time.Now().Add(30 * 24 * time.Hour) }
		}, refusedExpired, "check both clocks"},
		{"a clock a month behind", func(_ *Config, o *Options) {
			o.Wall = func() time.Time { return time.Now().Add(-30 * 24 * time.Hour) }
		}, refusedExpired, "check both clocks"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var log logged
			a := listen(t, "a", c.change, func(_ *Config, o *Options) { o.Log = log.logger() })
			b := listen(t, "b")
			for range 5 {
				if _, err := a.Delta().Open(soon(t), addr(b)); err == nil {
					t.Fatal("the dial succeeded")
				} else if !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), addr(b)) {
					t.Errorf("error %q, want one with %q and the address", err, c.says)
				}
				a.forget(t)
			}
			if n := liveSessions(a) + liveSessions(b); n != 0 {
				t.Errorf("%d sessions", n)
			}
			if n := log.count("peer refused", "reason="+c.reason); n != 1 {
				t.Errorf("%d log lines, want 1:\n%s", n, log.String())
			}
			if n := value(t, a.metrics.refused.WithLabelValues(c.reason)); n != 5 {
				t.Errorf("counted %v refusals, want 5", n)
			}
		})
	}
}

// forget makes the next dial come at once.
func (e *Endpoint) forget(t *testing.T) {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.forgetFailed()
}

// The end that is dialled decides too: a dialler that doesn't verify gains
// nothing. What its handshake says is not yet an answer.
func TestStrangersGetNoSession(t *testing.T) {
	other, err := newIdentity(Config{Cluster: "default", Secrets: []string{testSecret(2)}}, "s", nil)
	if err != nil {
		t.Fatal(err)
	}
	elsewhere, err := newIdentity(Config{Cluster: "elsewhere", Secrets: []string{testSecret(1)}}, "s", nil)
	if err != nil {
		t.Fatal(err)
	}
	show := func(id identity) *tls.Config {
		c := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{DeltaPlane.alpn()}}
		if id != nil {
			c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return id.certificate(time.Now()) }
		}
		return c
	}
	next := member(t, "s").client(DeltaPlane)
	next.NextProtos = []string{"rz-delta/2"}
	for _, c := range []struct {
		name   string
		tls    *tls.Config
		reason string
		line   string
	}{
		{"no certificate", show(nil), refusedNoCertificate, "shows no certificate"},
		{"another secret", show(other), refusedAuthority, "same mesh secret"},
		{"another cluster", show(elsewhere), refusedCluster, "elsewhere"},
		{"another major version", next, refusedVersion, "rz-delta/2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var log logged
			b := listen(t, "b", func(_ *Config, o *Options) { o.Log = log.logger() })
			s := newStranger(t)
			for range 3 {
				conn, err := s.dial(t, b, c.tls)
				if err == nil {
					err = ends(t, conn)
				}
				if te := (*quic.TransportError)(nil); !asTransport(err, &te) || !te.ErrorCode.IsCryptoError() {
					t.Errorf("ended with %v, want a refused handshake", err)
				}
			}
			eventually(t, "three refusals are counted", func() bool {
				return value(t, b.metrics.refused.WithLabelValues(c.reason)) == 3
			})
			if n := log.count("level=WARN", "reason="+c.reason, c.line, "127.0.0.1"); n != 1 || log.count("level=") != 1 {
				t.Errorf("%d log lines, want 1 and no other:\n%s", n, log.String())
			}
			if n := liveSessions(b); n != 0 {
				t.Errorf("%d sessions", n)
			}
		})
	}
}

// The dialler is told that it is the certificate, or the version.
func TestRefusedDiallerIsTold(t *testing.T) {
	for code, want := range map[quic.TransportErrorCode]string{
		cryptoBase + alertBadCert: "does not take this replica's certificate",
		cryptoBase + alertNoALPN:  "another major version",
	} {
		if got := explainQUIC(&quic.TransportError{Remote: true, ErrorCode: code}); !strings.Contains(got.Error(), want) {
			t.Errorf("%v: %q, want %q", code, got, want)
		}
	}
}

// A clock an hour off does no harm, whichever way and whichever end.
func TestClockAnHourOff(t *testing.T) {
	for _, off := range []time.Duration{time.Hour, -time.Hour} {
		t.Run(off.String(), func(t *testing.T) {
			a := listen(t, "a", func(_ *Config, o *Options) { o.Wall = func() time.Time { return time.Now().Add(off) } })
			b := listen(t, "b")
			if err := open(t, a, addr(b), 1).Send(soon(t), []byte("x")); err != nil {
				t.Error(err)
			}
		})
	}
}

// What a member says first must make sense, and must be what its certificate
// says.
func TestHelloIsChecked(t *testing.T) {
	for _, c := range []struct{ name, hello, line string }{
		{"garbage", "}{", "can't be read"},
		{"no boot", `{"addr":"127.0.0.1:1"}`, "boot name"},
		{"a boot that would break logs", `{"boot":"a\nb","addr":"127.0.0.1:1"}`, "boot name"},
		{"no address", `{"boot":"s"}`, "no address"},
		{"a wildcard", `{"boot":"s","addr":"0.0.0.0:7400"}`, "no address"},
		{"another's boot", `{"boot":"other","addr":"127.0.0.1:1"}`, `certificate \"s\"`},
		{"too long", `{"boot":"` + strings.Repeat("s", maxHelloBytes) + `"}`, "oversized"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var log logged
			b := listen(t, "b", func(_ *Config, o *Options) { o.Log = log.logger() })
			conn, err := newStranger(t).dial(t, b, member(t, "s").client(DeltaPlane))
			if err != nil {
				t.Fatal(err)
			}
			st, err := conn.OpenUniStream()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := st.Write(appendFrame(nil, []byte(c.hello))); err != nil {
				t.Fatal(err)
			}
			ends(t, conn)
			eventually(t, "the refusal is logged", func() bool { return log.count("reason=hello", c.line) == 1 })
			if n := liveSessions(b); n != 0 {
				t.Errorf("%d sessions", n)
			}
		})
	}
}

// A member that says nothing is not waited for long.
func TestSilentMemberIsCutOff(t *testing.T) {
	t.Parallel()
	b := listen(t, "b")
	began := time.Now()
	conn, err := newStranger(t).dial(t, b, member(t, "s").client(DeltaPlane))
	if err != nil {
		t.Fatal(err)
	}
	ends(t, conn)
	if d := time.Since(began); d < dialTimeout {
		t.Errorf("cut off after %v, before the %v that it had", d, dialTimeout)
	}
}

// A frame that lies about its size or is not what its checksum says ends its
// stream, not the connection, and is logged once.
func TestBadFrames(t *testing.T) {
	corrupted := appendFrame(nil, []byte("payload"))
	corrupted[len(corrupted)-1] ^= 1
	for _, c := range []struct {
		reason string
		bytes  []byte
	}{
		{"oversized", []byte{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0}},
		{"corrupted", corrupted},
	} {
		t.Run(c.reason, func(t *testing.T) {
			onBoth(t, func(t *testing.T, listen func(string) *Endpoint) {
				var log logged
				a, b := listen("a"), listen("b")
				b.refusals.log = log.logger()
				good := open(t, a, addr(b), 1)
				accept(t, b).Close()
				for range 3 {
					out := open(t, a, addr(b), 1)
					if _, err := out.stream.Write(c.bytes); err != nil {
						t.Fatal(err)
					}
					in := accept(t, b)
					if _, err := in.Class(); err != nil {
						t.Fatal(err)
					}
					if _, err := in.Receive(); err == nil || !strings.Contains(err.Error(), c.reason) {
						t.Errorf("received with %v", err)
					}
					// The sender's stream ends with it.
					eventually(t, "the sender learns of it", func() bool { return out.TrySend([]byte("more")) != nil })
				}
				if n := log.count("stream given up", c.reason, "peer=a"); n != 1 {
					t.Errorf("%d log lines, want 1:\n%s", n, log.String())
				}
				if n := value(t, b.metrics.badFrames.WithLabelValues(c.reason)); n != 3 {
					t.Errorf("counted %v, want 3", n)
				}
				if liveSessions(a) != 1 || !good.session.alive() {
					t.Error("the connection ended too")
				}
			})
		})
	}
}

// Packets that make no sense, and packets whose bits flip on the way, change
// nothing but the time it takes.
func TestCorruptedPackets(t *testing.T) {
	a, b := listen(t, "a"), listen(t, "b")
	p := newProxy(t, b.Self().Addr, func(i int, b []byte) {
		if i%7 == 3 {
			b[len(b)-1-i%max(1, len(b)-1)] ^= 0x10
		}
	})
	noise, err := net.Dial("udp", addr(b))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = noise.Close() }()
	out := open(t, a, p.addr(), 1)
	in := accept(t, b)
	if _, err := in.Class(); err != nil {
		t.Fatal(err)
	}
	want := make([]byte, 20_000)
	for i := range 20 {
		_, _ = noise.Write(make([]byte, i*61))
		want[i] = byte(i)
		if err := out.Send(soon(t), want); err != nil {
			t.Fatal(err)
		}
		got, err := in.Receive()
		if err != nil || string(got) != string(want) {
			t.Fatalf("frame %d: %d bytes, %v", i, len(got), err)
		}
	}
}

// However many handshakes strangers begin, what they hold is bounded, is given
// back, and members still get in.
func TestFloodOfHandshakes(t *testing.T) {
	b := listen(t, "b")
	c := b.carrier.(*quicCarrier)
	s := newStranger(t)
	ctx, cancel := context.WithCancel(context.Background())
	var dials sync.WaitGroup
	slow := member(t, "s").client(DeltaPlane)
	slow.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		<-ctx.Done() // so that the handshake stays half done
		return nil, ctx.Err()
	}
	for range retryAbove + 20 {
		dials.Go(func() {
			if conn, err := s.Dial(ctx, net.UDPAddrFromAddrPort(b.Self().Addr), slow, quicConfig()); err == nil {
				_ = conn.CloseWithError(0, "")
			}
		})
	}
	eventually(t, "handshakes are under way", func() bool { return c.shaking.Load() > retryAbove })
	a := listen(t, "a")
	if err := open(t, a, addr(b), 1).Send(soon(t), []byte("a member, by way of a retry")); err != nil {
		t.Error(err)
	}
	cancel()
	dials.Wait()
	eventually(t, "all are forgotten but the member", func() bool { return c.shaking.Load() == 0 && c.inbound.Load() == 1 })
	c.inbound.Store(maxInbound)
	if _, err := listen(t, "late").Delta().Open(soon(t), addr(b)); err == nil {
		t.Error("a connection above the bound")
	}
	c.inbound.Store(1)
}
