package fleet

import (
	"log/slog"
	"testing"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/cost"
	"github.com/rhizome-router/rhizome/engine"
	"github.com/rhizome-router/rhizome/engine/kvwire"
	"github.com/rhizome-router/rhizome/index"
	"github.com/rhizome-router/rhizome/kv"
)

// newFollower returns one whose events the test makes itself.
func newFollower(t *testing.T) *follower {
	t.Helper()
	deps := Deps{Index: index.New(index.Config{}), Approx: index.NewApprox(index.ApproxConfig{MaxEntries: 64}), Clock: &clock.Virtual{}, Log: slog.New(slog.DiscardHandler)}
	f, err := New(Config{}, deps, []engine.Spec{{URL: "http://127.0.0.1:1"}}, func(engine.Spec) (cost.Class, error) { return cost.Generic(), nil })
	if err != nil {
		t.Fatal(err)
	}
	m := f.View().Members[0]
	fw := f.follower(m, m.Cache(), engine.Identity{Engine: engine.VLLM})
	return fw
}

// chain is an insert of n blocks of 16 tokens, named 1…n, and their keys.
func chain(group uint16, n int) (kv.Op, []kv.Key) {
	op := kv.Op{Kind: kv.Insert, Group: group, Root: kv.Root("m", "", ""), BlockTokens: 16}
	key := op.Root
	var keys []kv.Key
	for i := range n {
		b := kv.Block{Hash: kv.EngineHash(i + 1), Content: kv.Content(100 + i)}
		op.Blocks = append(op.Blocks, b)
		key = kv.Next(key, b.Content)
		keys = append(keys, key)
	}
	return op, keys
}

func (fw *follower) matched(keys []kv.Key) int {
	most := 0
	for _, h := range fw.f.deps.Index.Match(keys, nil) {
		most = max(most, h.Len())
	}
	return most
}

// On a hybrid model whose main attention is group 2 on the wire, a hit ends
// where the sliding group's window is not held.
func TestWindowedGroupsCutHits(t *testing.T) {
	fw := newFollower(t)
	op, keys := chain(2, 8)
	also := kv.Op{Kind: kv.Also, Group: 1, Hashes: []kv.EngineHash{3, 4}}
	groups := []kvwire.Group{{ID: 1, WindowTokens: 32, BlockTokens: 16}}
	fw.handle(engine.FeedEvent{Kind: engine.FeedBatch, Seq: 0, Ops: []kv.Op{op, also}, Groups: groups})
	if n := fw.matched(keys); n != 4 {
		t.Errorf("8 blocks of main attention, the sliding window held at 3 and 4: %d usable, want 4", n)
	}
	fw.handle(engine.FeedEvent{Kind: engine.FeedBatch, Seq: 1, Ops: []kv.Op{{Kind: kv.Also, Group: 1, Hashes: []kv.EngineHash{7, 8}}}, Groups: groups})
	if n := fw.matched(keys); n != 8 {
		t.Errorf("with the window held at the end: %d usable, want 8", n)
	}
	c := fw.m.Cache()
	if c.HeldTokens[kv.HBM] != 128 || c.StoredTokens != 128 || c.BlockTokens != 16 || c.Next != 2 {
		t.Errorf("cache: %+v", c)
	}

	// After a reset nothing of that is left, and the groups are learned anew.
	old := c.Slot
	fw.handle(engine.FeedEvent{Kind: engine.FeedReset, Seq: 5})
	if n := fw.matched(keys); n != 0 || fw.m.Cache().Slot == old {
		t.Errorf("after a reset %d blocks still match", n)
	}
	fw.handle(engine.FeedEvent{Kind: engine.FeedBatch, Seq: 5, Ops: []kv.Op{op, also}, Groups: groups})
	if n := fw.matched(keys); n != 4 {
		t.Errorf("after a reset: %d usable, want 4", n)
	}
}

// A page that ends a sequence short must not be taken for the size of a block.
func TestBlockSizeIsTheLargestSeen(t *testing.T) {
	fw := newFollower(t)
	for seq, size := range []uint32{7, 16, 3} {
		op, _ := chain(0, 1)
		op.BlockTokens = size
		fw.handle(engine.FeedEvent{Kind: engine.FeedBatch, Seq: uint64(seq), Ops: []kv.Op{op}})
	}
	if n := fw.m.Cache().BlockTokens; n != 16 {
		t.Errorf("block size %d, want 16", n)
	}
}

// A scrape that shows a new process makes the member outdated until its feed
// starts over, unless the feed has already done so.
func TestReplacedProcessIsNotBelieved(t *testing.T) {
	fw := newFollower(t)
	fw.cache.Known = ByEvents
	now := fw.f.deps.Clock.(*clock.Virtual)
	now.Advance(5)
	fw.handle(engine.FeedEvent{Kind: engine.FeedConnected}) // at 5
	fw.f.restarted(fw.m, 4)
	if fw.m.Outdated() {
		t.Error("the feed connected after the old process was seen last, so it speaks of the new one")
	}
	for _, kind := range []engine.FeedKind{engine.FeedReset, engine.FeedConnected} {
		now.Advance(5)
		fw.f.restarted(fw.m, now.Now())
		if !fw.m.Outdated() {
			t.Error("the feed still speaks of the old process")
		}
		fw.handle(engine.FeedEvent{Kind: engine.FeedDisconnected})
		if !fw.m.Outdated() {
			t.Error("a lost connection makes nothing true")
		}
		fw.handle(engine.FeedEvent{Kind: kind})
		if fw.m.Outdated() {
			t.Errorf("event %d speaks of the new process", kind)
		}
	}
}

// What was sent to a worker without events is gone with its process.
func TestReplacedProcessWithoutEventsStartsAnew(t *testing.T) {
	fw := newFollower(t)
	fw.cache.Known = BySent
	fw.m.SetCache(fw.cache)
	keys := []kv.Key{1, 2}
	fw.f.deps.Approx.Touch(fw.cache.Slot, keys, 0)
	all := func(index.Slot) index.Horizon { return index.Horizon{HBM: 1 << 40} }
	if n := len(fw.f.deps.Approx.Match(keys, all, nil)); n != 1 {
		t.Fatalf("%d hits before", n)
	}
	fw.f.restarted(fw.m, 0)
	if n := len(fw.f.deps.Approx.Match(keys, all, nil)); n != 0 || fw.m.Cache().Slot == fw.cache.Slot || fw.m.Outdated() {
		t.Errorf("%d hits after", n)
	}
}
