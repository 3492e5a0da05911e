package crdt

import (
	"slices"
	"testing"

	"github.com/rhizome-router/rhizome/index"
	"github.com/rhizome-router/rhizome/kv"
	"pgregory.net/rapid"
)

// grove is a few trees of prefixes: block i follows the block before[i], and
// under a number there may be two engine hashes for one key.
type grove struct {
	before []int // -1: a root
	keys   []kv.Key
}

func drawGrove(t *rapid.T) *grove {
	g := &grove{}
	for i := range rapid.IntRange(1, 12).Draw(t, "blocks") {
		p, parent := rapid.IntRange(-1, i-1).Draw(t, "before"), kv.Key(7)
		if p >= 0 {
			parent = g.keys[p]
		}
		g.before, g.keys = append(g.before, p), append(g.keys, kv.Next(parent, kv.Content(i)))
	}
	return g
}

func (g *grove) hash(i, twin int) kv.EngineHash { return kv.EngineHash(100*twin + i + 1) }

// insert says that block i came to HBM under the given name, after its parent
// of that name.
func (g *grove) insert(i, twin int) kv.Op {
	op := kv.Op{Kind: kv.Insert, Root: 7, Blocks: []kv.Block{{Hash: g.hash(i, twin), Content: kv.Content(i)}}}
	if g.before[i] >= 0 {
		op.HasParent, op.Parent = true, g.hash(g.before[i], twin)
	}
	return op
}

// TestWhole: while changes vouch for it, what they brought to HBM is closed
// under going back along the prefix. Engines that insert from the root on and
// evict from the ends never lose that.
func TestWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := drawGrove(t)
		orderly := rapid.Bool().Draw(t, "orderly")
		s := NewStream(StreamConfig{Counted: rapid.Bool().Draw(t, "counted")})
		on, whole := map[kv.Key]bool{}, true
		emit := func(c index.Change) {
			if c.Tier == kv.HBM {
				on[c.Key] = c.Present
				whole = whole && c.Whole
			}
		}
		held := func(i, twin int) bool {
			h, ok := s.base.findAt(place(uint64(g.hash(i, twin)), 0), 0, g.hash(i, twin))
			return ok && s.base.at(h).on(kv.HBM)
		}
		for range rapid.SampledFrom([]int{5, 60}).Draw(t, "steps") {
			i, twin := rapid.IntRange(0, len(g.keys)-1).Draw(t, "block"), rapid.IntRange(0, 1).Draw(t, "twin")
			child := slices.ContainsFunc(g.childrenOf(i), func(c int) bool { return held(c, twin) })
			var op kv.Op
			switch what := rapid.IntRange(0, 5).Draw(t, "what"); {
			case what < 3:
				if op = g.insert(i, twin); orderly && g.before[i] >= 0 && !held(g.before[i], twin) {
					continue
				}
			case what < 5:
				if op = (kv.Op{Kind: kv.Remove, Hashes: []kv.EngineHash{g.hash(i, twin)}}); orderly && child {
					continue
				}
			case rapid.IntRange(0, 9).Draw(t, "clear") == 0:
				op = kv.Op{Kind: kv.Clear, Tiers: kv.HBM.Mask()}
			case rapid.Bool().Draw(t, "to HBM") && !orderly:
				op = kv.Op{Kind: kv.Also, Tier: kv.HBM, Hashes: []kv.EngineHash{g.hash(i, twin)}}
			default:
				op = kv.Op{Kind: kv.Also, Tier: kv.CPU, Hashes: []kv.EngineHash{g.hash(i, twin)}}
			}
			s.Apply(s.Next(), []kv.Op{op}, emit)
			s.base.check(t)
			if rapid.IntRange(0, 20).Draw(t, "compact") == 0 {
				s.base.compact()
				s.base.check(t)
			}
			for i, k := range g.keys {
				if whole && on[k] && g.before[i] >= 0 && !on[g.keys[g.before[i]]] {
					t.Fatalf("block %d is in HBM without %d before it, and nothing said so", i, g.before[i])
				}
			}
			if orderly && !whole {
				t.Fatal("an orderly cache does not count as whole")
			}
		}
	})
}

func (g *grove) childrenOf(i int) (children []int) {
	for c, p := range g.before {
		if p == i {
			children = append(children, c)
		}
	}
	return children
}

// A block that more blocks follow than can be counted still is followed by some.
func TestWholeManyFollowers(t *testing.T) {
	s, whole := NewStream(StreamConfig{}), true
	emit := func(c index.Change) { whole = whole && c.Whole }
	apply := func(ops ...kv.Op) { s.Apply(s.Next(), ops, emit) }
	apply(kv.Op{Root: 1, Blocks: []kv.Block{{Hash: 1}}})
	for i := range kv.EngineHash(300) {
		apply(kv.Op{HasParent: true, Parent: 1, Blocks: []kv.Block{{Hash: 10 + i, Content: kv.Content(i)}}})
	}
	for i := range kv.EngineHash(299) {
		apply(kv.Op{Kind: kv.Remove, Hashes: []kv.EngineHash{10 + i}})
	}
	s.base.check(t)
	if !whole {
		t.Fatal("not whole though all that left was at the end")
	}
	if apply(kv.Op{Kind: kv.Remove, Hashes: []kv.EngineHash{1}}); whole {
		t.Fatal("whole though a block is left without the one before it")
	}
}

// What came by a snapshot says nothing of the order of blocks.
func TestWholeIsNotInSnapshots(t *testing.T) {
	s := NewStream(StreamConfig{})
	s.Apply(0, []kv.Op{run(1, 3)}, func(index.Change) {})
	snapshot, err := s.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Restore(snapshot); err != nil {
		t.Fatal(err)
	}
	s.Each(func(c index.Change) {
		if c.Whole {
			t.Errorf("%+v", c)
		}
	})
}
