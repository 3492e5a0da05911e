// Package prompt turns a request's bytes into what routing needs: the model,
// the limits, and keys that name the prompt's prefixes.
//
// The central type is [Request]. A prompt given as token ids has exact keys,
// the same as the workers' KV events give; a prompt given as text has byte
// chunks, keys over its raw bytes, which match only against what this router
// sent before. Start reading at [Parse].
package prompt

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"

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
)

// Request is what routing reads from a request body. It refers to the body's
// memory, which must not change while the Request is in use. It is built by
// one goroutine and not safe for concurrent use.
type Request struct {
	Kind         Kind
	Model        string
	Stream       bool
	IncludeUsage bool // stream_options.include_usage
	MaxTokens    int  // output limit; 0 when not given
	N            int  // choices decoded at once, at least 1
	Salt         string
	Prompts      int // sub-requests in one body, at least 1

	// Tokens is the prompt, or the first of several, when it was given as
	// token ids; nil for text.
	Tokens []uint32
	// ExtraTokens is the length of the further token-id prompts together.
	ExtraTokens int
	// TextBytes is the length of everything the engine will tokenise, raw as
	// sent, without media data.
	TextBytes int

	chunks    []Chunk
	chunkKeys []kv.Key // of chunks, once asked for
	tokenKeys map[Form][]kv.Key
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

// member is one top-level member of a body: its raw value and where it starts.
type member struct {
	raw    []byte
	offset int
}

// Parse reads a request body. It keeps nothing but views of body and never
// re-encodes it; of duplicate members the last counts, as in the engines. The
// error is a [*SyntaxError] when body is not one JSON object or a member that
// matters has the wrong type.
func Parse(kind Kind, body []byte) (*Request, error) {
	members, err := scan(body)
	if err != nil {
		return nil, err
	}
	r := &Request{Kind: kind, N: 1, Prompts: 1}
	fields := []struct {
		name string
		read func(member) error
	}{
		{"model", readString(&r.Model)},
		{"stream", readBool(&r.Stream)},
		{"max_tokens", readInt(&r.MaxTokens)},
		{"max_completion_tokens", readInt(&r.MaxTokens)},
		{"n", readInt(&r.N)},
		{"cache_salt", readString(&r.Salt)},
		{"stream_options", r.readStreamOptions},
	}
	for _, f := range fields {
		m, ok := members[f.name]
		if !ok || m.isNull() {
			continue
		}
		if err := f.read(m); err != nil {
			return nil, fmt.Errorf("member %q: %w", f.name, err)
		}
	}
	if r.N < 1 {
		return nil, &SyntaxError{int64(members["n"].offset), "n must be at least 1"}
	}
	if r.MaxTokens < 0 {
		r.MaxTokens = 0 // engines answer this with their own error
	}
	if err := r.readPrompt(members); err != nil {
		return nil, err
	}
	return r, nil
}

// wanted are the members that Parse reads; all others are skipped unread.
var wanted = map[string]bool{
	"model": true, "stream": true, "max_tokens": true, "max_completion_tokens": true, "n": true,
	"cache_salt": true, "stream_options": true, "prompt": true, "input": true, "messages": true, "tools": true,
}

// scan splits a body into the members of its one object.
func scan(body []byte) (map[string]member, error) {
	d := jsontext.NewDecoder(bytes.NewBuffer(body),
		jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if d.PeekKind() != '{' {
		if _, err := d.ReadToken(); err != nil {
			return nil, syntaxError(d, err)
		}
		return nil, &SyntaxError{0, "the body must be a JSON object"}
	}
	if _, err := d.ReadToken(); err != nil {
		return nil, syntaxError(d, err)
	}
	members := make(map[string]member, 8)
	for d.PeekKind() == '"' {
		name, err := d.ReadToken()
		if err != nil {
			return nil, syntaxError(d, err)
		}
		key := name.String()
		if !wanted[key] {
			if err := d.SkipValue(); err != nil {
				return nil, syntaxError(d, err)
			}
			continue
		}
		raw, err := d.ReadValue()
		if err != nil {
			return nil, syntaxError(d, err)
		}
		end := int(d.InputOffset())
		members[key] = member{body[end-len(raw) : end], end - len(raw)}
	}
	if _, err := d.ReadToken(); err != nil {
		return nil, syntaxError(d, err)
	}
	if _, err := d.ReadToken(); !errors.Is(err, io.EOF) {
		return nil, &SyntaxError{d.InputOffset(), "data after the JSON object"}
	}
	return members, nil
}

func syntaxError(d *jsontext.Decoder, err error) error {
	if se, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		return &SyntaxError{se.ByteOffset, se.Err.Error()}
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return &SyntaxError{d.InputOffset(), "the body ends too early"}
	}
	return &SyntaxError{d.InputOffset(), err.Error()}
}

func (m member) isNull() bool { return len(m.raw) > 0 && m.raw[0] == 'n' }

func (m member) wrongType(want string) error {
	return &SyntaxError{int64(m.offset), "want " + want}
}

func readString(dst *string) func(member) error {
	return func(m member) error {
		if m.raw[0] != '"' {
			return m.wrongType("a string")
		}
		b, err := jsontext.AppendUnquote(nil, m.raw)
		if err != nil {
			return m.wrongType("a string")
		}
		*dst = string(b)
		return nil
	}
}

func readBool(dst *bool) func(member) error {
	return func(m member) error {
		switch m.raw[0] {
		case 't', 'f':
			*dst = m.raw[0] == 't'
			return nil
		}
		return m.wrongType("true or false")
	}
}

// maxCount bounds what a count in a body may say; beyond it is nonsense that
// would only upset sums.
const maxCount = 1 << 30

func readInt(dst *int) func(member) error {
	return func(m member) error {
		f, err := strconv.ParseFloat(string(m.raw), 64)
		if err != nil {
			return m.wrongType("a number")
		}
		*dst = int(max(-1, min(f, maxCount)))
		return nil
	}
}

func (r *Request) readStreamOptions(m member) error {
	if m.raw[0] != '{' {
		return m.wrongType("an object")
	}
	d := jsontext.NewDecoder(bytes.NewReader(m.raw), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	d.ReadToken() // the scan has checked the syntax
	for d.PeekKind() == '"' {
		name, _ := d.ReadToken()
		key := name.String()
		v, err := d.ReadValue()
		if err != nil {
			return syntaxError(d, err)
		}
		if key == "include_usage" {
			r.IncludeUsage = v.Kind() == 't'
		}
	}
	return nil
}
