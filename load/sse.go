package load

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/rhizome-router/rhizome/clock"
)

// maxEventBytes bounds one line of an event stream.
const maxEventBytes = 4 << 20

var (
	errNoDone    = errors.New("the stream ended without [DONE]")
	errNoToken   = errors.New("the stream ended without a token")
	errLongEvent = fmt.Errorf("an event is longer than %d bytes", maxEventBytes)
)

// stream follows one streamed answer (server-sent events of the OpenAI API) as
// its bytes arrive. It looks only for what has to be timed: events that carry a
// token, the usage, an error, the end. It decodes nothing but the usage, once,
// after the end. A data line is taken for one event, which holds for every
// engine known.
type stream struct {
	onData func(event []byte) // if set, gets every event's data; must not keep it

	carry       []byte // an incomplete line
	usage       []byte // the last event that told usage
	failure     []byte // an error event
	tokenEvents int
	first, last clock.Instant // of the events with tokens
	done        bool
}

// feed takes the next bytes of the answer, which arrived at now.
func (s *stream) feed(p []byte, now clock.Instant) error {
	for len(p) > 0 {
		line, rest, ended := bytes.Cut(p, []byte{'\n'})
		if len(s.carry)+len(line) > maxEventBytes {
			return errLongEvent
		}
		if !ended {
			s.carry = append(s.carry, line...)
			return nil
		}
		if len(s.carry) > 0 {
			s.carry = append(s.carry, line...)
			line = s.carry
		}
		s.line(line, now)
		s.carry = s.carry[:0]
		p = rest
	}
	return nil
}

func (s *stream) line(line []byte, now clock.Instant) {
	data, ok := bytes.CutPrefix(bytes.TrimSuffix(line, []byte{'\r'}), []byte("data:"))
	if !ok || s.done {
		return
	}
	data = bytes.TrimLeft(data, " ")
	if bytes.Equal(data, []byte("[DONE]")) {
		s.done = true
		return
	}
	if isError(data) && s.failure == nil {
		s.failure = bytes.Clone(data[:min(len(data), 512)])
	}
	if carriesToken(data) {
		if s.tokenEvents == 0 {
			s.first = now
		}
		s.last = now
		s.tokenEvents++
	}
	if opensAfterKey(data, `"usage":`, '{') {
		s.usage = append(s.usage[:0], data...)
	}
	if s.onData != nil {
		s.onData(data)
	}
}

// end tells how the stream ended, once no more bytes come.
func (s *stream) end() error {
	switch {
	case s.failure != nil:
		return fmt.Errorf("the stream carried an error: %.300q", s.failure)
	case !s.done:
		return errNoDone
	case s.tokenEvents == 0:
		return errNoToken
	}
	return nil
}

// reset makes s ready for another answer, keeping its buffers.
func (s *stream) reset(onData func([]byte)) {
	*s = stream{onData: onData, carry: s.carry[:0], usage: s.usage[:0]}
}

// carriesToken tells whether an event holds a piece of an answer. Quotes inside
// JSON strings are escaped, so a key with its quotes and colon can only be a
// key.
func carriesToken(data []byte) bool {
	return nonEmptyAfterKey(data, `"content":`) || nonEmptyAfterKey(data, `"text":`) ||
		nonEmptyAfterKey(data, `"reasoning_content":`) || nonEmptyAfterKey(data, `"reasoning":`) ||
		nonEmptyAfterKey(data, `"arguments":`)
}

// nonEmptyAfterKey tells whether some occurrence of key has a non-empty string.
func nonEmptyAfterKey(data []byte, key string) bool {
	for {
		i := bytes.Index(data, []byte(key))
		if i < 0 {
			return false
		}
		data = data[i+len(key):]
		v := bytes.TrimLeft(data, " ")
		if len(v) > 1 && v[0] == '"' && v[1] != '"' {
			return true
		}
	}
}

// opensAfterKey tells whether the last occurrence of key is followed by open.
func opensAfterKey(data []byte, key string, open byte) bool {
	i := bytes.LastIndex(data, []byte(key))
	if i < 0 {
		return false
	}
	v := bytes.TrimLeft(data[i+len(key):], " ")
	return len(v) > 0 && v[0] == open
}

// isError tells whether an event is an OpenAI-shaped error object.
func isError(data []byte) bool {
	inner, ok := bytes.CutPrefix(data, []byte("{"))
	return ok && bytes.HasPrefix(bytes.TrimLeft(inner, " "), []byte(`"error"`))
}

// usageCount is what an answer said about its tokens.
type usageCount struct {
	Known                          bool // the answer told its usage
	PromptTokens, CompletionTokens int
	// CachedTokens is the part of PromptTokens that came from a cache;
	// CachedKnown false means the engine did not say (vLLM says nothing rather
	// than zero).
	CachedTokens int
	CachedKnown  bool
}

func parseUsage(event []byte) usageCount {
	var e struct {
		Usage *struct {
			Prompt     int `json:"prompt_tokens"`
			Completion int `json:"completion_tokens"`
			Details    *struct {
				Cached *int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		} `json:"usage"`
	}
	if len(event) == 0 || json.Unmarshal(event, &e) != nil || e.Usage == nil || e.Usage.Prompt < 0 || e.Usage.Completion < 0 {
		return usageCount{}
	}
	u := usageCount{Known: true, PromptTokens: e.Usage.Prompt, CompletionTokens: e.Usage.Completion}
	if d := e.Usage.Details; d != nil && d.Cached != nil {
		u.CachedTokens, u.CachedKnown = min(max(*d.Cached, 0), u.PromptTokens), true
	}
	return u
}
