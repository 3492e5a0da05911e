package emulator

import "github.com/rhizome-router/rhizome/kv"

// contents remembers the tokens of every block that some tier holds, so that a
// block which moves down a tier can be announced in full.
type contents struct {
	blockTokens int
	slots       map[kv.EngineHash]int32
	tokens      []uint32 // blockTokens for each slot
	copies      []int32  // of each slot, over all tiers
	free        []int32
	salts       map[kv.EngineHash]string // of first blocks that have one
	dead        []kv.EngineHash          // without copies, forgotten by sweep
}

func newContents(blockTokens int) *contents {
	return &contents{blockTokens: blockTokens, slots: make(map[kv.EngineHash]int32), salts: make(map[kv.EngineHash]string)}
}

// add counts a copy of a block with the given content.
func (c *contents) add(h kv.EngineHash, tokens []uint32, salt string) {
	slot, ok := c.slots[h]
	if !ok {
		if n := len(c.free); n > 0 {
			slot = c.free[n-1]
			c.free = c.free[:n-1]
		} else {
			slot = int32(len(c.copies))
			c.copies = append(c.copies, 0)
			c.tokens = append(c.tokens, tokens...)
		}
		copy(c.of(slot), tokens)
		c.slots[h] = slot
		if salt != "" {
			c.salts[h] = salt
		}
	}
	c.copies[slot]++
}

// copyTo counts one more copy of a known block and appends its tokens.
func (c *contents) copyTo(dst []uint32, h kv.EngineHash) []uint32 {
	slot := c.slots[h]
	c.copies[slot]++
	return append(dst, c.of(slot)...)
}

// remove counts a copy less. The content stays until sweep, since a copy on
// another tier may be told next.
func (c *contents) remove(h kv.EngineHash) {
	slot := c.slots[h]
	c.copies[slot]--
	if c.copies[slot] == 0 {
		c.dead = append(c.dead, h)
	}
}

// sweep forgets the blocks that no tier holds.
func (c *contents) sweep() {
	for _, h := range c.dead {
		slot, ok := c.slots[h]
		if !ok || c.copies[slot] > 0 {
			continue
		}
		delete(c.slots, h)
		delete(c.salts, h)
		c.free = append(c.free, slot)
	}
	c.dead = c.dead[:0]
}

func (c *contents) of(slot int32) []uint32 {
	return c.tokens[int(slot)*c.blockTokens : (int(slot)+1)*c.blockTokens]
}
