package engine

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"
)

func TestFeedWithoutReplay(t *testing.T) {
	p := startPublisher(t, "", "-")
	p.publish(7) // lost to us
	fw := follow(t, p.config())
	fw.expect(FeedConnected)
	fw.subscribed(p)
	p.publish(3)
	fw.expectReset(7)
	fw.expectBatches(7, 10)

	p.hangUp() // nothing happens meanwhile
	fw.expect(FeedDisconnected)
	fw.expect(FeedConnected)
	fw.subscribed(p)
	p.publish(2)
	fw.expectBatches(10, 12)

	p.dropLive = at(12) // a gap
	p.publish(2)
	fw.expectReset(13)
	fw.expectBatches(13, 14)

	p = p.restart()
	fw.expect(FeedDisconnected)
	fw.expect(FeedConnected)
	fw.subscribed(p)
	p.publish(2)
	fw.expectReset(0)
	fw.expectBatches(0, 2)
}

// A replay endpoint that doesn't answer is worse than none only in the log.
func TestFeedReplayUnreachable(t *testing.T) {
	p := startPublisher(t, "", "-")
	dead := startPublisher(t, "", "-") // speaks PUB: no ROUTER
	cfg := p.config()
	cfg.Replay = "tcp://" + dead.pub.Addr().String()
	var log bytes.Buffer
	cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
	fw := follow(t, cfg)
	fw.expect(FeedConnected)
	if !strings.Contains(log.String(), "a SUB socket") && !strings.Contains(log.String(), "a DEALER socket talks to") {
		t.Errorf("the log doesn't say what is wrong:\n%s", log.String())
	}
	fw.subscribed(p)
	p.publish(3)
	fw.expectBatches(0, 3)
	p.dropLive = at(3)
	p.publish(2)
	fw.expectReset(4)
	fw.expectBatches(4, 5)
}

// Strangers' messages and unreadable payloads cost only themselves.
func TestFeedBadMessages(t *testing.T) {
	p := startPublisher(t, "", "")
	fw := follow(t, p.config())
	fw.expect(FeedConnected)
	fw.subscribed(p)
	p.publish(1)
	p.pub.Send([]byte("hello"))
	p.pub.Send(nil, []byte{1, 2, 3, 4}, []byte{1})
	p.mu.Lock()
	p.send([]byte{0xdd, 0xff, 0xff, 0xff, 0xff})
	p.mu.Unlock()
	p.publish(1)
	fw.expectBatches(0, 1)
	if e := fw.expect(FeedBatch); e.Seq != 1 || e.BadEvents != 1 || len(e.Ops) != 0 {
		t.Errorf("the unreadable batch is %+v", e)
	}
	fw.expectBatches(2, 3)
	if s := fw.feed.Stats(); s.Refused != 2 || s.Undecodable != 1 || s.Gaps != 0 {
		t.Errorf("stats %+v", s)
	}
}

// A receiver slower than the engine fills our buffer: what is dropped there is
// asked for again.
func TestFeedOverflow(t *testing.T) {
	for name, limit := range map[string]func(*FeedConfig){
		"messages": func(c *FeedConfig) { c.BufferMessages = 4 },
		"bytes":    func(c *FeedConfig) { c.BufferBytes = 200 },
	} {
		t.Run(name, func(t *testing.T) {
			p := startPublisher(t, "", "")
			cfg := p.config()
			cfg.TailCheck = 10 * time.Millisecond
			limit(&cfg)
			f := NewFeed(cfg)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			want := uint64(0)
			f.Run(ctx, func(e FeedEvent) {
				switch {
				case e.Kind == FeedConnected:
					(&following{t: t, feed: f}).subscribed(p)
					p.publish(1)
				case e.Kind != FeedBatch || e.Seq != want:
					t.Errorf("event %+v, want batch %d", e, want)
					cancel()
				case want == 0:
					p.publish(500)
					for f.Stats().Overflows == 0 && ctx.Err() == nil {
						time.Sleep(time.Millisecond)
					}
				}
				if e.Kind == FeedBatch {
					if want++; want == 501 {
						cancel()
					}
				}
			})
			if want != 501 {
				t.Errorf("stopped at %d; stats %+v", want, f.Stats())
			}
		})
	}
}

// Ending in the middle of a replay must not look like lost events.
func TestFeedEndsInReplay(t *testing.T) {
	p := startPublisher(t, "", "")
	p.dropReply = func(round, i int) bool { return round > 0 }
	p.dropLive = at(1)
	cfg := p.config()
	cfg.ReplayIdle = time.Hour
	f := NewFeed(cfg)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	f.Run(ctx, func(e FeedEvent) {
		switch {
		case e.Kind == FeedConnected:
			(&following{t: t, feed: f}).subscribed(p)
			p.publish(3)
		case e.Kind == FeedBatch && e.Seq == 0:
			go func() {
				for f.Stats().ReplayRounds < 2 && ctx.Err() == nil {
					time.Sleep(time.Millisecond)
				}
				cancel()
			}()
		default:
			t.Errorf("event %+v", e)
		}
	})
	if s := f.Stats(); s.Gaps != 1 || s.Resets != 0 {
		t.Errorf("stats %+v", s)
	}
}

func TestFeedRankPorts(t *testing.T) {
	n, err := rankEndpoint("tcp://127.0.0.1:5557", 3)
	if err != nil || n != "tcp://127.0.0.1:5560" {
		t.Errorf("rank 3 is at %s, %v", n, err)
	}
	beyond := FeedConfig{Events: "tcp://127.0.0.1:65535", Rank: 1}
	if err := NewFeed(beyond).Run(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "rank 1 would be 65536") {
		t.Errorf("%v", err)
	}
}

func TestFeedConnectsWhenEngineComes(t *testing.T) {
	p := startPublisher(t, "", "-")
	addr := p.pub.Addr().String()
	p.pub.Close()
	fw := follow(t, p.config())
	p = startPublisher(t, addr, "-")
	fw.expect(FeedConnected)
	fw.subscribed(p)
	p.publish(1)
	fw.expectBatches(0, 1)
}

// BenchmarkFeed measures small batches from a publisher's Send to our emit,
// both in this process.
func BenchmarkFeed(b *testing.B) {
	p := startPublisher(b, "", "")
	p.ringMax = 10
	cfg := p.config()
	cfg.BufferMessages = 1 << 16
	fw := follow(b, cfg)
	fw.expect(FeedConnected)
	fw.subscribed(p)
	const burst = 1000
	payload := p.payload(1)
	b.ReportAllocs()
	for b.Loop() {
		p.mu.Lock()
		for range burst {
			p.send(payload)
		}
		p.mu.Unlock()
		for range burst {
			<-fw.events
		}
	}
	b.ReportMetric(float64(b.N)*burst/b.Elapsed().Seconds(), "msg/s")
	if s := fw.feed.Stats(); s.Gaps+s.Resets > 0 {
		b.Errorf("stats %+v", s)
	}
}
