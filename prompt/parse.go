// Package prompt turns a request's bytes into what routing needs: the model,
// the limits, and keys that name the prompt's prefixes.
//
// The central type is [Request]. A prompt given as token ids has exact keys,
// the same as the workers' KV events give. One given as text has them as far as
// its tokens are known from before ([Learned], which a [Learner] asks engines
// for), and byte chunks, keys over its raw bytes, which match only against what
// this router sent before. Start reading at [Parse].
package prompt

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/rhizome-router/rhizome/kv"
)

// Kind says which API a request speaks.
type Kind uint8

// The kinds. Other is any request that is routed by its model alone.
const (
	Chat Kind = iota
	Completion
	Embedding
	Other
	Messages  // Anthropic's /v1/messages
	Responses // OpenAI's /v1/responses
)

// Request is what routing reads from a request body. It keeps nothing of the
// body's memory. It is built by one goroutine and not safe for concurrent use.
type Request struct {
	Kind         Kind
	Model        string
	Stream       bool
	IncludeUsage bool // stream_options.include_usage
	MaxTokens    int  // output limit; 0 when not given
	N            int  // choices decoded at once, at least 1
	Salt         string
	Prompts      int // sub-requests in one body, at least 1
	// Previous and Conversation name what an engine remembers: a response that
	// this one goes on from, a conversation that it belongs to.
	Previous, Conversation string
	// ReturnIDs says that the answer is to tell the prompt's token ids
	// (return_token_ids).
	ReturnIDs bool
	// CacheKey is what the caller says its prompts have in common
	// (prompt_cache_key); a value that is no string is the engine's to judge.
	CacheKey string
	Hints    Hints

	// Where values stand in the body, for rewrites that touch nothing else.
	ModelAt, StreamOptionsAt Span
	RoutedRankAt, RankAt     Span // of routed_dp_rank and data_parallel_rank

	// Tokens is the prompt, or the first of several, when it was given as
	// token ids; nil for text.
	Tokens []uint32
	// ExtraTokens is the length of the further token-id prompts together.
	ExtraTokens int
	// TextBytes is the length of everything the engine will tokenise, raw as
	// sent, without media data.
	TextBytes int

	// MediaItems is how many images, sounds and videos the messages hold.
	MediaItems int

	spare     []uint32 // memory for Tokens
	chunks    []Chunk
	chunkKeys []kv.Key   // of chunks, once asked for
	tokenKeys []formKeys // once asked for; memory alone where there are none
	promptAt  Span       // of the messages, or of the one prompt
	bounds    []boundary // see boundary.go
	headEnd   int        // how many of bounds are within the head
	whole     uint64     // names the prompt, as boundary.key does a part of it; 0 where nothing is learned of it
	mirrored  bool       // an engine's /tokenize minds all that makes up the prompt
	told      told       // its tokens, if an engine was asked
	known     []known    // its leading part in tokens, as far as it is known
}

// formKeys are the keys of a prompt's blocks in one form. A prompt has one or two.
type formKeys struct {
	form Form
	keys []kv.Key
}

// Chunk is one prefix of a text prompt.
type Chunk struct {
	Key       kv.Key
	TextBytes int // length of the prefix that ends here
}

// SyntaxError says where a body can't be read as a request.
type SyntaxError struct {
	Offset int64 // bytes from the start of the body
	Msg    string
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("invalid request body at byte %d: %s", e.Offset, e.Msg)
}

// Parse reads a whole request body. It never re-encodes it; of duplicate
// members the last counts, as in the engines. The error is a [*SyntaxError]
// when body is not one JSON object or a member that matters has the wrong type.
func Parse(kind Kind, body []byte) (*Request, error) {
	var s Scanner
	if err := s.Scan(body); err != nil {
		return nil, err
	}
	if err := s.End(); err != nil {
		return nil, err
	}
	return s.Request(kind, body, nil)
}

// Model returns the model that the scanned part of body names, "" for none yet.
func (s *Scanner) Model(body []byte) string {
	var model string
	if m := s.value(memberModel, body); m.known && m.raw[0] == '"' {
		_ = readString(&model, m)
	}
	return model
}

// Request returns what routing needs of body, which Scan has read: all of a
// request, or a beginning of it, of which the members that are whole count and
// the whole elements of one that is not. rename, if any, says what the model
// that the body names is called here; the keys are made with that name.
func (s *Scanner) Request(kind Kind, body []byte, rename func(string) string) (*Request, error) {
	r := new(Request)
	if err := s.Fill(r, kind, body, rename); err != nil {
		return nil, err
	}
	return r, nil
}

// Fill is Request into r, whose memory it uses again: nobody may still read what
// r was before, what its methods returned, or the keys that it was given. After an
// error r is of no use but to be filled again. Where the names in the body are
// those that r had before, and it has room for the prompt, nothing is allocated.
func (s *Scanner) Fill(r *Request, kind Kind, body []byte, rename func(string) string) error {
	r.empty()
	r.Kind = kind
	if err := s.readMembers(r, body); err != nil {
		return err
	}
	if r.N < 1 {
		return &SyntaxError{int64(s.members[memberN].Start), "n must be at least 1"}
	}
	r.N = min(r.N, maxChoices)
	if r.MaxTokens < 0 {
		r.MaxTokens = 0 // engines answer this with their own error
	}
	r.ModelAt, r.StreamOptionsAt = s.members[memberModel].Span, s.members[memberStreamOptions].Span
	r.RoutedRankAt, r.RankAt = s.members[memberRoutedRank].Span, s.members[memberRank].Span
	if rename != nil {
		r.Model = rename(r.Model)
	}
	return r.readPrompt(s, body)
}

// empty makes r a request of nothing, and keeps its memory and its names.
func (r *Request) empty() {
	old := *r
	*r = Request{N: 1, Prompts: 1, Model: old.Model, Salt: old.Salt, Previous: old.Previous, Conversation: old.Conversation, CacheKey: old.CacheKey,
		spare: old.spare, chunks: old.chunks[:0], chunkKeys: old.chunkKeys[:0], bounds: old.bounds[:0], known: old.known[:0]}
	if old.Tokens != nil {
		r.spare = old.Tokens
	}
	clear(old.known)
	if len(old.tokenKeys) <= maxSpareForms {
		r.tokenKeys = old.tokenKeys
		for i := range r.tokenKeys {
			r.tokenKeys[i].keys = r.tokenKeys[i].keys[:0]
		}
	}
}

// maxSpareForms bounds how many forms' keys' memory is used again.
const maxSpareForms = 4

// readMembers reads all but the prompt.
func (s *Scanner) readMembers(r *Request, body []byte) error {
	for _, f := range [...]struct {
		member int
		dst    *string
	}{{memberModel, &r.Model}, {memberSalt, &r.Salt}, {memberPrevious, &r.Previous}} {
		m := s.value(f.member, body)
		if !m.given() {
			*f.dst = ""
		} else if err := readString(f.dst, m); err != nil {
			return inMember(f.member, err)
		}
	}
	for _, f := range [...]struct {
		member int
		dst    *int
	}{{memberMaxTokens, &r.MaxTokens}, {memberMaxCompletionTokens, &r.MaxTokens}, {memberMaxOutputTokens, &r.MaxTokens}, {memberN, &r.N}} {
		if m := s.value(f.member, body); m.given() {
			if err := readInt(f.dst, m); err != nil {
				return inMember(f.member, err)
			}
		}
	}
	if m := s.value(memberStream, body); m.given() {
		if err := readBool(&r.Stream, m); err != nil {
			return inMember(memberStream, err)
		}
	}
	if m := s.value(memberStreamOptions, body); m.given() {
		if err := r.readStreamOptions(m); err != nil {
			return inMember(memberStreamOptions, err)
		}
	}
	if err := r.readConversation(s.value(memberConversation, body)); err != nil {
		return inMember(memberConversation, err)
	}
	if m := s.value(memberCacheKey, body); !m.known || m.raw[0] != '"' || readString(&r.CacheKey, m) != nil {
		r.CacheKey = ""
	}
	if m := s.value(memberReturnIDs, body); m.known {
		r.ReturnIDs = m.raw[0] == 't'
	}
	r.readHints(s, body)
	return nil
}

func inMember(i int, err error) error { return fmt.Errorf("member %q: %w", wanted[i], err) }

func syntaxError(d *jsontext.Decoder, err error) error {
	if se, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		return &SyntaxError{se.ByteOffset, se.Err.Error()}
	}
	return &SyntaxError{d.InputOffset(), err.Error()}
}

func (m *member) isNull() bool { return len(m.raw) > 0 && m.raw[0] == 'n' }

// given reports whether m is there, and says something.
func (m *member) given() bool { return m.known && !m.isNull() }

func (m *member) wrongType(want string) error { return m.wrongTypeAt(0, want) }

// wrongTypeAt says what was expected so many bytes behind m's start.
func (m *member) wrongTypeAt(bytes int, want string) error {
	return &SyntaxError{int64(m.Start + bytes), "want " + want}
}

// readString reads a string into dst, which keeps its memory where it is equal.
func readString(dst *string, m member) error {
	if m.raw[0] != '"' {
		return m.wrongType("a string")
	}
	if len(m.raw) > maxTextBytes {
		return m.wrongType(fmt.Sprintf("a string of at most %d bytes", maxTextBytes))
	}
	text := m.raw[1 : len(m.raw)-1]
	if bytes.IndexByte(text, '\\') >= 0 || !utf8.Valid(text) {
		var err error
		if text, err = jsontext.AppendUnquote(nil, m.raw); err != nil {
			return m.wrongType("a string")
		}
	}
	if *dst != string(text) {
		*dst = string(text)
	}
	return nil
}

func readBool(dst *bool, m member) error {
	switch m.raw[0] {
	case 't', 'f':
		*dst = m.raw[0] == 't'
		return nil
	}
	return m.wrongType("true or false")
}

// maxCount bounds what a count in a body may say; beyond it is nonsense that
// would only upset sums.
const maxCount = 1 << 30

func readInt(dst *int, m member) error {
	if n, digits := wholeNumber(m.raw); digits == len(m.raw) {
		*dst = int(min(n, maxCount))
		return nil
	}
	f, err := strconv.ParseFloat(string(m.raw), 64)
	if err != nil {
		return m.wrongType("a number")
	}
	*dst = int(max(-1, min(f, maxCount)))
	return nil
}

func (r *Request) readStreamOptions(m member) error {
	if m.raw[0] != '{' {
		return m.wrongType("an object")
	}
	return eachMember(m.raw, func(name []byte, v jsontext.Value) {
		if string(name) == "include_usage" {
			r.IncludeUsage = v.Kind() == 't'
		}
	})
}

// readConversation reads a conversation's id, which stands alone or in an
// object; what is neither is the engine's to judge.
func (r *Request) readConversation(m member) error {
	if m.known && m.raw[0] == '"' {
		return readString(&r.Conversation, m)
	}
	r.Conversation = ""
	if !m.known || m.raw[0] != '{' {
		return nil
	}
	return eachMember(m.raw, func(name []byte, v jsontext.Value) {
		if string(name) == "id" && v.Kind() == '"' {
			_ = readString(&r.Conversation, member{raw: v})
		}
	})
}
