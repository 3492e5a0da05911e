package zmtp

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rhizome-router/rhizome/internal/testkit"
)

// script is a running Python peer: it answers in lines and obeys lines.
type script struct {
	t     *testing.T
	in    io.WriteCloser
	lines chan string
	wait  func() error
}

func startScript(t *testing.T, name string, args ...string) *script {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), testkit.PythonZMQ(t), append([]string{"testdata/" + name}, args...)...)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s := &script{t: t, in: in, lines: make(chan string, 1000)}
	read := make(chan struct{})
	go func() {
		defer close(read)
		defer close(s.lines)
		for sc := bufio.NewScanner(out); sc.Scan(); {
			s.lines <- sc.Text()
		}
	}()
	s.wait = func() error { <-read; return cmd.Wait() }
	t.Cleanup(func() {
		cmd.Process.Kill()
		s.wait()
		if t.Failed() && stderr.Len() > 0 {
			t.Logf("%s said: %s", name, stderr.String())
		}
	})
	return s
}

func (s *script) line() string {
	s.t.Helper()
	select {
	case l, ok := <-s.lines:
		if !ok {
			s.t.Fatal("the script ended early")
		}
		return l
	case <-time.After(30 * time.Second):
		s.t.Fatal("the script says nothing")
		return ""
	}
}

func (s *script) say(format string, args ...any) {
	s.t.Helper()
	if _, err := fmt.Fprintf(s.in, format+"\n", args...); err != nil {
		s.t.Fatal(err)
	}
}

func dialTest(t *testing.T, port string, opt Options) *Conn {
	t.Helper()
	c, err := Dial(t.Context(), "tcp://127.0.0.1:"+port, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetRecvDeadline(time.Now().Add(60 * time.Second))
	return c
}

// recvNumbered receives n messages [topic, seq8, payload] with seq 0…n-1,
// after any probes.
func recvNumbered(t *testing.T, c *Conn, n int, topic string) {
	t.Helper()
	for i := 0; i < n; {
		frames, err := c.Recv()
		if err != nil {
			t.Fatalf("after %d messages: %v", i, err)
		}
		if len(frames) == 1 && bytes.HasSuffix(frames[0], []byte("probe")) {
			continue
		}
		if len(frames) != 3 || string(frames[0]) != topic {
			t.Fatalf("message %d has %d frames, topic %q", i, len(frames), frames[0])
		}
		if seq := binary.BigEndian.Uint64(frames[1]); seq != uint64(i) {
			t.Fatalf("message %d has seq %d", i, seq)
		}
		i++
	}
}

func TestSubHearsLibzmqPub(t *testing.T) {
	pub := startScript(t, "pub.py", "0", "0")
	c := dialTest(t, pub.line(), Options{Type: SUB})
	if _, err := c.Recv(); err != nil { // the first probe: we are subscribed
		t.Fatal(err)
	}
	const n = 60_000
	pub.say("send %d 300", n)
	start := time.Now()
	recvNumbered(t, c, n, "")
	t.Logf("%.0f msg/s", n/time.Since(start).Seconds())
	pub.say("quit")
	if _, err := c.Recv(); err != io.EOF {
		t.Errorf("after the publisher left: %v, want EOF", err)
	}
}

func TestSubAnswersHeartbeats(t *testing.T) {
	pub := startScript(t, "pub.py", "0", "50")
	c := dialTest(t, pub.line(), Options{Type: SUB})
	if _, err := c.Recv(); err != nil {
		t.Fatal(err)
	}
	// The idle time is more than twice what the peer waits for a PONG.
	pub.say("idle 2500")
	pub.say("send 10 70000")
	recvNumbered(t, c, 10, "")
}

func TestSubFiltersByPrefix(t *testing.T) {
	pub := startScript(t, "pub.py", "0", "0")
	port := pub.line()
	all := dialTest(t, port, Options{Type: SUB})
	kv := dialTest(t, port, Options{Type: SUB, Subscribe: []byte("kv@")})
	for _, c := range []*Conn{all, kv} {
		if _, err := c.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	pub.say("send 5 10 other")
	pub.say("send 5 10 kv@a")
	recvNumbered(t, all, 5, "other")
	recvNumbered(t, all, 5, "kv@a")
	recvNumbered(t, kv, 5, "kv@a")
}

func TestSubRedialsRestartedPub(t *testing.T) {
	pub := startScript(t, "pub.py", "0", "0")
	port := pub.line()
	c := dialTest(t, port, Options{Type: SUB})
	if _, err := c.Recv(); err != nil {
		t.Fatal(err)
	}
	pub.say("quit")
	for {
		if _, err := c.Recv(); err != nil {
			break
		}
	}
	pub.wait()
	again := startScript(t, "pub.py", port, "0")
	c = dialTest(t, again.line(), Options{Type: SUB})
	if _, err := c.Recv(); err != nil {
		t.Fatal(err)
	}
	again.say("send 100 10")
	recvNumbered(t, c, 100, "")
}

func TestDealerAsksLibzmqRouter(t *testing.T) {
	for _, topic := range []string{"0", "1"} {
		t.Run("topic="+topic, func(t *testing.T) {
			router := startScript(t, "router.py", "5100", topic)
			c := dialTest(t, router.line(), Options{Type: DEALER})
			if err := c.Send(nil, binary.BigEndian.AppendUint64(nil, 5000)); err != nil {
				t.Fatal(err)
			}
			if got := router.line(); got != "- 0000000000001388" {
				t.Fatalf("the router got %q", got)
			}
			for want := uint64(5000); ; want++ {
				frames, err := c.Recv()
				if err != nil {
					t.Fatal(err)
				}
				payload, seq := frames[len(frames)-1], binary.BigEndian.Uint64(frames[len(frames)-2])
				if len(payload) == 0 {
					if want != 5100 || seq != 1<<64-1 {
						t.Fatalf("the end came at %d with seq %d", want, seq)
					}
					break
				}
				if seq != want || (topic == "1") != (len(frames) == 4) {
					t.Fatalf("seq %d of %d frames, want %d", seq, len(frames), want)
				}
			}
		})
	}
}

func TestLibzmqSubHearsPub(t *testing.T) {
	pub, err := ListenPub("127.0.0.1:0", PubOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer pub.Close()
	_, port, _ := net.SplitHostPort(pub.Addr().String())
	sub := startScript(t, "sub.py", port, "kv@", "20")
	for up := false; !up; {
		pub.Send([]byte("kv@probe"))
		select {
		case <-sub.lines:
			up = true
		case <-time.After(5 * time.Millisecond):
		}
	}
	const n = 60_000
	payload := make([]byte, 300)
	start := time.Now()
	for i := range uint64(n) {
		pub.Send([]byte("noise"), payload)
		pub.Send([]byte("kv@a"), binary.BigEndian.AppendUint64(nil, i), payload)
	}
	pub.Send([]byte("kv@a"), []byte("end"))
	if got, want := sub.line(), strconv.Itoa(n)+" 0 kv@a"; got != want {
		t.Errorf("the subscriber counted %q, want %q", got, want)
	}
	t.Logf("%.0f msg/s", n/time.Since(start).Seconds())
}

func TestLibzmqAsksRouter(t *testing.T) {
	router, err := ListenRouter("127.0.0.1:0", RouterOptions{}, func(id []byte, frames [][]byte, reply func(...[]byte) error) {
		n := binary.BigEndian.Uint64(frames[len(frames)-1])
		for i := range n {
			if err := reply(nil, id, binary.BigEndian.AppendUint64(nil, i)); err != nil {
				t.Error(err)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer router.Close()
	_, port, _ := net.SplitHostPort(router.Addr().String())
	req := startScript(t, "request.py", port)
	for i := range 3 {
		if got, want := req.line(), fmt.Sprintf("- 6d65 %016x", i); got != want {
			t.Errorf("DEALER got %q, want %q", got, want)
		}
	}
	if got := req.line(); !strings.HasPrefix(got, "00") || !strings.HasSuffix(got, " 0000000000000000") {
		t.Errorf("REQ got %q", got)
	}
}

func TestListenerTakesLibzmqPub(t *testing.T) {
	ln, err := Listen(t.Context(), "tcp://127.0.0.1:0", Options{Type: SUB})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	pub := startScript(t, "pub.py", "connect:"+port, "0")
	c, err := ln.Accept(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Recv(); err != nil {
		t.Fatal(err)
	}
	pub.say("send 100 10")
	recvNumbered(t, c, 100, "")
}
