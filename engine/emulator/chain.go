package emulator

import (
	"encoding/binary"
	"slices"

	"github.com/zeebo/xxh3"

	"github.com/rhizome-router/rhizome/kv"
)

// sequence is one token sequence that the model computes: a prompt, its answer
// and the names of their blocks.
type sequence struct {
	tokens       []uint32 // prompt, then answer
	promptTokens int
	answer       answer
	keys         []kv.EngineHash
	extras
}

// extras are what tells sequences of equal tokens apart.
type extras struct {
	salt  string
	media []mediaItem // in order
}

// mediaIn returns the media items that reach into the block of tokens
// from…to−1, at counted from its first token: negative for one that begins
// before.
func (x extras) mediaIn(from, to int) []mediaItem {
	var in []mediaItem
	for _, m := range x.media {
		if m.at < to && m.at+mediaTokens > from {
			in = append(in, mediaItem{m.id, m.at - from})
		}
	}
	return in
}

// namer names the blocks of a sequence.
type namer func(tokens []uint32, x extras) []kv.EngineHash

// stopTokens is the most tokens of an answer that ends by itself.
const stopTokens = 192

// minThinkingTokens is the least answer that begins with thinking.
const minThinkingTokens = 8

// newSequence makes up the answer to a prompt and names the blocks. maxTokens 0
// means that the answer ends by itself; choice tells several answers to one
// prompt apart. room is what the context leaves for the answer, at least 1. Half
// of the answer of a model that thinks is thinking, unless it is very short. The
// answer is appended to prompt, in place if there is capacity.
func newSequence(name namer, prompt []uint32, x extras, thinks bool, choice, maxTokens, room int) *sequence {
	a := answer{seed: hashTokens(prompt) + uint64(choice)*0x9E3779B97F4A7C15, n: maxTokens}
	if maxTokens == 0 {
		a.stop = true
		a.n = min(64+int(a.seed%(stopTokens-63)), room)
	}
	if thinks && a.n >= minThinkingTokens {
		a.think = a.n / 2
	}
	s := &sequence{promptTokens: len(prompt), answer: a, extras: x}
	s.tokens = slices.Grow(prompt, a.n)
	for i := range a.n {
		s.tokens = append(s.tokens, a.token(i))
	}
	s.keys = name(s.tokens, x)
	return s
}

// hashTokens depends on nothing but the tokens.
func hashTokens(tokens []uint32) uint64 {
	var h xxh3.Hasher
	var buf [4096]byte
	for len(tokens) > 0 {
		n := min(len(tokens), len(buf)/4)
		for i, t := range tokens[:n] {
			binary.LittleEndian.PutUint32(buf[4*i:], t)
		}
		h.Write(buf[:4*n])
		tokens = tokens[n:]
	}
	return h.Sum64()
}
