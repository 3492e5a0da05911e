package fleet

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/crdt"
	"github.com/rhizome-router/rhizome/engine"
	"github.com/rhizome-router/rhizome/engine/kvwire"
	"github.com/rhizome-router/rhizome/index"
	"github.com/rhizome-router/rhizome/kv"
	"github.com/rhizome-router/rhizome/mesh/core"
)

// follower is one rank's cache as its KV events tell it, whether this replica
// reads them or a peer does. Its fields are used within Do of the mesh.
type follower struct {
	f       *Fleet
	m       *Member
	id      crdt.StreamID // what counts: of the boot that is current
	own     kv.Boot       // what this replica reads into, if it reads
	claimed clock.Instant // when that was last said to be current
	rule    index.TierRule
	told    bool // the worker itself told its block size
	steps   bool // a batch is what one step of the engine did
	begun   bool // the reading of events has
	turn    bool // a driver reads: see Inlet.Begin
	shown   bool // a stream was
	sizes   stepSizes
	groups  map[uint16]index.Group // windowed KV groups of a hybrid model, as named so far
	cache   Cache                  // published after each event
	stored  int                    // blocks that came to HBM with the batch that is applied
	process engine.Value           // start of the process, as scraped last
}

// follow runs one rank's feed, if the worker has one, while this replica is the
// one that reads it.
func (f *Fleet) follow(ctx context.Context, w *worker, in *Inlet, id engine.Identity, model string) {
	fw := in.follower
	if fw == nil {
		return
	}
	for f.awaitTurn(ctx, w.ID) {
		f.learnProcess(ctx, w, fw)
		turn, end := f.turn(ctx, w.ID)
		cfg := engine.FeedConfig{
			Engine: id.Engine, Events: id.Events, Replay: id.Replay, Model: cmp.Or(w.Spec.Model, model), Rank: max(0, int(in.Member.Target.Rank)),
			Guard: f.cfg.Guard, Clock: f.deps.Clock, Log: f.deps.Log.With("worker", w.Spec.URL),
		}
		f.mesh.Do(func(now clock.Instant, c *core.Core) { cfg.Next, cfg.Resume = fw.begin(now, c) })
		feed := engine.NewFeed(cfg)
		in.Member.feed.Store(feed)
		err := feed.Run(turn, in.Feed)
		in.Member.feed.Store(nil)
		f.mesh.Do(func(clock.Instant, *core.Core) { fw.hearAll() })
		if err != nil && turn.Err() == nil {
			f.deps.Log.Error("KV event feed ended", "worker", w.Spec.URL, "err", err)
			_ = f.deps.Clock.Sleep(ctx, f.cfg.RetryInterval) // awaitTurn sees it if ctx has ended
		}
		end()
	}
}

// learnProcess finds out which process of a worker runs, if no scrape has told
// yet: whether what was read before, here or by a peer, is of it decides where to
// go on.
func (f *Fleet) learnProcess(ctx context.Context, w *worker, fw *follower) {
	need := false
	f.mesh.Do(func(_ clock.Instant, c *core.Core) {
		_, told := c.Boot(fw.id.Target)
		need = (told || f.deps.Mesh != nil) && !fw.process.Known
	})
	if !need {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, f.cfg.ProbeTimeout)
	defer cancel()
	if t, err := w.Scrape(ctx); err == nil {
		fw.scraped(t.ProcessStartSeconds)
	}
}

// ruleOf is how an engine goes on from HBM to lower tiers.
func ruleOf(id engine.Identity) index.TierRule {
	if id.Engine == engine.SGLang {
		return index.DeviceThenHost
	}
	return index.HBMThenOneTier
}

// begin opens the stream to read into, and returns the number of the batch that
// it expects. It goes on with what is known of the present process, if that is
// the same as a peer read from.
func (fw *follower) begin(now clock.Instant, c *core.Core) (next uint64, resume bool) {
	fw.begun = true
	boot, note, known := c.BootNote(fw.id.Target)
	id := crdt.StreamID{Target: fw.id.Target, Boot: boot}
	if known && fw.same(note) { // though it may have said nothing yet, or nothing that came here
		if s, err := c.Open(now, id, true); err == nil {
			fw.own = boot
			return s.Next(), s.Next() > 0
		}
	}
	fw.renew(now, c, 0)
	return 0, false
}

// same reports whether a boot that was told with a note is that of the process
// that runs.
func (fw *follower) same(note string) bool {
	return fw.process.Known && note == processNote(fw.process)
}

// renew starts the cache anew: with a new boot, whose first batch is next.
func (fw *follower) renew(now clock.Instant, c *core.Core, next uint64) {
	fw.f.boots++
	boot := kv.Boot(clock.Source(fw.f.boots, "boot of "+fw.id.Target.String()+" by "+c.Self().Name).Uint64())
	fw.own, fw.claimed = boot, now
	c.Booted(now, fw.id.Target, boot, processNote(fw.process))
	s, err := c.Open(now, fw.ownID(), true)
	if err != nil {
		fw.f.deps.Log.Error("worker's KV events can't be kept", "worker", fw.m.Worker.Spec.URL, "err", err)
		return
	}
	s.Start(next)
	fw.cache.Next = next
}

func (fw *follower) ownID() crdt.StreamID {
	return crdt.StreamID{Target: fw.id.Target, Source: fw.id.Source, Boot: fw.own}
}

// claimEvery is how often a reader says at most that its boot is the current one.
const claimEvery = time.Second

// claim says so again if another replica has said otherwise: two may have begun
// to read before they knew of each other.
func (fw *follower) claim(now clock.Instant, c *core.Core) {
	if fw.begun && fw.own != fw.id.Boot && fw.reading() && c.Reads(fw.id.Target.Worker) && now.Sub(fw.claimed) >= claimEvery {
		fw.claimed = now
		c.Booted(now, fw.id.Target, fw.own, processNote(fw.process))
	}
}

// handle takes one event of the feed; the feed calls it from one goroutine.
func (fw *follower) handle(e engine.FeedEvent) {
	fw.f.mesh.Do(func(now clock.Instant, c *core.Core) {
		if !fw.begun {
			fw.begin(now, c)
		}
		switch e.Kind {
		case engine.FeedConnected:
			// What can be replayed has been: the cache is that of this process.
			fw.cache.Live, fw.cache.FreshAt = true, now
			fw.m.SetOutdated(false)
		case engine.FeedDisconnected:
			fw.cache.Live = false
		case engine.FeedReset:
			fw.renew(now, c, e.Seq)
			fw.cache.Resets++
		case engine.FeedBatch:
			fw.m.Told()
			fw.apply(now, c, e)
		}
		fw.claim(now, c)
		fw.tell(now, c)
		fw.m.SetCache(fw.cache)
	})
}

// apply takes a batch that this replica read.
func (fw *follower) apply(now clock.Instant, c *core.Core, e engine.FeedEvent) {
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
	fw.stored = 0
	if _, err := c.Publish(now, fw.ownID(), true, e.Seq, e.Ops); err != nil {
		fw.f.deps.Log.Error("worker's KV events can't be kept", "worker", fw.m.Worker.Spec.URL, "err", err)
		return
	}
	if s := c.Log().Stream(fw.id); s != nil && fw.own == fw.id.Boot {
		fw.window(s, e.Groups)
		fw.size(now, s)
	}
}

// changed shows changes of the stream in the index.
func (fw *follower) changed(changes []index.Change) {
	for _, c := range changes {
		if c.Group != 0 {
			continue
		}
		switch {
		case !c.Present:
			fw.cache.Evicting[c.Tier] = true
		case c.Tier == kv.HBM:
			fw.stored++
		}
	}
	fw.f.deps.Index.Apply(fw.cache.Slot, changes)
}

// size notes what a batch left the cache at.
func (fw *follower) size(now clock.Instant, s *crdt.Stream) {
	fw.cache.Batches++
	fw.cache.StoredTokens += uint64(fw.stored * fw.cache.BlockTokens)
	fw.stored = 0
	fw.cache.Log, fw.cache.Truncated = s.Stats(), s.Truncated()
	fw.cache.Next, fw.cache.LastBatch = s.Next(), now
	for t := kv.HBM; t < kv.NumTiers; t++ {
		fw.cache.HeldTokens[t] = s.Held(t) * fw.cache.BlockTokens
	}
}

// replaced starts the cache anew in a slot of its own, which readers see at
// once, with what the stream holds.
func (fw *follower) replaced(now clock.Instant, s *crdt.Stream) {
	fw.m.SetOutdated(false)
	fw.groups = nil
	fw.cache = Cache{
		Known: ByEvents, SaltInRoot: fw.cache.SaltInRoot, Live: fw.cache.Live, BlockTokens: fw.cache.BlockTokens, StepTokens: fw.cache.StepTokens, FreshAt: now,
		LastBatch: fw.cache.LastBatch, Batches: fw.cache.Batches, BadEvents: fw.cache.BadEvents, Resets: fw.cache.Resets, Slot: fw.cache.Slot,
	}
	if fw.shown { // else what was promised and sent so far is of this life too
		fw.f.newSlot(fw.m, &fw.cache, fw.rule)
	}
	fw.shown = true
	if s == nil || s.Stats().Blocks == 0 {
		return
	}
	var changes []index.Change
	s.Each(func(c index.Change) {
		if changes = append(changes, c); len(changes) == 1024 {
			fw.f.deps.Index.Apply(fw.cache.Slot, changes)
			changes = changes[:0]
		}
	})
	fw.f.deps.Index.Apply(fw.cache.Slot, changes)
	fw.stored = s.Held(kv.HBM)
	fw.size(now, s)
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

// window tells the index of the KV groups that hold only their last tokens, as
// they show: a hit ends where one of them can't serve it. Groups with blocks of
// another size than main attention's can't be lined up with it and don't count.
func (fw *follower) window(s *crdt.Stream, groups []kvwire.Group) {
	news := false
	for _, g := range groups {
		if int(g.BlockTokens) != fw.cache.BlockTokens || g.WindowTokens == 0 {
			continue
		}
		id := s.Group(g.ID)
		named := index.Group{ID: id, WindowBlocks: int(g.WindowTokens+g.BlockTokens-1) / int(g.BlockTokens)}
		if id == 0 || fw.groups[id] == named || len(fw.groups) >= index.MaxGroups {
			continue
		}
		if fw.groups == nil {
			fw.groups = make(map[uint16]index.Group)
		}
		fw.groups[id], news = named, true
	}
	if news {
		fw.setGroups()
	}
}

func (fw *follower) setGroups() {
	if err := fw.f.deps.Index.SetGroups(fw.cache.Slot, fw.sortedGroups()); err != nil {
		fw.f.deps.Log.Error("windowed KV groups", "worker", fw.m.Worker.Spec.URL, "err", err)
	}
}

func (fw *follower) sortedGroups() []index.Group {
	return slices.SortedFunc(maps.Values(fw.groups), func(a, b index.Group) int { return cmp.Compare(a.ID, b.ID) })
}

// lingering is how long a reader goes on after another replica's turn has come,
// so that the other one stands before this one falls silent.
const lingering = 3 * time.Second

// awaitTurn waits until this replica is the one that reads a worker's events;
// false when ctx ends first.
func (f *Fleet) awaitTurn(ctx context.Context, w kv.WorkerID) bool {
	for {
		news := f.readers.news()
		if f.reads(w) {
			return ctx.Err() == nil
		}
		select {
		case <-news:
		case <-ctx.Done():
			return false
		}
	}
}

// turn returns a context that ends when this replica has not been the reader of
// a worker's events for a while. end ends it too, and waits for what watches.
func (f *Fleet) turn(ctx context.Context, w kv.WorkerID) (turn context.Context, end func()) {
	turn, cancel := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() {
		for turn.Err() == nil {
			news := f.readers.news()
			if !f.reads(w) && f.deps.Clock.Sleep(turn, lingering) == nil && !f.reads(w) {
				cancel()
				return
			}
			select {
			case <-news:
			case <-turn.Done():
			}
		}
	})
	return turn, func() { cancel(); watch.Wait() }
}

func (f *Fleet) reads(w kv.WorkerID) (reads bool) {
	f.mesh.Do(func(_ clock.Instant, c *core.Core) { reads = c.Reads(w) })
	return reads
}
