package fleet

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/crdt"
	"github.com/rhizome-router/rhizome/crdt/wire"
	"github.com/rhizome-router/rhizome/engine"
	"github.com/rhizome-router/rhizome/index"
	"github.com/rhizome-router/rhizome/kv"
	"github.com/rhizome-router/rhizome/mesh"
	"github.com/rhizome-router/rhizome/mesh/core"
)

// streams is what the mesh tells a fleet: the engines' logs, whoever reads them.
// It is called within Do.
type streams struct{ f *Fleet }

// Changed is part of mesh.Streams.
func (s streams) Changed(id crdt.StreamID, changes []index.Change) {
	fw := s.f.followers[id.Target]
	if fw == nil || fw.id != id {
		return
	}
	fw.changed(changes)
	if fw.reading() && fw.own == id.Boot {
		return // the rest comes with the event
	}
	now := s.f.deps.Clock.Now()
	fw.m.Told()
	fw.size(now, s.f.core.Log().Stream(id))
	fw.m.SetCache(fw.cache)
}

// Replaced is part of mesh.Streams.
func (s streams) Replaced(id crdt.StreamID, st *crdt.Stream) {
	fw := s.f.followers[id.Target]
	if fw == nil || id.Source != crdt.Engine {
		return
	}
	fw.id = id
	fw.replaced(s.f.deps.Clock.Now(), st)
	fw.m.SetCache(fw.cache)
}

// Trimmed is part of mesh.Streams.
func (s streams) Trimmed(id crdt.StreamID, tier kv.Tier, blocks int) {
	s.f.deps.Log.Warn("the logs of KV events are at their limit: a worker's coldest tier is no longer indexed",
		"worker", id.Target, "tier", tier, "blocks", blocks)
}

// Readers is part of mesh.Streams. What the readers that count now found out was
// told before, mostly.
func (s streams) Readers() {
	for _, fw := range s.f.followers { // order-free: each by itself
		fw.hearAll()
	}
	s.f.readers.tell()
}

// bell wakes all who wait for news.
type bell struct {
	mu   sync.Mutex
	ring chan struct{}
}

func (b *bell) news() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ring == nil {
		b.ring = make(chan struct{})
	}
	return b.ring
}

func (b *bell) tell() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ring != nil {
		close(b.ring)
		b.ring = nil
	}
}

// enter joins the fleet to the mesh, or to one of its own that nobody else is in.
func (f *Fleet) enter(node *mesh.Node) error {
	f.followers, f.told = make(map[kv.Target]*follower), make(map[kv.Target]map[core.Replica][]byte)
	if f.mesh = node; node == nil {
		var err error
		f.mesh, err = mesh.New(mesh.Config{}, mesh.Deps{Clock: f.deps.Clock, Log: f.deps.Log, StreamLog: f.cfg.StreamLog()})
		if err != nil {
			return fmt.Errorf("fleet: %w", err)
		}
	}
	f.mesh.HearStreams(streams{f})
	f.mesh.HearPage(core.Caches, f.hearCache)
	f.shares.said, f.shares.peers = make(map[kv.Target]map[*Peer]Share), make(map[core.Replica]*pagePeer)
	f.mesh.HearPage(core.Loads, func(writer core.Replica, key string, value *crdt.PageItem) {
		f.shares.hear(f.deps.Clock.Now(), writer, key, value)
	})
	f.mesh.Do(func(_ clock.Instant, c *core.Core) { f.core = c })
	return nil
}

// follower enters a member whose KV events are to be followed, with what peers
// told of them already.
func (f *Fleet) follower(m *Member, cache Cache, id engine.Identity) *follower {
	// Copies are counted for every engine: vLLM announces each, and where an
	// engine keeps one of each, counting changes nothing.
	fw := &follower{f: f, m: m, id: crdt.StreamID{Target: m.Target, Source: crdt.Engine}, cache: cache, rule: ruleOf(id), told: id.BlockTokens > 0, steps: id.Engine == engine.VLLM}
	f.mesh.Do(func(now clock.Instant, c *core.Core) {
		f.followers[m.Target] = fw
		c.Follow(now, m.Target)
		if boot, ok := c.Boot(m.Target); ok {
			fw.id.Boot = boot
			if s := c.Log().Stream(fw.id); s != nil {
				fw.replaced(now, s)
			}
		}
		fw.hearAll()
	})
	return fw
}

// leaveStream says that a target is no more in the fleet. The logs hold what they
// have of it for a while: one that comes back soon, as the same process, is
// indexed again at once.
func (f *Fleet) leaveStream(t kv.Target) {
	f.mesh.Do(func(_ clock.Instant, c *core.Core) {
		if f.followers[t] != nil {
			delete(f.followers, t)
			c.Delete(core.Caches, core.TargetKey(t))
			c.Unfollow(t)
		}
	})
}

// keepLogs has the logs of a fleet that is alone forget, until ctx ends; in a
// mesh its node does.
func (f *Fleet) keepLogs(ctx context.Context) {
	for f.deps.Clock.Sleep(ctx, sweepEvery) == nil {
		f.mesh.Do(func(now clock.Instant, c *core.Core) { c.Tick(now) })
	}
}

const sweepEvery = 10 * time.Second

// reader returns the replica that reads a worker's events; within Do.
func (f *Fleet) reader(w kv.WorkerID) string {
	first, _ := f.core.Reader(w)
	return first
}

// reading reports whether this replica is the one that reads the events.
func (fw *follower) reading() bool {
	return fw.m.feed.Load() != nil || fw.turn || fw.f.deps.Mesh == nil
}

// processNote is how a boot's process is told to peers: by the time at which it
// started, as the worker tells it. Empty: it doesn't.
func processNote(start engine.Value) string {
	if !start.Known {
		return ""
	}
	return strconv.FormatFloat(start.Value, 'g', -1, 64)
}

// scraped notes the process that a worker's metrics are of. A boot that was told
// before its process was known is told again with it.
func (fw *follower) scraped(start engine.Value) {
	fw.f.mesh.Do(func(now clock.Instant, c *core.Core) {
		fw.claim(now, c)
		if !start.Known || start == fw.process {
			return
		}
		fw.process = start
		if boot, note, ok := c.BootNote(fw.id.Target); ok && fw.begun && fw.reading() && boot == fw.own && !fw.m.Outdated() && note != processNote(start) {
			c.Booted(now, fw.id.Target, boot, processNote(start))
		}
	})
}

// What a reader found out about a cache besides its blocks is on its page
// Caches: live, block tokens, step tokens, groups (id, window's blocks, …).
const cacheFields = 4

// tell puts on this replica's page what it found out.
func (fw *follower) tell(now clock.Instant, c *core.Core) {
	if fw.f.deps.Mesh == nil {
		return
	}
	w := wire.NewWriter(nil)
	w.Array(cacheFields)
	w.Bool(fw.cache.Live)
	w.Uint(uint64(fw.cache.BlockTokens))
	w.Uint(uint64(fw.cache.StepTokens))
	groups := fw.sortedGroups()
	w.Array(2 * len(groups))
	for _, g := range groups {
		w.Uint(uint64(g.ID))
		w.Uint(uint64(g.WindowBlocks))
	}
	key := core.TargetKey(fw.id.Target)
	if old, ok := c.Own(core.Caches).Get(int64(now), key); !ok || string(old.Value) != string(w.Bytes()) {
		c.Put(now, core.Caches, key, w.Bytes(), 0)
	}
}

// hearCache takes what a peer found out about a cache.
func (f *Fleet) hearCache(writer core.Replica, key string, value *crdt.PageItem) {
	t, ok := core.TargetOf(key)
	if !ok {
		return
	}
	if value == nil {
		if delete(f.told[t], writer); len(f.told[t]) == 0 {
			delete(f.told, t)
		}
		return
	}
	if f.told[t] == nil {
		f.told[t] = make(map[core.Replica][]byte)
	}
	f.told[t][writer] = value.Value
	if fw := f.followers[t]; fw != nil {
		fw.hear(writer, value.Value)
		fw.m.SetCache(fw.cache)
	}
}

// maxBlockTokens bounds what a peer may say of sizes.
const maxBlockTokens = 1 << 20

// hearAll takes what the reader of the events told last, if that is a peer.
func (fw *follower) hearAll() {
	for writer, value := range fw.f.told[fw.id.Target] { // order-free: the reader's counts, and there is one
		fw.hear(writer, value)
	}
	fw.m.SetCache(fw.cache)
}

// hear takes what the reader of the events found out, if that is a peer. A
// replica that has just joined does not know yet who that is, and believes anyone
// who says that it follows them.
func (fw *follower) hear(writer core.Replica, value []byte) {
	reader := fw.f.reader(fw.id.Target.Worker)
	if fw.reading() || reader != "" && writer.Name != reader {
		return
	}
	r := wire.NewReader(value)
	n := r.Array(1)
	if n < cacheFields {
		return
	}
	live, block, step := r.Bool(), int(r.Uint(maxBlockTokens)), int(r.Uint(math.MaxInt32))
	groups := make(map[uint16]index.Group)
	for range r.Array(2) {
		g := index.Group{ID: uint16(r.Uint(math.MaxUint16)), WindowBlocks: int(r.Uint(maxBlockTokens))}
		if len(groups) < index.MaxGroups {
			groups[g.ID] = g
		}
	}
	r.Skip(n - cacheFields)
	if r.End() != nil || reader == "" && !live {
		return
	}
	if live && !fw.cache.Live {
		fw.cache.FreshAt = fw.f.deps.Clock.Now()
	}
	fw.cache.Live, fw.cache.StepTokens = live, step
	if !fw.told {
		fw.cache.BlockTokens = block
	}
	if len(groups) > 0 {
		fw.groups = groups
		fw.setGroups()
	}
}
