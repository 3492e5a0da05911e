package prompt

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/rhizome-router/rhizome/kv"
)

// chunkBytes is the longest byte chunk of a prompt's beginning. Chunks end at
// whole messages too, so that a follow-up turn matches all of the conversation
// before it and not all but a last part. Behind so many chunks' bytes they
// become longer, by what went before: of a match no more than 1/longChunks is
// lost, and a long prompt does not ask for a thousand places in a table.
//
// A text that is no conversation has cuts in place of messages: see boundary.go.
const (
	chunkBytes = 1024
	cutBytes   = 256
	longChunks = 64
)

// readPrompt finds the text or token ids of the prompt and makes its chunks.
func (r *Request) readPrompt(s *Scanner, body []byte) error {
	switch r.Kind {
	case Chat:
		return r.readParts(s, body, memberTools, memberMessages)
	case Messages:
		return r.readParts(s, body, memberTools, memberSystem, memberMessages)
	case Responses:
		return r.readParts(s, body, memberTools, memberInstructions, memberInput)
	case Completion:
		return r.readInput(s, s.value(memberPrompt, body), body)
	case Embedding:
		return r.readInput(s, s.value(memberInput, body), body)
	}
	return nil
}

// readParts makes chunks of a conversation's parts, in the order in which
// templates render them: a string and the elements of an array are whole pieces.
func (r *Request) readParts(s *Scanner, body []byte, parts ...int) error {
	c := r.newChunker(s, body, chunkBytes)
	for _, i := range parts {
		m := s.value(i, body)
		switch {
		case m.known && m.isNull(): // the engine says what is missing
		case len(m.elements) > 0:
			if i == memberMessages {
				r.bounds = slices.Grow(r.bounds, min(len(m.elements), 2*maxBoundaries))
			}
			for n, e := range m.elements {
				c.add(e, s.mediaBytes(e))
				if i == memberMessages && n < len(m.elements)-1 {
					c.mark(e.End, n)
				}
			}
		case !m.known:
		case i == memberMessages && m.raw[0] != '[':
			return m.wrongType("an array of messages")
		case i != memberMessages:
			c.add(m.Span, s.mediaBytes(m.Span))
		}
	}
	r.bound(s, body)
	return nil
}

// readInput reads a string, an array of strings, token ids, or an array of
// arrays of token ids.
func (r *Request) readInput(s *Scanner, m member, body []byte) error {
	switch {
	case m.known && m.isNull():
		return nil
	case m.known && m.raw[0] == '"':
		c := r.newChunker(s, body, cutBytes)
		c.add(m.Span, s.mediaBytes(m.Span))
		if r.Kind == Completion {
			c.cuts(m.Start)
			r.bound(s, body)
		}
		return nil
	case m.known && m.raw[0] != '[':
		return m.wrongType("a string or an array")
	case m.known && m.numbers:
		tokens, err := tokenIDs(r.spare, m)
		r.Tokens = tokens
		return err
	}
	if len(m.elements) == maxElements {
		return m.wrongType(fmt.Sprintf("fewer than %d prompts", maxElements))
	}
	r.Prompts = max(1, len(m.elements))
	for n, at := range m.elements {
		e := member{Span: at, raw: body[at.Start:at.End]}
		switch e.raw[0] {
		case '"':
			if n == 0 {
				c := r.newChunker(s, body, cutBytes)
				c.add(at, s.mediaBytes(at))
			} else {
				r.TextBytes += len(e.raw) // a sub-request of its own: size counts, prefix doesn't
			}
		case '[':
			tokens, err := tokenIDs(r.spare, e)
			if err != nil {
				return err
			}
			if r.spare = tokens; n == 0 {
				r.Tokens, r.spare = tokens, nil
			} else {
				r.ExtraTokens += len(tokens)
			}
		default:
			return e.wrongType("a string or an array of token ids")
		}
	}
	return nil
}

// tokenIDs reads an array of token ids, whose syntax has been checked, into the
// memory of dst where that is enough.
func tokenIDs(dst []uint32, m member) ([]uint32, error) {
	raw := m.raw[1 : len(m.raw)-1]
	tokens := dst[:0]
	if least := min(len(raw)/8, maxTokens); cap(tokens) < least || tokens == nil {
		tokens = make([]uint32, 0, min(len(raw)/4, maxTokens))
	}
	for i := 0; i < len(raw); {
		// Mostly a number of less than eight digits and a comma.
		for i+8 < len(raw) && len(tokens) < maxTokens {
			v, digits := shortNumber(binary.LittleEndian.Uint64(raw[i:]))
			if digits == 0 || raw[i+digits] != ',' || digits == 8 {
				break
			}
			tokens = append(tokens, uint32(v))
			if i += digits + 1; raw[i] == ' ' {
				i++
			}
		}
		if i == len(raw) {
			break
		}
		if isBetween(raw[i]) {
			i++
			continue
		}
		v, digits := wholeNumber(raw[i:])
		end := i + digits
		if digits == 0 || v > math.MaxUint32 || end < len(raw) && !isBetween(raw[end]) {
			return nil, m.wrongTypeAt(1+i, "a token id (0 to 4294967295)")
		}
		if len(tokens) == maxTokens {
			return nil, m.wrongType(fmt.Sprintf("at most %d token ids", maxTokens))
		}
		tokens = append(tokens, uint32(v))
		i = end
	}
	return tokens, nil
}

// isBetween reports whether c may stand between two numbers of an array.
func isBetween(c byte) bool { return c == ',' || c == ' ' || c == '\t' || c == '\r' || c == '\n' }

// chunker cuts a prompt's pieces into chunks and chains their keys.
type chunker struct {
	r       *Request
	hashes  lookup
	body    []byte
	parent  kv.Key
	longest int // bytes of the next chunk, at most
	before  int // bytes so far
}

// newChunker cuts chunks of so many bytes, and longer ones further behind.
func (r *Request) newChunker(s *Scanner, body []byte, bytes int) chunker {
	// The "adapter" keeps byte keys apart from token keys, and the kinds apart
	// from each other: a chat template makes other tokens of the same bytes.
	r.chunks = slices.Grow(r.chunks, len(s.ahead.hashes))
	return chunker{r: r, hashes: lookup{hashes: s.ahead.hashes}, body: body, parent: kv.Root(r.Model, "bytes:"+strconv.Itoa(int(r.Kind)), r.Salt), longest: bytes}
}

// add appends one whole piece (a message, the tools, a prompt), which holds so
// much media.
func (c *chunker) add(piece Span, media int) {
	for at := piece.Start; at < piece.End; {
		c.longest = longestChunk(c.longest, c.before)
		n := min(piece.End-at, c.longest)
		c.before += n
		c.parent = kv.Next(c.parent, kv.Content(c.hashes.of(c.body, at, at+n)))
		skipped := min(n, media)
		media -= skipped
		c.r.TextBytes += n - skipped
		c.r.chunks = append(c.r.chunks, Chunk{c.parent, c.r.TextBytes})
		at += n
	}
}

// Chunks returns the prefixes of a text prompt, shortest first; none for token
// ids.
func (r *Request) Chunks() []Chunk { return r.chunks }

// ChunkKeys returns the keys of Chunks. The result is shared with later calls
// and must not be changed.
func (r *Request) ChunkKeys() []kv.Key {
	if len(r.chunkKeys) == 0 {
		r.chunkKeys = slices.Grow(r.chunkKeys, len(r.chunks))
		for _, c := range r.chunks {
			r.chunkKeys = append(r.chunkKeys, c.Key)
		}
	}
	return r.chunkKeys
}

// Form is how an engine makes blocks of a prompt.
type Form struct {
	BlockTokens int
	// SaltInRoot: a cache salt is part of the root (SGLang), else an extra of
	// the first block (vLLM).
	SaltInRoot bool
}

// of returns the form as it is for one request: without a salt all are alike.
func (f Form) of(r *Request) Form {
	f.SaltInRoot = f.SaltInRoot && r.Salt != ""
	return f
}

// TokenKeys returns the keys of the prompt's whole blocks, as the KV events of
// an engine of that form name them; nil for text. The result is shared with
// later calls and must not be changed.
func (r *Request) TokenKeys(f Form) []kv.Key {
	if len(r.Tokens) == 0 || f.BlockTokens <= 0 {
		return nil
	}
	f = f.of(r)
	keys := r.keysIn(f)
	if len(*keys) == 0 {
		*keys = chain(*keys, r.Model, r.Salt, r.Tokens, f)
	}
	return *keys
}

// keysIn returns where the keys of a form are kept.
func (r *Request) keysIn(f Form) *[]kv.Key {
	for i := range r.tokenKeys {
		if x := &r.tokenKeys[i]; x.form == f {
			return &x.keys
		}
	}
	r.tokenKeys = append(r.tokenKeys, formKeys{form: f})
	return &r.tokenKeys[len(r.tokenKeys)-1].keys
}

// FirstTokenKey returns the first of TokenKeys at the cost of one block; 0 where
// there is none.
func (r *Request) FirstTokenKey(f Form) kv.Key {
	if f.BlockTokens <= 0 || len(r.Tokens) < f.BlockTokens {
		return 0
	}
	f = f.of(r)
	for i := range r.tokenKeys {
		if x := &r.tokenKeys[i]; x.form == f && len(x.keys) > 0 {
			return x.keys[0]
		}
	}
	var one [1]kv.Key
	return chain(one[:0], r.Model, r.Salt, r.Tokens[:f.BlockTokens], f)[0]
}

// chain appends the keys of the whole blocks of tokens to dst, which is empty.
func chain(dst []kv.Key, model, salt string, tokens []uint32, f Form) []kv.Key {
	keys := slices.Grow(dst, len(tokens)/f.BlockTokens)
	if f.SaltInRoot {
		return kv.AppendKeys(keys, kv.Root(model, "", salt), tokens, f.BlockTokens)
	}
	parent, rest := kv.Root(model, "", ""), tokens
	if salt != "" && len(rest) >= f.BlockTokens {
		parent = kv.Next(parent, kv.ContentOf(rest[:f.BlockTokens], "x:"+salt))
		keys, rest = append(keys, parent), rest[f.BlockTokens:]
	}
	return kv.AppendKeys(keys, parent, rest, f.BlockTokens)
}
