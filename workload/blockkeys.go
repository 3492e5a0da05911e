package workload

import (
	"encoding/binary"
	"iter"

	"github.com/zeebo/xxh3"

	"github.com/rhizome-router/rhizome/kv"
)

// BlockKeys appends to dst the chained keys of all whole blocks of a prompt
// followed by its answer, from root on. Two such sequences have equal keys for
// block i exactly if they have the same root, and the same tokens up to the end
// of block i (but for collisions of a 64-bit hash). A last partial block has no
// key. blockTokens must be positive.
func BlockKeys(dst []kv.Key, root kv.Key, prompt []Span, answer Span, blockTokens int) []kv.Key {
	for c := range blockContents(prompt, answer, blockTokens) {
		root = kv.Next(root, c)
		dst = append(dst, root)
	}
	return dst
}

// Blocks returns the keys that [BlockKeys] gives, and the contents from which
// they are chained, as an engine's events carry them: equal contents are equal
// tokens, whatever stands before.
func Blocks(root kv.Key, prompt []Span, answer Span, blockTokens int) ([]kv.Key, []kv.Content) {
	tokens := answer.Tokens
	for _, s := range prompt {
		tokens += s.Tokens
	}
	keys := make([]kv.Key, 0, tokens/blockTokens)
	contents := make([]kv.Content, 0, tokens/blockTokens)
	for c := range blockContents(prompt, answer, blockTokens) {
		root = kv.Next(root, c)
		keys, contents = append(keys, root), append(contents, c)
	}
	return keys, contents
}

// blockContents yields the contents of the whole blocks of a prompt followed by
// its answer.
//
// A content is hashed from the pieces of spans that its block covers, never
// from token ids, so a block costs a few nanoseconds however long it is. Since
// every span starts at its content's first token, and no two contents are
// alike, one sequence of tokens has one sequence of pieces: empty spans, which
// would break that, are skipped.
func blockContents(prompt []Span, answer Span, blockTokens int) iter.Seq[kv.Content] {
	return func(yield func(kv.Content) bool) {
		content, left := uint64(0), blockTokens // of the open block: its pieces so far, and the tokens it lacks
		for i := range len(prompt) + 1 {
			s := answer
			if i < len(prompt) {
				s = prompt[i]
			}
			for at := 0; at < s.Tokens; {
				n := min(left, s.Tokens-at)
				content = addPiece(content, s.ID, at, n)
				at += n
				if left -= n; left > 0 {
					break
				}
				if !yield(kv.Content(content)) {
					return
				}
				content, left = 0, blockTokens
			}
		}
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
