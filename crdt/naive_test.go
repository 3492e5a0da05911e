package crdt

import (
	"github.com/rhizome-router/rhizome/index"
	"github.com/rhizome-router/rhizome/kv"
	"pgregory.net/rapid"
)

// naive is the rules of a base written down without regard to cost.
type naive struct {
	counted bool
	main    *uint16 // the engine's number of main attention
	blocks  map[node]*naiveBlock
}

type naiveBlock struct {
	keyed   bool
	key     kv.Key
	waits   node // of an unkeyed one
	same    bool
	content kv.Content
	copies  [kv.NumTiers]int
}

func (n *naive) apply(ops []kv.Op) {
	for _, op := range ops {
		if op.Kind == kv.Insert && n.main == nil {
			main := op.Group
			n.main = &main
		}
		if n.main != nil && op.Group == *n.main {
			op.Group = 0
		} else if n.main != nil && op.Group == 0 {
			op.Group = *n.main
		}
		switch op.Kind {
		case kv.Insert:
			n.insert(op)
		case kv.Also:
			for _, h := range op.Hashes {
				n.also(op.Group, h, op.Tier)
			}
		case kv.Remove:
			for _, h := range op.Hashes {
				if b := n.blocks[node{op.Group, h}]; b != nil && b.copies[op.Tier] > 0 {
					b.copies[op.Tier]--
				}
			}
		case kv.Clear:
			for _, b := range n.blocks {
				for t := range b.copies {
					if op.Tiers.Has(kv.Tier(t)) {
						b.copies[t] = 0
					}
				}
			}
		}
	}
	for at, b := range n.blocks {
		if b.copies == [kv.NumTiers]int{} {
			delete(n.blocks, at)
		}
	}
}

func (n *naive) insert(op kv.Op) {
	parent, hasParent := node{op.Group, op.Parent}, op.HasParent
	for _, blk := range op.Blocks {
		if hasParent && blk.Hash == parent.hash {
			continue
		}
		at := node{op.Group, blk.Hash}
		key, known := op.Root, true
		if hasParent {
			p := n.blocks[parent]
			known = p != nil && p.keyed
			if known {
				key = p.key
			}
		}
		b := n.blocks[at]
		if b == nil {
			b = &naiveBlock{waits: parent, content: blk.Content}
			n.blocks[at] = b
		}
		if !b.keyed && known {
			b.keyed, b.key = true, kv.Next(key, blk.Content)
		}
		n.more(b, op.Tier)
		parent, hasParent = at, true
	}
}

func (n *naive) also(group uint16, h kv.EngineHash, t kv.Tier) {
	main := n.blocks[node{0, h}]
	if main == nil {
		return
	}
	b := n.blocks[node{group, h}]
	if b == nil {
		b = &naiveBlock{waits: node{0, h}, same: true}
		n.blocks[node{group, h}] = b
	}
	if !b.keyed && main.keyed {
		b.keyed, b.key = true, main.key
	}
	n.more(b, t)
}

func (n *naive) more(b *naiveBlock, t kv.Tier) {
	if b.copies[t]++; !n.counted {
		b.copies[t] = 1
	}
	b.copies[t] = min(b.copies[t], 255)
	for again := true; again; { // who waited for a key may have one now
		again = false
		for _, b := range n.blocks {
			if p := n.blocks[b.waits]; !b.keyed && p != nil && p.keyed {
				b.keyed, again = true, true
				if b.key = p.key; !b.same {
					b.key = kv.Next(p.key, b.content)
				}
			}
		}
	}
}

// present is what an index should show.
func (n *naive) present() map[index.Change]bool {
	m := map[index.Change]bool{}
	for at, b := range n.blocks {
		for t, c := range b.copies {
			if b.keyed && c > 0 {
				m[index.Change{Key: b.key, Group: at.group, Tier: kv.Tier(t), Present: true}] = true
			}
		}
	}
	return m
}

// shown follows a stream's changes and insists that each is one.
type shown struct {
	t  *rapid.T
	on map[index.Change]bool
}

func (s shown) emit(c index.Change) {
	c.Whole = false // TestWhole is about that
	present := c.Present
	c.Present = true
	if s.on[c] == present {
		s.t.Fatalf("%+v is said to be present=%v and was", c, present)
	}
	if present {
		s.on[c] = true
	} else {
		delete(s.on, c)
	}
}

// drawOp draws ops over few hashes and contents, so that all kinds of
// coincidences happen: parents that come late, that are gone or were never
// told, one key under two hashes, cycles.
func drawOp(t *rapid.T) kv.Op {
	hash := rapid.Uint64Range(1, 12)
	op := kv.Op{
		Group: uint16(max(0, rapid.IntRange(-3, 2).Draw(t, "group"))),
		Tier:  kv.Tier(max(0, rapid.IntRange(-3, kv.NumTiers-1).Draw(t, "tier"))),
	}
	hashes := func() (hs []kv.EngineHash) {
		for range rapid.IntRange(1, 3).Draw(t, "hashes") {
			hs = append(hs, kv.EngineHash(hash.Draw(t, "hash")))
		}
		return hs
	}
	switch k := rapid.IntRange(0, 20).Draw(t, "op"); {
	case k < 9:
		if op.HasParent = k > 2; op.HasParent {
			op.Parent = kv.EngineHash(hash.Draw(t, "parent"))
		} else {
			op.Root = kv.Key(rapid.Uint64Range(0, 1).Draw(t, "root"))
		}
		for range rapid.IntRange(1, 4).Draw(t, "blocks") {
			op.Blocks = append(op.Blocks, kv.Block{
				Hash:    kv.EngineHash(hash.Draw(t, "hash")),
				Content: kv.Content(rapid.Uint64Range(0, 2).Draw(t, "content")),
			})
		}
	case k < 13:
		op.Kind, op.Hashes = kv.Also, hashes()
	case k < 20:
		op.Kind, op.Hashes = kv.Remove, hashes()
	default:
		op.Kind, op.Tiers = kv.Clear, kv.TierMask(rapid.IntRange(1, 31).Draw(t, "tiers"))
	}
	return op
}
