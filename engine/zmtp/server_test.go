package zmtp

import (
	"bufio"
	"encoding/binary"
	"errors"
	"net"
	"sync"
	"testing"
	"time"
)

func newPub(t testing.TB, opt PubOptions) *Pub {
	t.Helper()
	pub, err := ListenPub("127.0.0.1:0", opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pub.Close() })
	return pub
}

// sync31 does a PING round trip: what was sent before it has been handled.
func sync31(t *testing.T, nc net.Conn, r *bufio.Reader) {
	t.Helper()
	nc.Write(appendCommand(nil, "PING", []byte{0, 0}))
	if flags, body, err := readFrame(r, 100); err != nil || flags != flagCommand || string(body) != "\x04PONG" {
		t.Fatalf("PING was answered by %x %q, %v", flags, body, err)
	}
}

func TestPubTakesSubscriptionCommands(t *testing.T) {
	pub := newPub(t, PubOptions{})
	nc, r := rawPeer(t, pub.Addr().String(), append(greeting(), ready(SUB)...))
	sync31(t, nc, r)
	pub.Send([]byte("a")) // nothing is subscribed to yet
	nc.Write(appendCommand(nil, "SUBSCRIBE", []byte("k")))
	nc.Write(appendCommand(nil, "SUBSCRIBE", []byte("k")))
	nc.Write(appendCommand(nil, "CANCEL", []byte("k"))) // once of twice
	sync31(t, nc, r)
	if n := pub.Subscribers(); n != 1 {
		t.Errorf("%d subscribers", n)
	}
	pub.Send([]byte("a"))
	pub.Send([]byte("kv"), []byte("1"))
	if flags, body, err := readFrame(r, 100); err != nil || flags != flagMore || string(body) != "kv" {
		t.Fatalf("got %x %q, %v", flags, body, err)
	}
	if _, body, err := readFrame(r, 100); err != nil || string(body) != "1" {
		t.Fatalf("got %q, %v", body, err)
	}
	nc.Write(encodeMessage([][]byte{append([]byte{0}, 'k')}))
	sync31(t, nc, r)
	if n := pub.Subscribers(); n != 0 {
		t.Errorf("%d subscribers after the last cancel", n)
	}
}

func TestPubHangsUpOnTooManySubscriptions(t *testing.T) {
	pub := newPub(t, PubOptions{})
	nc, r := rawPeer(t, pub.Addr().String(), append(greeting(), ready(SUB)...))
	for range maxSubscriptions + 1 {
		nc.Write(appendCommand(nil, "SUBSCRIBE", []byte("k")))
	}
	if _, _, err := readFrame(r, 100); err == nil {
		t.Error("still connected")
	}
}

// A subscriber that doesn't read loses the newest messages and sees no gap in
// what it gets: the trap of a lost tail.
func TestPubDropsForTheSlow(t *testing.T) {
	pub := newPub(t, PubOptions{QueueMessages: 10})
	nc, r := rawPeer(t, pub.Addr().String(), append(greeting(), ready(SUB)...))
	nc.Write(encodeMessage([][]byte{{1}}))
	sync31(t, nc, r)
	payload := make([]byte, 1<<20)
	sent := 0
	for ; pub.Dropped() == 0; sent++ {
		pub.Send(binary.BigEndian.AppendUint64(nil, uint64(sent)), payload)
	}
	for want := range uint64(sent - 1) {
		_, seq, err := readFrame(r, 100)
		if err != nil || binary.BigEndian.Uint64(seq) != want {
			t.Fatalf("got %x, %v, want %d", seq, err, want)
		}
		if _, _, err := readFrame(r, 2<<20); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRouterDropsForTheSlow(t *testing.T) {
	full := make(chan error, 1)
	router, err := ListenRouter("127.0.0.1:0", RouterOptions{QueueMessages: 4}, func(_ []byte, _ [][]byte, reply func(...[]byte) error) {
		for {
			if err := reply(make([]byte, 1<<20)); err != nil {
				full <- err
				return
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer router.Close()
	c, err := Dial(t.Context(), "tcp://"+router.Addr().String(), Options{Type: DEALER})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Send([]byte("go")); err != nil {
		t.Fatal(err)
	}
	if err := <-full; !errors.Is(err, ErrQueueFull) {
		t.Error(err)
	}
}

// Close must end strangers, idle and busy peers alike.
func TestServerClose(t *testing.T) {
	pub := newPub(t, PubOptions{})
	stranger, err := net.Dial("tcp", pub.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	var senders sync.WaitGroup
	for range 3 {
		c, err := Dial(t.Context(), "tcp://"+pub.Addr().String(), Options{Type: SUB})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		senders.Go(func() {
			for range 100 {
				pub.Send([]byte("x"), make([]byte, 1000))
			}
		})
	}
	pub.Close()
	pub.Close()
	senders.Wait()
	if pub.Subscribers() != 0 {
		t.Error("subscribers after Close")
	}
}

// BenchmarkPubToSub measures messages of a typical event batch over loopback.
func BenchmarkPubToSub(b *testing.B) {
	pub := newPub(b, PubOptions{QueueMessages: 1 << 30})
	c, err := Dial(b.Context(), "tcp://"+pub.Addr().String(), Options{Type: SUB})
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	for pub.Subscribers() == 0 {
		time.Sleep(time.Millisecond)
	}
	payload := make([]byte, 300)
	const burst = 1000
	b.ReportAllocs()
	for b.Loop() {
		for i := range uint64(burst) {
			pub.Send(nil, binary.BigEndian.AppendUint64(nil, i), payload)
		}
		for range burst {
			if _, err := c.Recv(); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(b.N)*burst/b.Elapsed().Seconds(), "msg/s")
}
