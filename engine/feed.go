package engine

import (
	"cmp"
	"context"
	crand "crypto/rand"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/engine/kvwire"
	"github.com/rhizome-router/rhizome/engine/sglang"
	"github.com/rhizome-router/rhizome/engine/vllm"
	"github.com/rhizome-router/rhizome/engine/zmtp"
	"github.com/rhizome-router/rhizome/kv"
)

// FeedKind says what a FeedEvent tells.
type FeedKind uint8

const (
	// FeedConnected: a live connection stands, and what could be replayed has
	// been emitted.
	FeedConnected FeedKind = iota
	// FeedReset: the cache described so far is gone, or can't be followed any
	// more. The next batch has the number Seq and starts from an empty cache.
	FeedReset
	// FeedBatch: the engine did Ops, in one step. Numbers are contiguous from
	// 0, or from the last reset's Seq.
	FeedBatch
	// FeedDisconnected: the connection is gone, Err says why. What was emitted
	// stays true until a later event says otherwise.
	FeedDisconnected
)

// FeedEvent is one thing that a Feed has to tell.
type FeedEvent struct {
	Kind FeedKind
	Seq  uint64 // Reset, Batch

	// Batch, as kvwire.Batch has them. Rank is what the engine wrote, -1 where
	// it wrote none. BadEvents counts events that couldn't be read; a payload
	// that can't be read at all is a batch without ops and one bad event.
	Ops           []kv.Op
	Groups        []kvwire.Group
	Rank          int
	BadEvents     int
	UnknownEvents int

	Err error // Disconnected
}

// FeedConfig says whose events to follow. The zero value of each limit takes
// its default.
type FeedConfig struct {
	Engine string // VLLM or SGLang: whose events to read; default VLLM
	Events string // rank 0's endpoint, "tcp://host:port"; host "*" listens
	Replay string // rank 0's endpoint; empty: no replay
	Rank   int    // data-parallel rank, added to both ports
	Model  string // the model's name in block keys
	Guard  Guard  // says where the endpoints may lead
	// Resume goes on from the batch with number Next, in place of the first that
	// the engine still has.
	Resume bool
	Next   uint64

	// BufferMessages and BufferBytes bound what waits while a replay is read
	// or the receiver of events is slow. Over it, messages are dropped and
	// asked for again. Defaults 8192 and 256 MiB.
	BufferMessages int
	BufferBytes    int
	// ReplayBytes bounds one round of a replay in memory; the rest takes more
	// rounds. Default 256 MiB.
	ReplayBytes int
	// ReplayIdle ends a round of a replay in which nothing came for so long, or
	// for a quarter of a second once something has: engines drop replies
	// silently, the end marker too. Default 2 s.
	ReplayIdle time.Duration
	// TailCheck is how long a silence lasts before the replay is asked whether
	// the last messages were lost: no later one would tell. It doubles up to
	// MaxTailCheck while the silence lasts. Defaults 2 s and 1 min.
	TailCheck, MaxTailCheck time.Duration
	// ConnectTimeout bounds dialling and the handshake. Default 5 s.
	ConnectTimeout time.Duration
	// MinBackoff and MaxBackoff bound the pause between connections, which
	// doubles and is jittered. Defaults 100 ms and 5 s.
	MinBackoff, MaxBackoff time.Duration

	Clock clock.Clock  // default clock.Real()
	Rand  *rand.Rand   // of the jitter; default seeded by the system
	Log   *slog.Logger // default slog.Default()
}

func (c FeedConfig) withDefaults() FeedConfig {
	c.BufferMessages = cmp.Or(c.BufferMessages, 8192)
	c.BufferBytes = cmp.Or(c.BufferBytes, 256<<20)
	c.ReplayBytes = cmp.Or(c.ReplayBytes, 256<<20)
	c.ReplayIdle = cmp.Or(c.ReplayIdle, 2*time.Second)
	c.TailCheck = cmp.Or(c.TailCheck, 2*time.Second)
	c.MaxTailCheck = max(c.TailCheck, cmp.Or(c.MaxTailCheck, time.Minute))
	c.ConnectTimeout = cmp.Or(c.ConnectTimeout, 5*time.Second)
	c.MinBackoff = cmp.Or(c.MinBackoff, 100*time.Millisecond)
	c.MaxBackoff = max(c.MinBackoff, cmp.Or(c.MaxBackoff, 5*time.Second))
	if c.Clock == nil {
		c.Clock = clock.Real()
	}
	if c.Rand == nil {
		var seed [32]byte
		crand.Read(seed[:]) // never fails
		c.Rand = rand.New(rand.NewChaCha8(seed))
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	return c
}

// FeedStats counts what a feed went through.
type FeedStats struct {
	Messages     uint64 `json:"messages"`      // live messages received
	Refused      uint64 `json:"refused"`       // messages that are no batch of events
	Undecodable  uint64 `json:"undecodable"`   // batches whose payload couldn't be read
	Overflows    uint64 `json:"overflows"`     // live messages dropped because our buffer was full
	Gaps         uint64 `json:"gaps"`          // holes seen in the live stream
	ReplayRounds uint64 `json:"replay_rounds"` // requests for a replay
	Restarts     uint64 `json:"restarts"`      // restarts of the engine noticed
	Resets       uint64 `json:"resets"`        // resets emitted
	Resyncs      uint64 `json:"resyncs"`       // times that Resync made it start over
}

// Feed follows the KV events of one data-parallel rank of one worker: it
// connects, asks for what it missed, puts both in order, and notices when the
// engine restarted or history is lost.
type Feed struct {
	cfg            FeedConfig
	events, replay string // this rank's endpoints
	decode         func(payload []byte, model string) (kvwire.Batch, error)

	resync chan struct{} // holds one wish at most

	messages, refused, undecodable, overflows, gaps, rounds, restarts, resets, resyncs atomic.Uint64
}

// NewFeed returns a feed; Run starts it.
func NewFeed(cfg FeedConfig) *Feed {
	f := &Feed{cfg: cfg.withDefaults(), decode: vllm.Decode, resync: make(chan struct{}, 1)}
	if cfg.Engine == SGLang {
		f.decode = sglang.Decode
	}
	return f
}

// Stats returns the counts so far. It may be called at any time.
func (f *Feed) Stats() FeedStats {
	return FeedStats{
		Messages: f.messages.Load(), Refused: f.refused.Load(), Undecodable: f.undecodable.Load(), Overflows: f.overflows.Load(),
		Gaps: f.gaps.Load(), ReplayRounds: f.rounds.Load(), Restarts: f.restarts.Load(), Resets: f.resets.Load(),
		Resyncs: f.resyncs.Load(),
	}
}

// Resync makes the feed start over with what can be replayed, because what it
// told turned out to be wrong. It returns at once; while there is no connection
// the wish waits for the next one. It may be called at any time.
func (f *Feed) Resync() {
	select {
	case f.resync <- struct{}{}:
	default: // wished already
	}
}

// Run follows the events until ctx ends, whose error it then returns; any
// other error is about the configuration. It calls emit from one goroutine and
// has no other running when it returns. A slow emit makes messages wait, then
// be replayed. Run may be called once.
func (f *Feed) Run(ctx context.Context, emit func(FeedEvent)) error {
	connect, closeListener, err := f.connector(ctx)
	if err != nil {
		return fmt.Errorf("follow KV events: %w", err)
	}
	defer closeListener()
	fo := &follower{f: f, emit: emit, started: f.cfg.Resume, next: f.cfg.Next, dirty: f.cfg.Resume}
	pause := f.cfg.MinBackoff
	told := false // that there is no connection
	for {
		start := f.cfg.Clock.Now()
		connected, err := f.session(ctx, connect, fo)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if connected {
			emit(FeedEvent{Kind: FeedDisconnected, Err: err})
			if f.cfg.Clock.Now().Sub(start) > f.cfg.MaxBackoff {
				pause = f.cfg.MinBackoff // it held for a while
			}
		}
		level := slog.LevelDebug // of the further attempts
		if connected || !told {
			level, told = slog.LevelWarn, true
		}
		f.cfg.Log.Log(ctx, level, "KV event feed broken, will connect again until it stands", "err", err)
		jittered := time.Duration((0.5 + f.cfg.Rand.Float64()) * float64(pause))
		if f.cfg.Clock.Sleep(ctx, jittered) != nil {
			return ctx.Err()
		}
		pause = min(2*pause, f.cfg.MaxBackoff)
	}
}

// connector returns how to get the next live connection: by dialling, or where
// the endpoint's host is "*" by waiting for the engine to dial in.
func (f *Feed) connector(ctx context.Context) (connect func() (*zmtp.Conn, error), closeListener func(), err error) {
	if f.events, err = rankEndpoint(f.cfg.Events, f.cfg.Rank); err != nil {
		return nil, nil, err
	}
	if f.cfg.Replay != "" {
		if f.replay, err = rankEndpoint(f.cfg.Replay, f.cfg.Rank); err != nil {
			return nil, nil, err
		}
	}
	opt := zmtp.Options{Type: zmtp.SUB, HandshakeTimeout: f.cfg.ConnectTimeout}
	if !strings.HasPrefix(f.cfg.Events, "tcp://*:") {
		return func() (*zmtp.Conn, error) {
			ctx, cancel := context.WithTimeout(ctx, f.cfg.ConnectTimeout)
			defer cancel()
			opt.Dialer = f.cfg.Guard.socketDialer(f.events)
			return zmtp.Dial(ctx, f.events, opt)
		}, func() {}, nil
	}
	ln, err := zmtp.Listen(ctx, f.events, opt)
	if err != nil {
		return nil, nil, err
	}
	stop := context.AfterFunc(ctx, func() { ln.Close() })
	return func() (*zmtp.Conn, error) { return ln.Accept(ctx) }, func() { stop(); ln.Close() }, nil
}

// session lives as long as one connection.
func (f *Feed) session(ctx context.Context, connect func() (*zmtp.Conn, error), fo *follower) (connected bool, err error) {
	conn, err := connect()
	if err != nil {
		return false, err
	}
	in := newInbox(conn, f)
	defer in.close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()

	fo.begin()
	if err := fo.catchUp(ctx); err != nil {
		f.cfg.Log.Warn("replay of KV events failed: a gap will make the index of this worker start anew",
			"replay", f.replay, "err", err, "fix", "check the worker's replay_endpoint and replay=")
	}
	f.cfg.Log.Info("KV event feed connected", "events", f.events, "replay", f.replay, "next", fo.next)
	fo.emit(FeedEvent{Kind: FeedConnected})
	return true, f.live(ctx, in, fo)
}

// live takes messages until the connection breaks.
func (f *Feed) live(ctx context.Context, in *inbox, fo *follower) error {
	silence := f.cfg.TailCheck
	timer := time.NewTimer(silence)
	defer timer.Stop()
	quiet := true // no message since the timer was set
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case m, ok := <-in.messages:
			if !ok {
				return in.err
			}
			in.took(m)
			quiet = false
			fo.receive(ctx, m)
			if len(in.messages) == 0 && in.overflowed.Swap(false) {
				fo.catchUpOrWarn(ctx, "after an overflow of our buffer")
			}
		case <-f.resync:
			fo.startOver()
			fo.catchUpOrWarn(ctx, "to start over")
		case <-timer.C:
			if !quiet {
				silence, quiet = f.cfg.TailCheck, true
			} else {
				fo.catchUpOrWarn(ctx, "in a silence")
				silence = min(2*silence, f.cfg.MaxTailCheck)
			}
			timer.Reset(silence)
		}
	}
}
