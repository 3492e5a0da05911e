package fleet

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/rhizome-router/rhizome/crdt"
	"github.com/rhizome-router/rhizome/engine"
	"github.com/rhizome-router/rhizome/engine/kvwire"
	"github.com/rhizome-router/rhizome/index"
	"github.com/rhizome-router/rhizome/kv"
)

// logs is the stream log of every followed rank, and where the index shows it.
// One lock guards all of it and the index's appliers, since the streams share
// one memory limit: what goes to make room may be another stream's.
type logs struct {
	mu    sync.Mutex
	log   *crdt.Log
	slots map[crdt.StreamID]index.Slot
}

// follower applies one rank's KV events to its stream log and to the index.
type follower struct {
	f       *Fleet
	id      crdt.StreamID
	m       *Member
	rule    index.TierRule
	told    bool // the worker itself told its block size
	steps   bool // a batch is what one step of the engine did
	sizes   stepSizes
	groups  map[uint16]index.Group // windowed KV groups of a hybrid model, as named so far
	stream  *crdt.Stream
	cache   Cache // published after each event
	changes []index.Change
}

// follow runs one rank's feed until ctx ends, if the worker has one.
func (f *Fleet) follow(ctx context.Context, w *worker, in *Inlet, id engine.Identity, model string) {
	if in.follower == nil {
		return
	}
	m := in.Member
	feed := engine.NewFeed(engine.FeedConfig{
		Engine: id.Engine, Events: id.Events, Replay: id.Replay, Model: cmp.Or(w.Spec.Model, model), Rank: max(0, int(m.Target.Rank)),
		Guard: f.cfg.Guard, Clock: f.deps.Clock, Log: f.deps.Log.With("worker", w.Spec.URL),
	})
	m.feed.Store(feed)
	if err := feed.Run(ctx, in.Feed); err != nil && ctx.Err() == nil {
		f.deps.Log.Error("KV event feed ended", "worker", w.Spec.URL, "err", err)
	}
}

// ruleOf is how an engine goes on from HBM to lower tiers.
func ruleOf(id engine.Identity) index.TierRule {
	if id.Engine == engine.SGLang {
		return index.DeviceThenHost
	}
	return index.HBMThenOneTier
}

// handle takes one event of the feed; the feed calls it from one goroutine.
func (fw *follower) handle(e engine.FeedEvent) {
	switch e.Kind {
	case engine.FeedConnected:
		// What can be replayed has been: the cache is that of this process.
		fw.cache.Live, fw.cache.FreshAt = true, fw.f.deps.Clock.Now()
		fw.m.SetOutdated(false)
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
	fw.f.logs.mu.Lock()
	defer fw.f.logs.mu.Unlock()
	fw.stream.Start(next)
	fw.m.SetOutdated(false)
	fw.groups = nil
	fw.cache = Cache{
		Known: ByEvents, SaltInRoot: fw.cache.SaltInRoot, Live: fw.cache.Live, BlockTokens: fw.cache.BlockTokens, StepTokens: fw.cache.StepTokens, Next: next, FreshAt: fw.f.deps.Clock.Now(),
		LastBatch: fw.cache.LastBatch, Batches: fw.cache.Batches, BadEvents: fw.cache.BadEvents, Resets: fw.cache.Resets + 1,
	}
	fw.f.newSlot(fw.m, &fw.cache, fw.rule)
	fw.f.logs.slots[fw.id] = fw.cache.Slot
}

// newSlot gives a member's cache a fresh slot, publishes it and forgets the old
// one.
func (f *Fleet) newSlot(m *Member, c *Cache, rule index.TierRule) {
	old := m.Cache().Slot
	c.Slot = f.deps.Index.Open(rule)
	m.SetCache(*c)
	f.deps.Index.Drop(old)
	f.deps.Approx.Drop(old)
}

func (fw *follower) apply(e engine.FeedEvent) {
	fw.cache.Batches++
	fw.cache.BadEvents += uint64(e.BadEvents)
	computed := 0
	for _, op := range e.Ops {
		if op.Kind != kv.Insert {
			continue
		}
		if !fw.told { // only a last page can be shorter than a block, so the largest is one
			fw.cache.BlockTokens = max(fw.cache.BlockTokens, int(op.BlockTokens))
		}
		if op.Tier == kv.HBM {
			computed += len(op.Blocks) * int(op.BlockTokens)
		}
	}
	if fw.steps {
		fw.sizes.observe(computed)
		fw.cache.StepTokens = fw.sizes.full()
	}
	fw.f.logs.mu.Lock()
	defer fw.f.logs.mu.Unlock()
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
	fw.f.trim()
	fw.window(e.Groups)
	fw.cache.StoredTokens += uint64(stored * fw.cache.BlockTokens)
	fw.cache.Log, fw.cache.Truncated = fw.stream.Stats(), fw.stream.Truncated()
	fw.cache.Next, fw.cache.LastBatch = fw.stream.Next(), fw.f.deps.Clock.Now()
	for t := kv.HBM; t < kv.NumTiers; t++ {
		fw.cache.HeldTokens[t] = fw.stream.Held(t) * fw.cache.BlockTokens
	}
}

// trim makes room where the logs are over their limit: the coldest tier of a
// stream goes, from the index too. It needs logs.mu.
func (f *Fleet) trim() {
	var gone []index.Change
	var of crdt.StreamID
	flush := func() {
		if len(gone) > 0 {
			f.deps.Index.Apply(f.logs.slots[of], gone)
			f.deps.Log.Warn("the logs of KV events are at their limit: a worker's coldest tier is no longer indexed",
				"worker", of.Target, "tier", gone[0].Tier, "blocks", len(gone))
		}
		gone = gone[:0]
	}
	f.logs.log.Trim(func(id crdt.StreamID, c index.Change) {
		if id != of || len(gone) > 0 && gone[0].Tier != c.Tier {
			flush()
			of = id
		}
		gone = append(gone, c)
	})
	flush()
}

// window tells the index of the KV groups that hold only their last tokens, as
// they show: a hit ends where one of them can't serve it. Groups with blocks of
// another size than main attention's can't be lined up with it and don't count.
func (fw *follower) window(groups []kvwire.Group) {
	news := false
	for _, g := range groups {
		if int(g.BlockTokens) != fw.cache.BlockTokens || g.WindowTokens == 0 {
			continue
		}
		id := fw.stream.Group(g.ID)
		named := index.Group{ID: id, WindowBlocks: int(g.WindowTokens+g.BlockTokens-1) / int(g.BlockTokens)}
		if id == 0 || fw.groups[id] == named || len(fw.groups) >= index.MaxGroups {
			continue
		}
		if fw.groups == nil {
			fw.groups = make(map[uint16]index.Group)
		}
		fw.groups[id], news = named, true
	}
	if !news {
		return
	}
	all := slices.SortedFunc(maps.Values(fw.groups), func(a, b index.Group) int { return cmp.Compare(a.ID, b.ID) })
	if err := fw.f.deps.Index.SetGroups(fw.cache.Slot, all); err != nil {
		fw.f.deps.Log.Error("windowed KV groups", "worker", fw.m.Worker.Spec.URL, "err", err)
	}
}
