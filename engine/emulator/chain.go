package emulator

import (
	"encoding/binary"

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
	salt         string
}

// newSequence makes up the answer to a prompt and names the blocks. maxTokens 0
// means that the answer ends by itself; choice tells several answers to one
// prompt apart. room is what the context leaves for the answer, at least 1.
func newSequence(seed uint64, blockTokens int, prompt []uint32, salt string, choice, maxTokens, room int) *sequence {
	a := answer{seed: hashTokens(prompt) + uint64(choice)*0x9E3779B97F4A7C15, n: maxTokens}
	if maxTokens == 0 {
		a.stop = true
		a.n = min(64+int(a.seed%129), room)
	}
	s := &sequence{promptTokens: len(prompt), answer: a, salt: salt}
	s.tokens = make([]uint32, len(prompt), len(prompt)+a.n)
	copy(s.tokens, prompt)
	for i := range a.n {
		s.tokens = append(s.tokens, a.token(i))
	}
	s.keys = make([]kv.EngineHash, 0, len(s.tokens)/blockTokens)
	parent := engineRoot(seed)
	for i := 0; i+blockTokens <= len(s.tokens); i += blockTokens {
		var c kv.Content
		if i == 0 && salt != "" {
			c = kv.ContentOf(s.tokens[:blockTokens], "x:"+salt)
		} else {
			c = kv.ContentOf(s.tokens[i : i+blockTokens])
		}
		parent = kv.Next(parent, c)
		s.keys = append(s.keys, kv.EngineHash(parent))
	}
	return s
}

// engineRoot is where a worker's own block hashes start from. Workers of
// different seeds name equal blocks differently, as vLLM does unless told
// otherwise.
func engineRoot(seed uint64) kv.Key {
	b := binary.LittleEndian.AppendUint64([]byte("emulator"), seed)
	return kv.Key(xxh3.Hash(b))
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
