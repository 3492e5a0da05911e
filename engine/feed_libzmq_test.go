package engine

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rhizome-router/rhizome/internal/testkit"
)

// script is a libzmq publisher with vLLM's habits.
type script struct {
	t           *testing.T
	cmd         *exec.Cmd
	in          io.Writer
	out         *bufio.Scanner
	events, rep string // ports
}

func startScript(t *testing.T, events, replay, topic string, ring int) *script {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), testkit.PythonZMQ(t), "testdata/vllm_publisher.py", events, replay, topic, strconv.Itoa(ring))
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s := &script{t: t, cmd: cmd, in: in, out: bufio.NewScanner(out)}
	t.Cleanup(s.kill)
	var ok bool
	if s.events, s.rep, ok = strings.Cut(s.line(), " "); !ok {
		t.Fatal("the script says no ports")
	}
	return s
}

func (s *script) line() string {
	s.t.Helper()
	if !s.out.Scan() {
		s.t.Fatalf("the script ended: %v", s.out.Err())
	}
	return s.out.Text()
}

// publish returns when the batches are published.
func (s *script) publish(n int) {
	s.t.Helper()
	fmt.Fprintf(s.in, "publish %d\n", n)
	s.line()
}

// kill is how engines really end.
func (s *script) kill() {
	s.cmd.Process.Kill()
	s.cmd.Wait()
}

func scriptConfig(s *script) FeedConfig {
	return FeedConfig{
		Events: "tcp://127.0.0.1:" + s.events, Replay: "tcp://127.0.0.1:" + s.rep, Model: "m",
		ReplayIdle: 2 * time.Second, TailCheck: 20 * time.Millisecond, MinBackoff: time.Millisecond, MaxBackoff: 20 * time.Millisecond,
		Log: slog.New(slog.DiscardHandler),
	}
}

// A whole life against libzmq: history, live events, a kill, a second life on
// the same ports that is further than the first was.
func TestFeedFollowsLibzmq(t *testing.T) {
	for name, topic := range map[string]string{"before 0.25": "", "from 0.25": "kv@a@m"} {
		t.Run(name, func(t *testing.T) {
			s := startScript(t, "tcp://127.0.0.1:*", "tcp://127.0.0.1:*", topic, 10_000)
			s.publish(3000) // libzmq's ROUTER drops replies beyond 1000 waiting
			fw := follow(t, scriptConfig(s))
			fw.expectBatches(0, 3000)
			fw.expect(FeedConnected)
			s.publish(2000)
			fw.expectBatches(3000, 5000)
			s.kill()
			fw.expect(FeedDisconnected)
			again := startScript(t, "tcp://127.0.0.1:"+s.events, "tcp://127.0.0.1:"+s.rep, topic, 10_000)
			again.publish(6000)
			fw.expectFrom(0, 6000)
			t.Logf("stats %+v", fw.feed.Stats())
		})
	}
}

// expectFrom expects a reset to 0 and the batches up to to-1, with the
// connection coming at any time between.
func (fw *following) expectFrom(from, to uint64) {
	fw.t.Helper()
	reset := false
	for want := from; want < to; {
		e := fw.event()
		switch {
		case e.Kind == FeedConnected:
		case e.Kind == FeedReset && e.Seq == from && !reset:
			reset = true
		case e.Kind == FeedBatch && e.Seq == want && reset:
			want++
		default:
			fw.t.Fatalf("event %+v, want batch %d; stats %+v", e, want, fw.feed.Stats())
		}
	}
}

// vLLM dials unless its endpoint holds a "*": then we listen.
func TestFeedListensForLibzmq(t *testing.T) {
	events := freePort(t)
	s := startScript(t, "dial:tcp://127.0.0.1:"+events, "tcp://127.0.0.1:*", "", 100)
	s.publish(10)
	cfg := scriptConfig(s)
	cfg.Events = "tcp://*:" + events
	fw := follow(t, cfg)
	fw.expectBatches(0, 10)
	fw.expect(FeedConnected)
	s.publish(10)
	fw.expectBatches(10, 20)
	s.kill()
	fw.expect(FeedDisconnected)
}

// freePort returns a port that nobody listens on, out of the range from which
// the system gives ports to whoever asks for any.
func freePort(t testing.TB) string {
	t.Helper()
	for n := 24_000 + os.Getpid()%6000; n < 31_000; n++ {
		if ln, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(n)); err == nil {
			ln.Close()
			return strconv.Itoa(n)
		}
	}
	t.Fatal("no free port")
	return ""
}
