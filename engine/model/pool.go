package model

import "github.com/rhizome-router/rhizome/kv"

// pool is the KV pool in HBM. A block is in use (ref > 0), or cached (ref 0
// with a name, in LRU order), or blank. Two blocks may bear one name, when two
// sequences computed the same prefix at once; like vLLM, the pool keeps both.
type pool struct {
	blocks []block // the last one is the sentinel of the LRU ring
	names  Table   // name → first block of that name
	blank  []int32
	used   int // blocks with ref > 0
	cached int // blocks in the LRU ring
	named  int // blocks with a name
}

type block struct {
	hash, parent kv.EngineHash
	ready        float64 // time from which its content is there
	ref          int32
	prev, next   int32 // LRU ring, oldest first
	same         int32 // next block of the same name, −1 at the end
	content      int32 // of a named block, see Event.Contents
	named        bool
	hasParent    bool
}

func newPool(blocks int) pool {
	p := pool{blocks: make([]block, blocks+1), names: NewTable(blocks), blank: make([]int32, blocks)}
	for i := range blocks {
		p.blank[i] = int32(blocks - 1 - i)
	}
	ring := int32(blocks)
	p.blocks[ring].prev, p.blocks[ring].next = ring, ring
	return p
}

func (p *pool) size() int      { return len(p.blocks) - 1 }
func (p *pool) available() int { return len(p.blank) + p.cached }

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
	ring := int32(p.size())
	last := p.blocks[ring].prev
	b.prev, b.next = last, ring
	p.blocks[last].next = id
	p.blocks[ring].prev = id
	p.cached++
}

func (p *pool) unlink(b *block) {
	p.blocks[b.prev].next = b.next
	p.blocks[b.next].prev = b.prev
	p.cached--
}

// oldest returns the cached block to evict next; there must be one.
func (p *pool) oldest() int32 { return p.blocks[p.size()].next }

// takeBlank returns a blank block with one reference, or −1.
func (p *pool) takeBlank() int32 {
	n := len(p.blank)
	if n == 0 {
		return -1
	}
	id := p.blank[n-1]
	p.blank = p.blank[:n-1]
	p.blocks[id].ref = 1
	p.used++
	return id
}

// name enters a block's content under hash; it can be found from now on and is
// there from ready on.
func (p *pool) name(id int32, hash, parent kv.EngineHash, hasParent bool, content int32, ready float64) {
	b := &p.blocks[id]
	b.hash, b.parent, b.hasParent, b.named, b.content, b.ready, b.same = hash, parent, hasParent, true, content, ready, -1
	p.named++
	first := p.names.Get(hash)
	if first < 0 {
		p.names.Set(hash, id)
		return
	}
	b.same = p.blocks[first].same
	p.blocks[first].same = id
}

// forget makes a cached block blank and in reach of takeBlank. It reports
// whether no other block bears its name.
func (p *pool) forget(id int32) (last bool) {
	b := &p.blocks[id]
	p.unlink(b)
	p.named--
	if first := p.names.Get(b.hash); first == id {
		if last = b.same < 0; last {
			p.names.Remove(b.hash)
		} else {
			p.names.Set(b.hash, b.same)
		}
	} else {
		for p.blocks[first].same != id {
			first = p.blocks[first].same
		}
		p.blocks[first].same = b.same
	}
	b.named = false
	p.blank = append(p.blank, id)
	return last
}
