package fleet

import (
	"cmp"
	"context"

	"github.com/rhizome-router/rhizome/crdt"
	"github.com/rhizome-router/rhizome/engine"
	"github.com/rhizome-router/rhizome/index"
	"github.com/rhizome-router/rhizome/kv"
)

// follower applies one rank's KV events to the index: it owns the stream log
// and is the one applier of the member's slot.
type follower struct {
	f       *Fleet
	m       *Member
	stream  *crdt.Stream
	cache   Cache // published after each event
	changes []index.Change
}

// follow runs one rank's feed until ctx ends. A worker without an events
// endpoint has none: its cache is known by what was sent to it.
func (f *Fleet) follow(ctx context.Context, w *worker, m *Member, model string) {
	if w.Spec.Events == "" {
		f.deps.Log.Warn("worker has no KV events; its cache is guessed from what is sent to it",
			"worker", w.Spec.URL, "fix", "name its events endpoint: --worker 'URL,events=tcp://HOST:5557,replay=tcp://HOST:5558'")
		return
	}
	fw := &follower{f: f, m: m, stream: crdt.NewStream(crdt.StreamConfig{Counted: true}), cache: m.Cache()}
	feed := engine.NewFeed(engine.FeedConfig{
		Events: w.Spec.Events, Replay: w.Spec.Replay, Model: cmp.Or(w.Spec.Model, model), Rank: max(0, int(m.Target.Rank)),
		Clock: f.deps.Clock, Log: f.deps.Log.With("worker", w.Spec.URL),
	})
	m.feed.Store(feed)
	if err := feed.Run(ctx, fw.handle); err != nil && ctx.Err() == nil {
		f.deps.Log.Error("KV event feed ended", "worker", w.Spec.URL, "err", err)
	}
}

// handle takes one event of the feed; the feed calls it from one goroutine.
func (fw *follower) handle(e engine.FeedEvent) {
	switch e.Kind {
	case engine.FeedConnected:
		fw.cache.Live = true
	case engine.FeedDisconnected:
		fw.cache.Live = false
	case engine.FeedReset:
		fw.reset(e.Seq)
	case engine.FeedBatch:
		fw.m.stall.batch()
		fw.apply(e)
	}
	fw.m.SetCache(fw.cache)
}

// reset starts the cache anew in a slot of its own, which readers see at once.
func (fw *follower) reset(next uint64) {
	old := fw.cache.Slot
	fw.stream.Start(next)
	fw.cache = Cache{
		Slot: fw.f.deps.Index.Open(index.HBMThenOneTier), Live: fw.cache.Live, BlockTokens: fw.cache.BlockTokens,
		Batches: fw.cache.Batches, BadEvents: fw.cache.BadEvents, Resets: fw.cache.Resets + 1,
	}
	fw.m.SetCache(fw.cache)
	fw.f.deps.Index.Drop(old)
	fw.f.deps.Approx.Drop(old)
}

func (fw *follower) apply(e engine.FeedEvent) {
	fw.cache.Batches++
	fw.cache.BadEvents += uint64(e.BadEvents)
	for _, op := range e.Ops {
		if op.Kind == kv.Insert && op.Group == 0 && op.BlockTokens > 0 {
			fw.cache.BlockTokens = int(op.BlockTokens)
		}
	}
	fw.changes = fw.changes[:0]
	stored := 0
	fw.stream.Apply(e.Seq, e.Ops, func(c index.Change) {
		fw.changes = append(fw.changes, c)
		if c.Group != 0 {
			return
		}
		switch {
		case !c.Present:
			fw.cache.Evicting[c.Tier] = true
		case c.Tier == kv.HBM:
			stored++
		}
	})
	fw.f.deps.Index.Apply(fw.cache.Slot, fw.changes)
	fw.cache.StoredTokens += uint64(stored * fw.cache.BlockTokens)
	fw.cache.Log = fw.stream.Stats()
	fw.cache.Next, fw.cache.LastBatch = fw.stream.Next(), fw.f.deps.Clock.Now()
	for t := kv.HBM; t < kv.NumTiers; t++ {
		fw.cache.HeldTokens[t] = fw.stream.Held(t) * fw.cache.BlockTokens
	}
}
