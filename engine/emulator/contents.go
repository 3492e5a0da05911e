package emulator

import (
	"github.com/rhizome-router/rhizome/engine/model"
	"github.com/rhizome-router/rhizome/kv"
)

// contents remembers the tokens of every block that some tier holds, so that a
// block which moves down a tier can be announced in full. It is bounded by
// what the tiers hold.
type contents struct {
	blockTokens int
	slots       model.Table // hash → slot
	pages       [][]uint32  // pageSlots slots of blockTokens each
	copies      []int32     // of each slot, over all tiers
	free        []int32
	salts       map[kv.EngineHash]string // of first blocks that have one
	dead        []kv.EngineHash          // without copies, forgotten by sweep
}

// pageSlots is how many slots are allocated at once. Pages never move.
const pageSlots = 1024

func newContents(blockTokens int) *contents {
	return &contents{blockTokens: blockTokens, slots: model.NewTable(0), salts: make(map[kv.EngineHash]string)}
}

// add counts a copy of a block with the given content.
func (c *contents) add(h kv.EngineHash, tokens []uint32, salt string) {
	slot := c.slots.Get(h)
	if slot < 0 {
		slot = c.newSlot()
		copy(c.of(slot), tokens)
		c.slots.Set(h, slot)
		if salt != "" {
			c.salts[h] = salt
		}
	}
	c.copies[slot]++
}

func (c *contents) newSlot() int32 {
	if n := len(c.free); n > 0 {
		slot := c.free[n-1]
		c.free = c.free[:n-1]
		return slot
	}
	slot := int32(len(c.copies))
	c.copies = append(c.copies, 0)
	if int(slot)/pageSlots == len(c.pages) {
		c.pages = append(c.pages, make([]uint32, pageSlots*c.blockTokens))
	}
	return slot
}

// copyTo counts one more copy of a known block and appends its tokens.
func (c *contents) copyTo(dst []uint32, h kv.EngineHash) []uint32 {
	slot := c.slots.Get(h)
	c.copies[slot]++
	return append(dst, c.of(slot)...)
}

// remove counts a copy less. The content stays until sweep, since a copy on
// another tier may be told next.
func (c *contents) remove(h kv.EngineHash) {
	slot := c.slots.Get(h)
	c.copies[slot]--
	if c.copies[slot] == 0 {
		c.dead = append(c.dead, h)
	}
}

// sweep forgets the blocks that no tier holds.
func (c *contents) sweep() {
	for _, h := range c.dead {
		slot := c.slots.Get(h)
		if slot < 0 || c.copies[slot] > 0 {
			continue
		}
		c.slots.Remove(h)
		if len(c.salts) > 0 {
			delete(c.salts, h)
		}
		c.free = append(c.free, slot)
	}
	c.dead = c.dead[:0]
}

func (c *contents) of(slot int32) []uint32 {
	from := int(slot) % pageSlots * c.blockTokens
	return c.pages[int(slot)/pageSlots][from : from+c.blockTokens]
}

// len returns how many blocks are remembered.
func (c *contents) len() int { return len(c.copies) - len(c.free) }
