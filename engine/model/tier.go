package model

import (
	"slices"

	"github.com/rhizome-router/rhizome/kv"
)

// lower is one tier below HBM: named blocks in LRU order, and the link that
// brings them up.
type lower struct {
	tier     kv.Tier
	capacity int    // blocks
	nodes    []node // nodes[0] is the sentinel of the LRU ring; grows up to capacity
	names    Table
	link     link

	hitTokens    int64
	storedBlocks int64
}

type node struct {
	hash, parent kv.EngineHash
	hasParent    bool
	content      int32 // see Event.Contents
	prev, next   int32
}

func newLower(c TierConfig, blockTokens int) *lower {
	return &lower{
		tier: c.Tier, capacity: c.CapacityTokens / blockTokens,
		nodes: make([]node, 1), names: NewTable(0), link: newLink(c),
	}
}

func (l *lower) len() int { return len(l.nodes) - 1 }

// reserveBlocks bounds the room that a tier, or HBM, takes at once for its
// blocks.
const reserveBlocks = 1 << 17

// reserve makes room for what a tier that gets its first block is going to
// hold, sooner than by growing all the way.
func (l *lower) reserve() {
	n := min(l.capacity, reserveBlocks)
	l.nodes, l.names = make([]node, 1, n+1), NewTable(n)
}

// clear drops every block.
func (l *lower) clear() {
	l.nodes, l.names = make([]node, 1), NewTable(0)
}

func (l *lower) unlink(n *node) {
	l.nodes[n.prev].next = n.next
	l.nodes[n.next].prev = n.prev
}

func (l *lower) pushYoung(id int32) {
	last := l.nodes[0].prev
	l.nodes[id].prev, l.nodes[id].next = last, 0
	l.nodes[last].next = id
	l.nodes[0].prev = id
}

// touch makes a held block the youngest.
func (l *lower) touch(id int32) {
	l.unlink(&l.nodes[id])
	l.pushYoung(id)
}

// refresh makes the blocks of a chain that the tier holds young, the first one
// youngest of all.
func (l *lower) refresh(keys []kv.EngineHash) {
	for _, key := range slices.Backward(keys) {
		if id := l.names.Get(key); id >= 0 {
			l.touch(id)
		}
	}
}

// put stores blocks that the tier does not hold as its youngest, the last one
// youngest of all. There are no more than its capacity. Those that leave to
// make room, the oldest first, are appended to out.
func (l *lower) put(nodes []node, out []node) []node {
	if l.len() == 0 {
		l.reserve()
	}
	l.storedBlocks += int64(len(nodes))
	grown := min(len(nodes), l.capacity-l.len())
	oldest := l.nodes[0].next
	for range len(nodes) - grown {
		out = append(out, l.nodes[oldest])
		l.names.Remove(l.nodes[oldest].hash)
		oldest = l.nodes[oldest].next
	}
	for i, n := range nodes {
		var id int32
		if i < grown {
			id = int32(len(l.nodes))
			l.nodes = append(l.nodes, n)
		} else {
			id = l.nodes[0].next
			l.unlink(&l.nodes[id])
			l.nodes[id] = n
		}
		l.names.Set(n.hash, id)
		l.pushYoung(id)
	}
	return out
}
