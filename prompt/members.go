package prompt

import (
	"bytes"

	"github.com/go-json-experiment/json/jsontext"
)

// Span is a piece of a body, in bytes from its start. What has not ended yet,
// or is not there, has End 0.
type Span struct{ Start, End int }

// member is one top-level member of a body, its value where it is known whole.
type member struct {
	Span
	known bool
	raw   []byte // the value, set by Scanner.value
	// elements are those of an array, save of one that starts with a number.
	elements []Span
	messages []message // of elements that are messages
	numbers  bool
}

// What a Scanner keeps of a body is bounded: a few bytes that unpack to a body
// of empty messages must not take many times the body's memory.
const (
	// maxElements is how many elements of one array are told apart; the last of
	// them stands for all that follow.
	maxElements = 1 << 16
	// maxTextBytes bounds a string that is read as a name, and maxObjectBytes an
	// object that is read member by member.
	maxTextBytes   = 64 << 10
	maxObjectBytes = 1 << 20
	// maxTokens bounds one prompt of token ids: no model's context comes near.
	maxTokens = 1 << 24
	// maxChoices is above what engines take for n.
	maxChoices = 1 << 14
)

// wanted are the members that routing reads; all others are only checked.
var wanted = [...]string{
	"model", "stream", "max_tokens", "max_completion_tokens", "max_output_tokens", "n", "cache_salt", "stream_options",
	"prompt", "input", "messages", "tools", "system", "instructions", "previous_response_id", "conversation",
	"prompt_cache_key", "nvext", "cache_control",
	"routed_dp_rank", "data_parallel_rank", "return_token_ids",
}

const (
	memberModel = iota
	memberStream
	memberMaxTokens
	memberMaxCompletionTokens
	memberMaxOutputTokens
	memberN
	memberSalt
	memberStreamOptions
	memberPrompt
	memberInput
	memberMessages
	memberTools
	memberSystem
	memberInstructions
	memberPrevious
	memberConversation
	memberCacheKey
	memberNvext
	memberCacheControl
	memberRoutedRank
	memberRank
	memberReturnIDs
)

// emptied returns m without all that it tells, but with its memory.
func (m *member) emptied() member { return member{elements: m.elements[:0], messages: m.messages[:0]} }

// began notes where a value of interest starts.
func (s *Scanner) began(c byte) {
	if len(s.open) > 2 || s.at < 0 {
		return
	}
	m := &s.members[s.at]
	switch {
	case len(s.open) == 1:
		*m = m.emptied() // of duplicates the last counts
		m.Start = s.pos
	case s.open[1] != '[' || m.numbers:
	case s.state == valueOrEnd && (c == '-' || c >= '0' && c <= '9'):
		m.numbers = true
	case len(m.elements) == maxElements:
	case s.at == memberMessages || s.at == memberPrompt || s.at == memberInput || s.at == memberSystem:
		m.elements = append(m.elements, Span{Start: s.pos})
		if s.at == memberMessages {
			m.messages = append(m.messages, message{})
		}
	}
	s.openPiece(m, c)
}

// ended notes where a value of interest ends, and what is expected next.
func (s *Scanner) ended(end int, body []byte) {
	s.state = after
	if s.ahead.depth > 0 && len(s.open) == s.ahead.depth {
		s.closePiece(body[:end])
	}
	switch len(s.open) {
	case 0:
		s.state = done
	case 1:
		switch {
		case s.at >= 0:
			s.members[s.at].End, s.members[s.at].known = end, true
		case s.other:
			s.endOther(end)
		}
	case 2:
		if s.at >= 0 {
			if e := s.members[s.at].elements; len(e) > 0 && s.open[1] == '[' {
				e[len(e)-1].End = end
			}
		}
	}
}

// value returns a wanted member with its value. Of an array whose end has not
// arrived it has the whole elements alone.
func (s *Scanner) value(i int, body []byte) member {
	m := s.members[i]
	if m.known {
		m.raw = body[m.Start:m.End]
	} else if n := len(m.elements); n > 0 && m.elements[n-1].End == 0 {
		m.elements = m.elements[:n-1]
	}
	return m
}

// indexOf returns which of the wanted members a name in quotes is, or -1.
func indexOf(quoted []byte) int {
	name := quoted[1 : len(quoted)-1]
	if bytes.IndexByte(name, '\\') >= 0 {
		if len(name) > len(`\u0000`)*len("max_completion_tokens") {
			return -1 // longer than any of them, all of it escaped
		}
		name, _ = jsontext.AppendUnquote(nil, quoted)
	}
	for i, w := range wanted {
		if string(name) == w {
			return i
		}
	}
	return -1
}
