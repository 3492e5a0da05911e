package kv

import (
	"encoding/binary"

	"github.com/zeebo/xxh3"
)

// KeyVersion names the key scheme below. It is a wire constant between
// replicas: two replicas share an index only under one version.
const KeyVersion = "rz1"

// Key identifies a prefix: everything from the root up to and including one
// block. Equal keys mean equal model, adapter, salt, tokens and extras.
type Key uint64

// Content identifies one block's own tokens and extras, whatever precedes it.
type Content uint64

// Root returns the key that a chain starts from. adapter is the LoRA adapter's
// name, "id:<n>" where only a number is known, or empty. salt is empty for
// vLLM, whose events don't say which string is the salt (it travels as an
// extra of block 0 there).
func Root(model, adapter, salt string) Key {
	var stack [256]byte // names are mostly shorter
	b := append(stack[:0], KeyVersion...)
	for _, s := range [...]string{model, adapter, salt} {
		b = appendString(b, s)
	}
	return Key(xxh3.Hash(b))
}

// Next returns the key of the block with content c that follows parent, which
// is a root or the key of the block before: the XXH3-64 of the two, little-endian.
func Next(parent Key, c Content) Key {
	return Key(sum16(uint64(parent), uint64(c)))
}

// ContentOf hashes a block: its tokens as little-endian u32, then each extra,
// length-prefixed, in the engine's order. Extras are "mm:<identifier>@<offset>"
// or "mm:<identifier>" for media and "x:<string>" for any other bare string
// but the LoRA name.
func ContentOf(tokens []uint32, extras ...string) Content {
	n := 4 * len(tokens)
	for _, e := range extras {
		n += 4 + len(e)
	}
	var stack [1024]byte
	b := stack[:0]
	if n > len(stack) {
		b = make([]byte, 0, n)
	}
	for _, t := range tokens {
		b = binary.LittleEndian.AppendUint32(b, t)
	}
	for _, e := range extras {
		b = appendString(b, e)
	}
	return Content(xxh3.Hash(b))
}

// AppendKeys appends the keys of every whole block of tokens, chained from
// root, to dst. A last block shorter than blockTokens has no key: engines
// cache whole blocks only. blockTokens must be positive.
func AppendKeys(dst []Key, root Key, tokens []uint32, blockTokens int) []Key {
	parent := root
	for len(tokens) >= blockTokens {
		parent = Next(parent, ContentOf(tokens[:blockTokens]))
		dst = append(dst, parent)
		tokens = tokens[blockTokens:]
	}
	return dst
}

func appendString(b []byte, s string) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(len(s)))
	return append(b, s...)
}
