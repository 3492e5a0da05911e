package model

import "github.com/rhizome-router/rhizome/kv"

// lower is one tier below HBM: named blocks in LRU order, and the link that
// brings them up.
type lower struct {
	tier     kv.Tier
	capacity int    // blocks
	nodes    []node // nodes[0] is the sentinel of the LRU ring; grows up to capacity
	names    Table

	setupMicros    float64
	bytesPerMicros float64
	linkFree       float64 // when the link has done everything queued on it

	loads        int64
	loadedBytes  int64
	loadedMicros float64
	hitTokens    int64
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
		nodes: make([]node, 1), names: NewTable(0),
		setupMicros: c.SetupMicros, bytesPerMicros: c.BytesPerSecond / 1e6,
	}
}

func (l *lower) len() int { return len(l.nodes) - 1 }

// reserveBlocks bounds the room that a tier takes at once for its blocks.
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

// put stores a block that the tier does not hold as its youngest; the tier has
// a capacity. When it is full the oldest leaves and is returned.
func (l *lower) put(n node) (out node, evicted bool) {
	if l.len() == 0 {
		l.reserve()
	}
	id := int32(len(l.nodes))
	if l.len() < l.capacity {
		l.nodes = append(l.nodes, n)
	} else {
		id = l.nodes[0].next
		out, evicted = l.nodes[id], true
		l.unlink(&l.nodes[id])
		l.names.Remove(out.hash)
		l.nodes[id] = n
	}
	l.names.Set(n.hash, id)
	l.pushYoung(id)
	return out, evicted
}

// transfer queues bytes on the link, first in first out, and returns when they
// have arrived.
func (l *lower) transfer(now float64, bytes int64) (doneMicros float64) {
	took := l.setupMicros + float64(bytes)/l.bytesPerMicros
	l.linkFree = max(now, l.linkFree) + took
	l.loads++
	l.loadedBytes += bytes
	l.loadedMicros += took
	return l.linkFree
}
