package engine

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/rhizome-router/rhizome/engine/zmtp"
)

const patience = 20 * time.Second

// publisher is an engine's event side on our own sockets, with every fault on
// a switch. Batch n removes the block with hash n.
type publisher struct {
	t      testing.TB
	pub    *zmtp.Pub
	router *zmtp.Router // nil without replay

	mu       sync.Mutex
	life     float64 // in each payload, so that two lives differ
	next     uint64
	ring     []ringBatch
	ringMax  int
	topic    []byte // in replies too, if set
	noEnd    bool
	dropLive func(seq uint64) bool
	// dropReply tells of the i-th message of the r-th reply whether it is lost.
	dropReply func(r, i int) bool
	replies   int
}

type ringBatch struct {
	seq     uint64
	payload []byte
}

// startPublisher binds the given addresses; "" is any free port, and "-" for
// replay means none.
func startPublisher(t testing.TB, events, replay string) *publisher {
	t.Helper()
	p := &publisher{t: t, ringMax: 10_000, life: float64(time.Now().UnixNano())}
	anyPort := func(s string) string {
		if s == "" {
			return "127.0.0.1:0"
		}
		return s
	}
	var err error
	if p.pub, err = zmtp.ListenPub(anyPort(events), zmtp.PubOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.pub.Close() })
	if replay == "-" {
		return p
	}
	if p.router, err = zmtp.ListenRouter(anyPort(replay), zmtp.RouterOptions{QueueMessages: 100_000}, p.serve); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.router.Close() })
	return p
}

// restart ends this publisher and starts a new life on the same ports.
func (p *publisher) restart() *publisher {
	p.t.Helper()
	p.pub.Close()
	replay := "-"
	if p.router != nil {
		replay = p.router.Addr().String()
		p.router.Close()
	}
	return startPublisher(p.t, p.pub.Addr().String(), replay)
}

// hangUp breaks the live connection, and no more.
func (p *publisher) hangUp() {
	p.t.Helper()
	addr := p.pub.Addr().String()
	p.pub.Close()
	pub, err := zmtp.ListenPub(addr, zmtp.PubOptions{})
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { pub.Close() })
	p.pub = pub
}

func (p *publisher) payload(seq uint64) []byte {
	raw, err := msgpack.Marshal([]any{p.life, []any{[]any{"BlockRemoved", []any{seq}, "GPU"}}, 0})
	if err != nil {
		p.t.Fatal(err)
	}
	return raw
}

// publish publishes the next n batches.
func (p *publisher) publish(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for range n {
		p.send(p.payload(p.next))
	}
}

func (p *publisher) send(payload []byte) {
	seq := p.next
	p.next++
	if p.dropLive == nil || !p.dropLive(seq) {
		p.pub.Send(p.topic, binary.BigEndian.AppendUint64(nil, seq), payload)
	}
	p.ring = append(p.ring, ringBatch{seq, payload})
	p.ring = p.ring[max(0, len(p.ring)-p.ringMax):]
}

// skip draws a number that is never published, as when encoding fails.
func (p *publisher) skip() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next++
}

func (p *publisher) serve(_ []byte, frames [][]byte, reply func(...[]byte) error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(frames) != 2 || len(frames[0]) != 0 || len(frames[1]) != 8 {
		p.t.Errorf("a replay request of %x", frames)
		return
	}
	start := binary.BigEndian.Uint64(frames[1])
	i, round := 0, p.replies
	p.replies++
	answer := func(seq uint64, payload []byte) {
		lost := p.dropReply != nil && p.dropReply(round, i)
		i++
		if lost {
			return
		}
		out := [][]byte{nil}
		if p.topic != nil {
			out = append(out, p.topic)
		}
		if err := reply(append(out, binary.BigEndian.AppendUint64(nil, seq), payload)...); err != nil {
			p.t.Log(err)
		}
	}
	for _, b := range p.ring {
		if b.seq >= start {
			answer(b.seq, b.payload)
		}
	}
	if !p.noEnd {
		answer(1<<64-1, nil)
	}
}

// config returns how to follow p, at a test's pace.
func (p *publisher) config() FeedConfig {
	cfg := FeedConfig{
		Events: "tcp://" + p.pub.Addr().String(), Model: "m",
		ReplayIdle: 2 * time.Second, TailCheck: time.Hour, MinBackoff: time.Millisecond, MaxBackoff: 10 * time.Millisecond,
		Log: slog.New(slog.DiscardHandler),
	}
	if p.router != nil {
		cfg.Replay = "tcp://" + p.router.Addr().String()
	}
	return cfg
}

// following is a running feed.
type following struct {
	t      testing.TB
	feed   *Feed
	events chan FeedEvent
}

func follow(t testing.TB, cfg FeedConfig) *following {
	t.Helper()
	fw := &following{t: t, feed: NewFeed(cfg), events: make(chan FeedEvent, 1<<16)}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- fw.feed.Run(ctx, func(e FeedEvent) { fw.events <- e }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run returned %v", err)
		}
	})
	return fw
}

func (fw *following) event() FeedEvent {
	fw.t.Helper()
	select {
	case e := <-fw.events:
		return e
	case <-time.After(patience):
		fw.t.Fatalf("no event; stats %+v", fw.feed.Stats())
		return FeedEvent{}
	}
}

func (fw *following) expect(kind FeedKind) FeedEvent {
	fw.t.Helper()
	e := fw.event()
	if e.Kind != kind {
		fw.t.Fatalf("event %+v, want kind %d; stats %+v", e, kind, fw.feed.Stats())
	}
	return e
}

func (fw *following) expectReset(seq uint64) {
	fw.t.Helper()
	if e := fw.expect(FeedReset); e.Seq != seq {
		fw.t.Fatalf("reset to %d, want %d", e.Seq, seq)
	}
}

// expectBatches expects the batches from…to-1, whole.
func (fw *following) expectBatches(from, to uint64) {
	fw.t.Helper()
	for seq := from; seq < to; seq++ {
		e := fw.expect(FeedBatch)
		if e.Seq != seq || e.BadEvents != 0 || len(e.Ops) != 1 || uint64(e.Ops[0].Hashes[0]) != seq || e.Rank != 0 {
			fw.t.Fatalf("batch %+v, want number %d", e, seq)
		}
	}
}

// subscribed waits until the publisher knows the feed's subscription.
func (fw *following) subscribed(p *publisher) {
	fw.t.Helper()
	for deadline := time.Now().Add(patience); p.pub.Subscribers() == 0; {
		if time.Now().After(deadline) {
			fw.t.Fatal("never subscribed")
		}
		time.Sleep(time.Millisecond)
	}
}

func at(from ...uint64) func(uint64) bool {
	return func(seq uint64) bool { return slices.Contains(from, seq) }
}

func between(from, to uint64) func(uint64) bool {
	return func(seq uint64) bool { return from <= seq && seq < to }
}
