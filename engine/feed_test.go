package engine

import (
	"testing"
	"time"

	"github.com/rhizome-router/rhizome/engine/kvwire/wiretest"
	"github.com/rhizome-router/rhizome/kv"
)

// What was published before and what comes live join without a seam.
func TestFeedCleanRun(t *testing.T) {
	for name, topic := range map[string][]byte{"3-frame replies": nil, "4-frame replies": []byte("kv@10.0.0.7:8000@m")} {
		t.Run(name, func(t *testing.T) {
			p := startPublisher(t, "", "")
			p.topic = topic
			p.publish(100)
			fw := follow(t, p.config())
			fw.expectBatches(0, 100)
			fw.expect(FeedConnected)
			fw.subscribed(p)
			p.publish(1000)
			fw.expectBatches(100, 1100)
			if s := fw.feed.Stats(); s.Gaps+s.Resets+s.Restarts+s.Overflows+s.Refused+s.Undecodable != 0 || s.Messages != 1000 || s.ReplayRounds != 1 {
				t.Errorf("stats of a clean run: %+v", s)
			}
		})
	}
}

// Messages published between the replay and the subscription's arrival, or
// while we are busy replaying, are neither lost nor doubled.
func TestFeedJoinsUnderLoad(t *testing.T) {
	p := startPublisher(t, "", "")
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for range 5000 {
			p.publish(1)
			select {
			case <-stop:
				return
			default:
			}
		}
	}()
	defer func() { close(stop); <-done }()
	cfg := p.config()
	cfg.TailCheck = 10 * time.Millisecond
	fw := follow(t, cfg)
	want := uint64(0)
	for want < 5000 {
		e := fw.event()
		if e.Kind == FeedConnected {
			continue
		}
		if e.Kind != FeedBatch || e.Seq != want {
			t.Fatalf("event %+v, want batch %d", e, want)
		}
		want++
	}
}

func TestFeedFillsGaps(t *testing.T) {
	p := startPublisher(t, "", "")
	p.dropLive = at(3, 4, 8)
	fw := follow(t, p.config())
	fw.expect(FeedConnected)
	fw.subscribed(p)
	p.publish(10)
	fw.expectBatches(0, 10)
	if s := fw.feed.Stats(); s.Resets != 0 || s.Gaps == 0 {
		t.Errorf("stats %+v", s)
	}
}

// No later message tells of a lost tail: a silence must be looked into.
func TestFeedFindsLostTail(t *testing.T) {
	p := startPublisher(t, "", "")
	p.dropLive = between(5, 1000)
	cfg := p.config()
	cfg.TailCheck = 5 * time.Millisecond
	fw := follow(t, cfg)
	fw.expect(FeedConnected)
	fw.subscribed(p)
	p.publish(10)
	fw.expectBatches(0, 10)
}

func TestFeedSeesRestart(t *testing.T) {
	for name, second := range map[string]int{
		"with fewer batches":               3,
		"with none yet":                    0,
		"that has passed our number":       20,
		"that has just reached our number": 10,
	} {
		t.Run(name, func(t *testing.T) {
			p := startPublisher(t, "", "")
			p.publish(10)
			cfg := p.config()
			fw := follow(t, cfg)
			fw.expectBatches(0, 10)
			fw.expect(FeedConnected)
			// The new life must have got so far before we see any of it.
			p.pub.Close()
			fw.expect(FeedDisconnected)
			p.router.Close()
			events, replay := p.pub.Addr().String(), p.router.Addr().String()
			p = startPublisher(t, "127.0.0.1:0", replay)
			p.publish(second)
			p.pub.Close()
			hidden := p
			p = startPublisher(t, events, "-")
			p.router, p.next, p.life = hidden.router, hidden.next, hidden.life
			fw.expectReset(0)
			fw.expectBatches(0, uint64(second))
			fw.expect(FeedConnected)
			fw.subscribed(p)
			p.publish(5)
			fw.expectBatches(uint64(second), uint64(second)+5)
			if s := fw.feed.Stats(); s.Restarts != 1 {
				t.Errorf("stats %+v", s)
			}
		})
	}
}

// A proxy may hide that the engine behind it is another one.
func TestFeedSeesRestartOnLiveConnection(t *testing.T) {
	p := startPublisher(t, "", "")
	fw := follow(t, p.config())
	fw.expect(FeedConnected)
	fw.subscribed(p)
	p.publish(10)
	fw.expectBatches(0, 10)
	p.mu.Lock()
	p.next, p.ring, p.life = 0, nil, p.life+1
	p.mu.Unlock()
	p.publish(3)
	fw.expectReset(0)
	fw.expectBatches(0, 3)
}

func TestFeedReplayTooShort(t *testing.T) {
	t.Run("from the start", func(t *testing.T) {
		p := startPublisher(t, "", "")
		p.ringMax = 20
		p.publish(100)
		fw := follow(t, p.config())
		fw.expectReset(80)
		fw.expectBatches(80, 100)
		fw.expect(FeedConnected)
	})
	t.Run("for a gap", func(t *testing.T) {
		p := startPublisher(t, "", "")
		p.ringMax = 20
		p.dropLive = between(10, 100)
		fw := follow(t, p.config())
		fw.expect(FeedConnected)
		fw.subscribed(p)
		p.publish(101)
		fw.expectBatches(0, 10)
		fw.expectReset(81)
		fw.expectBatches(81, 101)
	})
}

// A number that the engine drew and never published.
func TestFeedHoleThatReplayNeverHolds(t *testing.T) {
	t.Run("live", func(t *testing.T) {
		p := startPublisher(t, "", "")
		fw := follow(t, p.config())
		fw.expect(FeedConnected)
		fw.subscribed(p)
		p.publish(5)
		p.skip()
		p.publish(4)
		fw.expectBatches(0, 5)
		fw.expectReset(6)
		fw.expectBatches(6, 10)
	})
	t.Run("in history", func(t *testing.T) {
		p := startPublisher(t, "", "")
		p.publish(5)
		p.skip()
		p.publish(4)
		fw := follow(t, p.config())
		fw.expectBatches(0, 5)
		fw.expectReset(6)
		fw.expectBatches(6, 10)
		fw.expect(FeedConnected)
	})
}

// Replies are dropped on the way when we are slow, the end marker too.
func TestFeedLossyReplay(t *testing.T) {
	for name, drop := range map[string]func(round, i int) bool{
		"a hole":         func(r, i int) bool { return r == 0 && i >= 10 && i < 20 },
		"holes and tail": func(r, i int) bool { return r < 3 && (i == 5 || i > 30) },
		"end marker":     func(r, i int) bool { return r == 0 && i == 50 },
		"all of it":      func(r, i int) bool { return r == 0 },
	} {
		t.Run(name, func(t *testing.T) {
			p := startPublisher(t, "", "")
			p.dropReply = drop
			p.publish(50)
			cfg := p.config()
			cfg.ReplayIdle = 200 * time.Millisecond
			fw := follow(t, cfg)
			fw.expectBatches(0, 50)
			fw.expect(FeedConnected)
			if s := fw.feed.Stats(); s.Resets != 0 || s.ReplayRounds < 2 {
				t.Errorf("stats %+v", s)
			}
		})
	}
}

func TestFeedReplayWithoutEnd(t *testing.T) {
	p := startPublisher(t, "", "")
	p.noEnd = true
	p.publish(50)
	cfg := p.config()
	cfg.ReplayIdle = 200 * time.Millisecond
	fw := follow(t, cfg)
	fw.expectBatches(0, 50)
	fw.expect(FeedConnected)
	fw.subscribed(p)
	p.publish(5)
	fw.expectBatches(50, 55)
}

func TestFeedReplayInBoundedMemory(t *testing.T) {
	p := startPublisher(t, "", "")
	p.publish(500)
	cfg := p.config()
	cfg.ReplayBytes = 50 * messageOverhead
	fw := follow(t, cfg)
	fw.expectBatches(0, 500)
	fw.expect(FeedConnected)
	if s := fw.feed.Stats(); s.ReplayRounds < 10 {
		t.Errorf("stats %+v", s)
	}
}

// Whose events they are decides what they mean: SGLang's clear empties the
// host's memory, too.
func TestFeedReadsItsEnginesEvents(t *testing.T) {
	for engine, tiers := range map[string]kv.TierMask{"": kv.HBM.Mask(), VLLM: kv.HBM.Mask(), SGLang: kv.HBM.Mask() | kv.CPU.Mask()} {
		p := startPublisher(t, "", "")
		cfg := p.config()
		cfg.Engine = engine
		fw := follow(t, cfg)
		fw.expect(FeedConnected)
		fw.subscribed(p)
		p.mu.Lock()
		p.send(wiretest.Batch(t, []any{"AllBlocksCleared"}))
		p.mu.Unlock()
		if e := fw.expect(FeedBatch); len(e.Ops) != 1 || e.Ops[0].Tiers != tiers {
			t.Errorf("%q: %+v", engine, e.Ops)
		}
	}
}

// A feed that is told to start over does so with what can be replayed, and goes
// on live without a seam.
func TestFeedResync(t *testing.T) {
	p := startPublisher(t, "", "")
	fw := follow(t, p.config())
	fw.expect(FeedConnected)
	fw.subscribed(p)
	p.publish(10)
	fw.expectBatches(0, 10)
	fw.feed.Resync()
	fw.expectReset(0)
	fw.expectBatches(0, 10)
	p.publish(3)
	fw.expectBatches(10, 13)
	if s := fw.feed.Stats(); s.Resyncs != 1 || s.Restarts != 0 || s.Gaps != 0 {
		t.Errorf("stats %+v", s)
	}
}

func TestFeedResyncWithoutReplay(t *testing.T) {
	p := startPublisher(t, "", "-")
	fw := follow(t, p.config())
	fw.expect(FeedConnected)
	fw.subscribed(p)
	p.publish(5)
	fw.expectBatches(0, 5)
	fw.feed.Resync()
	for deadline := time.Now().Add(patience); fw.feed.Stats().Resyncs == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("never started over")
		}
	}
	p.publish(2)
	fw.expectReset(5)
	fw.expectBatches(5, 7)
}
