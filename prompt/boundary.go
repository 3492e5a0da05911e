package prompt

import (
	"bytes"
	"encoding/binary"

	"github.com/zeebo/xxh3"
)

// A boundary is a place in a text prompt up to which its tokens can be learned:
// the end of a whole message but the last, or a cut in a plain text. Its key
// names all that decides those tokens on one kind of worker: the model, the
// salt, the members of the body that may reach the template, the bytes of the
// tools and of all messages so far, and whether a user's message follows. The
// last, because templates leave out earlier thinking, or put the tools
// elsewhere, once the user speaks again.
//
// The bytes are hashed once, as chunks (text.go); a boundary is the end of a
// chunk, and its key is made of that chunk's.
type boundary struct {
	key   uint64
	end   int // of the message or cut, in bytes from the start of the body
	chunk int // it ends with chunks[chunk]
	last  int // message before it, of a conversation
	// learnable: no media before it, whose tokens are not told by their bytes.
	learnable bool
	answered  bool // the assistant speaks next
	spoken    bool // the assistant spoke last, and a user's message follows some time
	items     int  // media items before it
}

// maxBoundaries bounds how many are kept of one prompt: the first of all and
// the last ones.
const maxBoundaries = 512

// mark notes that a boundary may be where the chunks end now, behind a message.
// Of very many the first and the last ones stay.
func (c *chunker) mark(end, message int) {
	b := c.r.bounds
	if len(b) == 2*maxBoundaries {
		b = append(b[:1], b[maxBoundaries+1:]...)
	}
	c.r.bounds = append(b, boundary{end: end, chunk: len(c.r.chunks) - 1, last: message})
}

// cuts makes the ends of all chunks but the last of a plain text, which starts
// at an offset of the body, boundaries.
func (c *chunker) cuts(start int) {
	end, longest := start, cutBytes
	for i := range max(0, len(c.r.chunks)-1) {
		for end-start >= 2*longChunks*longest {
			longest *= 2
		}
		end += longest
		c.r.bounds = append(c.r.bounds, boundary{end: end, chunk: i, learnable: true})
	}
}

// bound gives the boundaries their keys. Of a body that is not whole nothing is
// learned: what decides the tokens may be in what is still to come.
func (r *Request) bound(s *Scanner, body []byte) {
	messages := s.members[memberMessages].messages
	if r.Kind != Chat {
		messages = nil
	}
	for _, m := range messages {
		r.MediaItems += int(m.items)
	}
	if r.Kind != Chat && r.Kind != Completion || s.state != done || len(s.others) > maxOthers || len(messages) == maxElements || len(r.chunks) == 0 {
		r.bounds = r.bounds[:0]
		return
	}
	head, mirrored := s.head(body)
	r.mirrored, r.promptAt = mirrored, s.members[memberPrompt].Span
	if r.Kind == Chat {
		r.promptAt = s.members[memberMessages].Span
	}
	r.whole = mix(uint64(r.chunks[len(r.chunks)-1].Key), head, wholePrompt)
	if n := len(r.bounds); n > maxBoundaries {
		r.bounds = append(r.bounds[:1], r.bounds[n-maxBoundaries+1:]...)
	}
	if r.Kind == Chat {
		r.judge(messages)
	}
	suffix, next := noUserFollows, len(messages)
	for i := len(r.bounds) - 1; i >= 0; i-- {
		b := &r.bounds[i]
		for r.Kind == Chat && next > b.last+1 {
			next--
			if messages[next].role == userRole {
				suffix = userFollows
			}
		}
		b.spoken = r.Kind == Chat && suffix == userFollows && messages[b.last].role == assistantRole
		b.key = mix(uint64(r.chunks[b.chunk].Key), head, suffix)
	}
}

// judge finds the head, which are the leading system messages, where the media
// are, and where the assistant speaks next.
func (r *Request) judge(messages []message) {
	items, next := 0, 0
	head := true
	for i := range r.bounds {
		b := &r.bounds[i]
		for ; next <= b.last; next++ {
			items += int(messages[next].items)
			head = head && messages[next].role == systemRole
		}
		b.items, b.learnable, b.answered = items, items == 0, messages[next].role == assistantRole
		if head {
			r.headEnd = i + 1
		}
	}
}

// What follows a boundary, as part of its key.
const (
	wholePrompt = iota
	userFollows
	noUserFollows
)

// head returns a hash of the members of a body that may change how messages
// become tokens, as they were sent; the messages and tools themselves are in
// the chunks. mirrored says that an engine's /tokenize minds all of them.
func (s *Scanner) head(body []byte) (hash uint64, mirrored bool) {
	mirrored = true
	for _, o := range s.others {
		raw := body[o.Start:o.End]
		hash = mix(hash, xxh3.Hash(raw), 0)
		mirrored = mirrored && isMirrored(raw)
	}
	return hash, mirrored
}

// isMirrored reports whether /tokenize minds a member, of vLLM or SGLang, or
// its value is what goes without saying.
func isMirrored(raw []byte) bool {
	name, value, _ := bytes.Cut(raw, []byte(":"))
	switch string(bytes.TrimSpace(name)) {
	case `"add_generation_prompt"`, `"continue_final_message"`, `"add_special_tokens"`, `"chat_template"`, `"chat_template_kwargs"`:
		return true
	case `"tool_choice"`:
		return string(bytes.TrimSpace(value)) == `"auto"`
	}
	return string(bytes.TrimSpace(value)) == "null"
}

// mix makes one name of several.
func mix(a, b uint64, tag int) uint64 {
	var buf [24]byte
	binary.LittleEndian.PutUint64(buf[:8], a)
	binary.LittleEndian.PutUint64(buf[8:16], b)
	binary.LittleEndian.PutUint64(buf[16:], uint64(tag))
	return xxh3.Hash(buf[:])
}

// textBytes returns the text before boundary i; before the first with i -1.
func (r *Request) textBytes(i int) int {
	if i < 0 {
		return 0
	}
	return r.chunks[r.bounds[i].chunk].TextBytes
}
