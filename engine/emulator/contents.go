package emulator

// contents remembers the tokens of every block that some tier holds, by the
// numbers that the model gives to contents, so that a block which moves down a
// tier can be announced in full. It is bounded by what the tiers hold.
type contents struct {
	blockTokens int
	pages       [][]uint32            // pageBlocks contents of blockTokens each
	salts       map[int32]string      // of blocks that have one
	media       map[int32][]mediaItem // the same
}

// pageBlocks is how many contents are allocated at once. Pages never move.
const pageBlocks = 1024

func newContents(blockTokens int) *contents {
	return &contents{blockTokens: blockTokens, salts: make(map[int32]string), media: make(map[int32][]mediaItem)}
}

// set remembers content n.
func (c *contents) set(n int32, tokens []uint32, salt string, media []mediaItem) {
	for int(n)/pageBlocks >= len(c.pages) {
		c.pages = append(c.pages, make([]uint32, pageBlocks*c.blockTokens))
	}
	copy(c.of(n), tokens)
	if salt != "" {
		c.salts[n] = salt
	} else if len(c.salts) > 0 {
		delete(c.salts, n)
	}
	if len(media) > 0 {
		c.media[n] = media
	} else if len(c.media) > 0 {
		delete(c.media, n)
	}
}

// of returns the tokens of content n, which was set.
func (c *contents) of(n int32) []uint32 {
	from := int(n) % pageBlocks * c.blockTokens
	return c.pages[int(n)/pageBlocks][from : from+c.blockTokens]
}
