package workload

import (
	"encoding/binary"

	"github.com/zeebo/xxh3"

	"github.com/rhizome-router/rhizome/kv"
)

// BlockKeys appends to dst the chained keys of all whole blocks of a prompt
// followed by its answer, from root on. Two such sequences have equal keys for
// block i exactly if they have the same root, and the same tokens up to the end
// of block i (but for collisions of a 64-bit hash). A last partial block has no
// key. blockTokens must be positive.
//
// A block's content is hashed from the pieces of spans that it covers, never
// from token ids, so a block costs a few nanoseconds however long it is. Since
// every span starts at its content's first token, and no two contents are
// alike, one sequence of tokens has one sequence of pieces: empty spans, which
// would break that, are skipped.
func BlockKeys(dst []kv.Key, root kv.Key, prompt []Span, answer Span, blockTokens int) []kv.Key {
	c := blockChain{keys: dst, key: root, blockTokens: blockTokens, left: blockTokens}
	for _, s := range prompt {
		c.add(s)
	}
	c.add(answer)
	return c.keys
}

// Blocks returns the same keys, and for each block its content: a block's key is
// kv.Next of the key before it and the content.
func Blocks(root kv.Key, prompt []Span, answer Span, blockTokens int) ([]kv.Key, []kv.Content) {
	tokens := answer.Tokens
	for _, s := range prompt {
		tokens += s.Tokens
	}
	n := tokens / blockTokens
	c := blockChain{keys: make([]kv.Key, 0, n), contents: make([]kv.Content, 0, n), key: root, blockTokens: blockTokens, left: blockTokens}
	for _, s := range prompt {
		c.add(s)
	}
	c.add(answer)
	return c.keys, c.contents
}

// blockChain is the state of BlockKeys between two spans.
type blockChain struct {
	keys        []kv.Key
	contents    []kv.Content // kept where not nil
	key         kv.Key
	content     uint64 // of the open block's pieces so far
	blockTokens int
	left        int // tokens that the open block lacks
}

func (c *blockChain) add(s Span) {
	for at := 0; at < s.Tokens; {
		n := min(c.left, s.Tokens-at)
		c.content = addPiece(c.content, s.ID, at, n)
		at += n
		if c.left -= n; c.left > 0 {
			return
		}
		c.key = kv.Next(c.key, kv.Content(c.content))
		c.keys = append(c.keys, c.key)
		if c.contents != nil {
			c.contents = append(c.contents, kv.Content(c.content))
		}
		c.content, c.left = 0, c.blockTokens
	}
}

// addPiece extends the hash of a block by n tokens of content id from at on.
func addPiece(hash, id uint64, at, n int) uint64 {
	var b [32]byte
	binary.LittleEndian.PutUint64(b[:8], hash)
	binary.LittleEndian.PutUint64(b[8:16], id)
	binary.LittleEndian.PutUint64(b[16:24], uint64(at))
	binary.LittleEndian.PutUint64(b[24:], uint64(n))
	return xxh3.Hash(b[:])
}
