package fleet_test

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/engine/emulator"
	"github.com/rhizome-router/rhizome/engine/kvwire"
	"github.com/rhizome-router/rhizome/engine/sglang"
	"github.com/rhizome-router/rhizome/engine/vllm"
	"github.com/rhizome-router/rhizome/engine/zmtp"
	"github.com/rhizome-router/rhizome/fleet"
	"github.com/rhizome-router/rhizome/index"
	"github.com/rhizome-router/rhizome/kv"
	"github.com/rhizome-router/rhizome/prompt"
)

// copies counts the physical copies of a block on each tier.
type copies [kv.NumTiers]int

// truth is a worker's cache by a naive reading of its whole replay: which keys
// every engine hash that was ever announced has, and where its copies are.
type truth struct {
	keys map[kv.EngineHash]kv.Key
	held map[kv.EngineHash]copies
}

// replayed reads everything a worker has announced in this life.
func (g *ground) replayed(w *emulator.Worker, decode func([]byte, string) (kvwire.Batch, error)) truth {
	g.t.Helper()
	c, err := zmtp.Dial(g.t.Context(), w.ReplayEndpoint(), zmtp.Options{Type: zmtp.DEALER})
	if err != nil {
		g.t.Fatal(err)
	}
	defer c.Close()
	if err := c.Send(kvwire.ReplayRequest(0)...); err != nil {
		g.t.Fatal(err)
	}
	x := truth{make(map[kv.EngineHash]kv.Key), make(map[kv.EngineHash]copies)}
	for next := uint64(0); ; next++ {
		frames, err := c.Recv()
		if err != nil {
			g.t.Fatal(err)
		}
		m, err := kvwire.Replay(frames)
		if err != nil || !m.End && m.Seq != next {
			g.t.Fatalf("replay message %d: %+v, %v", next, m, err)
		}
		if m.End {
			return x
		}
		b, err := decode(m.Payload, "m")
		if err != nil || b.BadEvents > 0 {
			g.t.Fatalf("batch %d: %v, %d bad events", m.Seq, err, b.BadEvents)
		}
		for _, op := range b.Ops {
			x.apply(op)
		}
	}
}

func (x truth) apply(op kv.Op) {
	change := func(h kv.EngineHash, t kv.Tier, by int) {
		n := x.held[h]
		n[t] = max(0, n[t]+by)
		x.held[h] = n
	}
	switch op.Kind {
	case kv.Insert:
		parent := op.Root
		if op.HasParent {
			parent = x.keys[op.Parent]
		}
		for _, b := range op.Blocks {
			parent = kv.Next(parent, b.Content)
			x.keys[b.Hash] = parent
			change(b.Hash, op.Tier, 1)
		}
	case kv.Also:
		for _, h := range op.Hashes {
			change(h, op.Tier, 1)
		}
	case kv.Remove:
		for _, h := range op.Hashes {
			change(h, op.Tier, -1)
		}
	case kv.Clear:
		for h := range x.held {
			for t := kv.HBM; t < kv.NumTiers; t++ {
				if op.Tiers.Has(t) {
					change(h, t, -1<<30)
				}
			}
		}
	}
}

// compare checks the index of worker i against what it announced, and that
// against what its engine really holds, block by block. It returns what is
// wrong.
func (g *ground) compare(i int, decode func([]byte, string) (kvwire.Batch, error)) (wrong []string) {
	w, slot := g.workers[i], g.member(i).Cache().Slot
	x := g.replayed(w, decode)
	for _, t := range []kv.Tier{kv.HBM, kv.CPU} {
		engine := cached(w, t)
		for h, n := range x.held {
			if (n[t] > 0) != engine[h] {
				wrong = append(wrong, fmt.Sprintf("block %x on %v: announced %d times, held %v", h, t, n[t], engine[h]))
			}
			if indexed := g.index.Tiers(slot, 0, x.keys[h]).Has(t); indexed != engine[h] {
				wrong = append(wrong, fmt.Sprintf("block %x on %v: indexed %v, held %v", h, t, indexed, engine[h]))
			}
		}
		for h := range engine {
			if _, known := x.keys[h]; !known {
				wrong = append(wrong, fmt.Sprintf("block %x on %v was never announced", h, t))
			}
		}
	}
	return wrong
}

var engines = map[emulator.Engine]func([]byte, string) (kvwire.Batch, error){emulator.VLLM: vllm.Decode, emulator.SGLang: sglang.Decode}

// work sends prompts that share prefixes and overflow the pools, several at a
// time, so that duplicate copies, evictions and spills happen.
func (g *ground) work(rounds int, seed uint64) {
	var wg sync.WaitGroup
	for i, w := range g.workers {
		for lane := range 3 {
			wg.Go(func() {
				rnd := clock.Rand(seed, fmt.Sprint("worker ", i, " lane ", lane))
				for range rounds {
					g.prompt(w, 1000*rnd.IntN(12), 64+rnd.IntN(1500))
				}
			})
		}
	}
	wg.Wait()
}

// Two in a hundred batches of events are lost: replay makes the index equal to
// the engine all the same.
func TestIndexEqualsTheEngineDespiteLoss(t *testing.T) {
	for name, decode := range engines {
		t.Run(string(name), func(t *testing.T) {
			g := newGround(t, 2, func(c *emulator.Config) {
				c.Engine, c.EventLoss, c.EventDelay = name, 0.02, 2*time.Millisecond
			})
			g.work(30, 1)
			for i := range g.workers {
				var wrong []string
				g.awaitState(func() bool {
					wrong = g.compare(i, decode)
					return len(wrong) == 0
				}, func() string {
					return fmt.Sprintf("the index of worker %d to equal its engine: %d wrong, %q, %+v", i, len(wrong), wrong[:min(5, len(wrong))], g.fleet.DescribeIndex().Caches[i])
				})
				c := g.member(i).Cache()
				if c.Log.Unkeyed != 0 || c.Log.Refused != 0 || c.BadEvents != 0 || c.HeldTokens[kv.CPU] == 0 {
					t.Errorf("worker %d: %+v", i, c)
				}
			}
		})
	}
}

// A restarted worker has an empty cache, and once its feed noticed, nothing of
// the old one matches. (Before that its member is outdated: see
// TestReplacedProcessIsNotBelieved, and the router's test of the same.)
func TestRestartLeavesNothingStale(t *testing.T) {
	for name := range engines {
		for _, mode := range []emulator.RestartMode{emulator.Drained, emulator.Hard} {
			t.Run(fmt.Sprintf("%s %s", name, mode), func(t *testing.T) {
				g := newGround(t, 1, func(c *emulator.Config) { c.Engine = name })
				g.prompt(g.workers[0], 5000, 800)
				tokens := make([]uint32, 800)
				for i := range tokens {
					tokens[i] = uint32(5000 + i)
				}
				keys := kv.AppendKeys(nil, kv.Root("m", "", ""), tokens, 16)
				matched := func() int {
					most := 0
					for _, h := range g.index.Match(keys, nil) {
						most = max(most, h.Len())
					}
					return most
				}
				g.await("the prompt to be indexed", func() bool { return matched() == 50 })
				resets := g.member(0).Cache().Resets
				if err := g.workers[0].Restart(mode); err != nil {
					t.Fatal(err)
				}
				g.await("the feed to start over", func() bool {
					g.prompt(g.workers[0], 9000, 100) // so that it has something to tell
					return g.member(0).Cache().Resets > resets
				})
				if n := matched(); n != 0 {
					t.Errorf("%d blocks of the old cache still match", n)
				}
				g.await("the new cache to be indexed", func() bool { return g.settled(0) && !g.member(0).Outdated() })
			})
		}
	}
}

// Whatever comes and goes, memory stays where it was.
func TestChurnKeepsMemoryFlat(t *testing.T) {
	g := newGround(t, 2, nil)
	var bytes, blocks []int64
	for round := range 4 {
		g.work(15, uint64(round))
		for _, w := range g.workers {
			if err := w.Restart(emulator.Drained); err != nil {
				t.Fatal(err)
			}
		}
		g.work(5, uint64(100+round))
		for i := range g.workers {
			g.awaitState(func() bool { return g.settled(i) }, func() string {
				return fmt.Sprintf("round %d: the index to settle: engine holds %d+%d blocks, %+v", round, len(cached(g.workers[i], kv.HBM)),
					len(cached(g.workers[i], kv.CPU)), g.fleet.DescribeIndex().Caches[i])
			})
		}
		for g.index.Sweep(1<<20) > 0 {
		}
		runtime.GC()
		s := g.index.Stats()
		if s.OpenSlots != 2 || s.DrainingSlots != 0 {
			t.Fatalf("round %d: %+v", round, s)
		}
		bytes, blocks = append(bytes, s.Bytes), append(blocks, int64(s.Holders))
	}
	if most, least := slices.Max(bytes[1:]), slices.Min(bytes[1:]); float64(most) > 1.5*float64(least) {
		t.Errorf("the index took %v bytes for %v blocks", bytes, blocks)
	}
	if held := g.member(0).Cache().Log; held.Bytes > 4<<20 {
		t.Errorf("the stream log of a cache of %d blocks takes %d bytes", held.Blocks, held.Bytes)
	}
}

// A request's keys must be those of the engine's events, salt and all.
func TestSaltedPromptsAreFound(t *testing.T) {
	forms := map[emulator.Engine]prompt.Form{emulator.VLLM: {BlockTokens: 16}, emulator.SGLang: {BlockTokens: 16, SaltInRoot: true}}
	for _, name := range slices.Sorted(maps.Keys(forms)) {
		t.Run(string(name), func(t *testing.T) {
			g := newGround(t, 1, func(c *emulator.Config) { c.Engine = name })
			body := []byte(`{"model":"m","max_tokens":1,"cache_salt":"tenantA","prompt":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31,32,33]}`)
			g.post(g.workers[0], body)
			p, err := prompt.Parse(prompt.Completion, body)
			if err != nil {
				t.Fatal(err)
			}
			var hits []index.Hit
			g.await("the salted prompt to be indexed under its own keys", func() bool {
				hits = g.index.Match(p.TokenKeys(forms[name]), nil)
				return len(hits) == 1 && hits[0].HBM == 2
			})
		})
	}
}

// At the limit of the logs a tier goes, the coldest first, and is said to be
// gone; what remains stays true.
func TestLogsStayWithinTheirLimit(t *testing.T) {
	const limit = 30_000 // bytes, less than two such caches take
	g := newGroundWith(t, 2, fleet.Config{MaxLogBytes: limit}, nil)
	g.work(10, 3)
	g.await("a tier to be truncated", func() bool {
		for i := range g.workers {
			if g.member(i).Cache().Truncated != 0 {
				return true
			}
		}
		return false
	})
	g.work(5, 4)
	sum := int64(0)
	for i := range g.workers {
		c := g.member(i).Cache()
		sum += c.Log.Bytes
		for tier := kv.HBM; tier < kv.NumTiers; tier++ {
			if c.Truncated.Has(tier) && c.HeldTokens[tier] != 0 {
				t.Errorf("worker %d: %v is truncated and yet holds %d tokens", i, tier, c.HeldTokens[tier])
			}
		}
	}
	if sum > 2*limit {
		t.Errorf("the logs take %d bytes of %d", sum, limit)
	}
}
