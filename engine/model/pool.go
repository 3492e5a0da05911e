package model

import "github.com/rhizome-router/rhizome/kv"

// pool is the KV pool in HBM. A block is in use (ref > 0), or cached (ref 0
// with a name, in LRU order), or blank. Two blocks may bear one name, when two
// sequences computed the same prefix at once; like vLLM, the pool keeps both.
type pool struct {
	capacity int     // blocks
	blocks   []block // blocks[0] is the sentinel of the LRU ring; grows up to capacity
	names    Table   // name → first block of that name
	blank    []int32 // used before
	used     int     // blocks with ref > 0
	cached   int     // blocks in the LRU ring
	named    int     // blocks with a name
}

type block struct {
	hash, parent kv.EngineHash
	ref          int32
	prev, next   int32 // LRU ring, oldest first
	same         int32 // next block of the same name, −1 at the end
	content      int32 // of a named block, see Event.Contents
	load         int32 // serial of the upload that brings it; 0: it is there
	named        bool
	hasParent    bool
	twin         bool // another block is the first of its name
	windowed     bool // of the sliding group, see window.go
}

func newPool(blocks int) pool {
	return pool{capacity: blocks, blocks: make([]block, 1), names: NewTable(0)}
}

// blanks returns how many blocks are blank.
func (p *pool) blanks() int { return len(p.blank) + p.capacity - (len(p.blocks) - 1) }

// available returns how many blocks can be taken.
func (p *pool) available() int { return p.blanks() + p.cached }

// pin takes a reference, out of the LRU ring if need be.
func (p *pool) pin(id int32) {
	b := &p.blocks[id]
	if b.ref == 0 {
		p.unlink(b)
		p.used++
	}
	b.ref++
}

// unpin drops a reference. A block nobody uses any more goes to the young end
// of the LRU ring when it has a name, and becomes blank when it has none.
func (p *pool) unpin(id int32) {
	b := &p.blocks[id]
	b.ref--
	if b.ref > 0 {
		return
	}
	p.used--
	if !b.named {
		p.blank = append(p.blank, id)
		return
	}
	last := p.blocks[0].prev
	b.prev, b.next = last, 0
	p.blocks[last].next = id
	p.blocks[0].prev = id
	p.cached++
}

func (p *pool) unlink(b *block) {
	p.blocks[b.prev].next = b.next
	p.blocks[b.next].prev = b.prev
	p.cached--
}

// oldest returns the cached block to evict next; there must be one.
func (p *pool) oldest() int32 { return p.blocks[0].next }

// takeBlank returns a blank block with one reference; there must be one.
func (p *pool) takeBlank() int32 {
	p.used++
	if n := len(p.blank); n > 0 {
		id := p.blank[n-1]
		p.blank = p.blank[:n-1]
		p.blocks[id].ref = 1
		return id
	}
	if len(p.blocks) == 1 {
		p.reserve()
	}
	p.blocks = append(p.blocks, block{ref: 1})
	return int32(len(p.blocks) - 1)
}

// reserve makes room for what a pool that gives its first block is going to
// hold, sooner than by growing all the way.
func (p *pool) reserve() {
	n := min(p.capacity, reserveBlocks)
	p.blocks, p.names = make([]block, 1, n+1), NewTable(n)
}

// name enters a block's content under hash, so that it can be found from now
// on.
func (p *pool) name(id int32, hash, parent kv.EngineHash, hasParent bool, content int32) *block {
	b := &p.blocks[id]
	b.hash, b.parent, b.hasParent, b.named, b.content, b.same = hash, parent, hasParent, true, content, -1
	b.load, b.windowed, b.twin = 0, false, false
	p.named++
	if first := p.names.Add(hash, id); first >= 0 {
		b.twin, b.same = true, p.blocks[first].same
		p.blocks[first].same = id
	}
	return b
}

// forget makes a cached block blank and in reach of takeBlank. It reports
// whether no other block bears its name.
func (p *pool) forget(id int32) (last bool) {
	b := &p.blocks[id]
	p.unlink(b)
	p.named--
	switch {
	case b.twin:
		first := p.names.Get(b.hash)
		for p.blocks[first].same != id {
			first = p.blocks[first].same
		}
		p.blocks[first].same = b.same
	case b.same >= 0:
		p.names.Set(b.hash, b.same)
		p.blocks[b.same].twin = false
	default:
		p.names.Remove(b.hash)
		last = true
	}
	b.named = false
	p.blank = append(p.blank, id)
	return last
}
