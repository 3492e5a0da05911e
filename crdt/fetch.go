package crdt

import (
	"unsafe"

	"github.com/rhizome-router/rhizome/index/prefetch"
	"github.com/rhizome-router/rhizome/kv"
)

// What an op names lies anywhere in the tables and pages. So that the processor
// doesn't wait for one line after the other, what is a few blocks ahead is fetched
// while blocks are worked on: first the buckets of the tables, then the entries
// that these lead to.

// lookahead is how many blocks ahead buckets are fetched; entries half as many.
const lookahead = 16

// coming is the blocks of an Insert that come next.
type coming struct {
	base   *base
	group  uint16
	blocks []kv.Block
	key    kv.Key // of the last block fetched, if its parent's is
	known  bool
	ring   [2 * lookahead]comingBlock
}

// comingBlock is where a block is in the tables, by its hash, and, if known, by its
// key, in case that its parent's is the one that follows from those before.
type comingBlock struct {
	byHash, byKey uint64
	parent, key   kv.Key
	known         bool
}

// begin fetches the first blocks.
func (c *coming) begin() {
	for j := range c.blocks[:min(lookahead, len(c.blocks))] {
		c.fetch(j)
	}
}

// next returns block j and fetches one that comes later.
func (c *coming) next(j int) *comingBlock {
	if j+lookahead < len(c.blocks) {
		c.fetch(j + lookahead)
	}
	return &c.ring[j%len(c.ring)]
}

func (c *coming) fetch(j int) {
	at := &c.ring[j%len(c.ring)]
	at.byHash = place(uint64(c.blocks[j].Hash), c.group)
	line := c.base.byHash.line(at.byHash)
	if at.known = c.known; !c.known {
		prefetch.Lines(line, line)
		return
	}
	at.parent = c.key
	c.key = kv.Next(c.key, c.blocks[j].Content)
	at.key, at.byKey = c.key, place(uint64(c.key), c.group)
	prefetch.Lines(line, c.base.byKey.line(at.byKey))
}

// follow returns the key of the block, whose content is c, after that of its
// parent.
func (at *comingBlock) follow(parent kv.Key, c kv.Content) kv.Key {
	if at.known && at.parent == parent {
		return at.key
	}
	return kv.Next(parent, c)
}

// placeOf returns the place of the block's key.
func (at *comingBlock) placeOf(key kv.Key, group uint16) uint64 {
	if at.known && at.key == key {
		return at.byKey
	}
	return place(uint64(key), group)
}

// find calls found with each entry that hashes name, in their order, once those
// before are done with.
func (b *base) find(group uint16, hashes []kv.EngineHash, found func(i uint32, hash kv.EngineHash)) {
	var ring [lookahead]uint64
	for n := range len(hashes) + lookahead {
		h := &ring[n%lookahead]
		if j := n - lookahead; j >= 0 {
			if i, ok := b.findAt(*h, group, hashes[j]); ok {
				found(i, hashes[j])
			}
		}
		if n < len(hashes) {
			*h = place(uint64(hashes[n]), group)
			b.byHash.fetch(*h)
		}
		if j := n - lookahead/2; j >= 0 && j < len(hashes) {
			b.fetchEntry(ring[j%lookahead])
		}
	}
}

// fetchEntry has the entry fetched that the home bucket of place h leads to first.
func (b *base) fetchEntry(h uint64) {
	t := &b.byHash
	if len(t.buckets) == 0 {
		return
	}
	bucket := &t.buckets[t.home(h)]
	if maybe := bucket.having(tag(h)); maybe != 0 {
		c, _ := maybe.first()
		b.at(bucket.number(c)).fetch()
	}
}

func (p *packed) fetch() {
	prefetch.Lines(uintptr(unsafe.Pointer(&p[0])), uintptr(unsafe.Pointer(&p[packedBytes-1])))
}

// fetchFree has the entry fetched that is given out next.
func (b *base) fetchFree() {
	if b.free != 0 {
		b.at(b.free - 1).fetch()
	}
}
