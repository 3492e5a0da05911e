package emulator

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/zeebo/xxh3"
)

// The chat template, in the manner of ChatML:
//
//	[<|im_start|> tools⏎ JSON of the tools as sent <|im_end|>]
//	<|im_start|> role⏎ content … <|im_end|>                    for each message
//	<|im_start|> assistant⏎                                    generation prompt
//
// Every part (role, text part, tool calls) is tokenised by itself, so equal
// leading messages give equal leading tokens whatever follows, and an answer
// sent back as a message gives the tokens it was generated as.

type renderer struct {
	tokens []uint32
	media  []mediaItem
	text   []byte // scratch
}

// mediaItem is an image or the like in a prompt: mediaTokens tokens from one on.
type mediaItem struct {
	id string // depends on the content as it was sent
	at int    // its first token
}

// mediaTokens is how many tokens a media item is: tokenImage and two made from
// its content.
const mediaTokens = 3

func (r *renderer) part(text []byte) { r.tokens = appendTokens(r.tokens, text) }

// answerRoom is capacity for the tokens of an answer, which will be appended.
const answerRoom = 512

// messages renders the array that d reads next, in one pass over its bytes.
// They are part of raw.
func (r *renderer) messages(d *jsontext.Decoder, raw []byte) error {
	left := len(raw) - int(d.InputOffset())
	r.tokens = make([]uint32, 0, left/pieceBytes+answerRoom)
	n := 0
	err := descend(d, '[', func() error {
		n++
		return r.message(d, raw)
	})
	if err != nil {
		return fmt.Errorf("messages: %w", err)
	}
	if n == 0 {
		return errors.New("messages: must not be empty")
	}
	return nil
}

// finish puts around the messages what the rest of a request adds to them.
// tools may be nil. continueFinal leaves the last message open.
func (r *renderer) finish(tools jsontext.Value, generationPrompt, continueFinal bool) {
	if continueFinal {
		r.tokens = r.tokens[:len(r.tokens)-1] // its end
	}
	if len(tools) > 0 && !bytes.Equal(tools, []byte("[]")) {
		head := appendTokens([]uint32{tokenStart}, []byte("tools\n"))
		head = append(appendTokens(head, tools), tokenEnd)
		r.tokens = slices.Insert(r.tokens, 0, head...)
		for i := range r.media {
			r.media[i].at += len(head)
		}
	}
	if generationPrompt {
		r.tokens = append(r.tokens, tokenStart)
		r.part([]byte("assistant\n"))
	}
}

func (r *renderer) message(d *jsontext.Decoder, raw []byte) error {
	var role, content, calls, callID jsontext.Value
	err := descend(d, '{', func() error {
		return member(d, raw, func(name string, v jsontext.Value) error {
			switch name {
			case "role":
				role = v
			case "content":
				content = v
			case "tool_calls":
				calls = v
			case "tool_call_id":
				callID = v
			}
			return nil
		})
	})
	if err != nil {
		return err
	}
	if role.Kind() != '"' {
		return errors.New("a message needs a role")
	}
	r.tokens = append(r.tokens, tokenStart)
	r.text = append(unquote(r.text[:0], role), '\n')
	r.part(r.text)
	if callID.Kind() == '"' {
		r.string(callID)
	}
	if err := r.content(content); err != nil {
		return err
	}
	if calls.Kind() == '[' {
		r.part(calls)
	}
	r.tokens = append(r.tokens, tokenEnd)
	return nil
}

func (r *renderer) content(v jsontext.Value) error {
	switch v.Kind() {
	case '"':
		r.string(v)
		return nil
	case '[':
		return eachElement(v, r.contentPart)
	case 'n', 0:
		return nil
	}
	return errors.New("content must be a string or an array of parts")
}

func (r *renderer) contentPart(part jsontext.Value) error {
	if part.Kind() == '"' {
		r.string(part)
		return nil
	}
	var text, other jsontext.Value
	err := eachMember(part, func(name string, v jsontext.Value) error {
		switch name {
		case "text":
			text = v
		case "image_url", "input_audio", "video_url", "audio_url", "image", "file":
			other = v
		}
		return nil
	})
	if err != nil {
		return err
	}
	if text.Kind() == '"' {
		r.string(text)
	}
	if len(other) > 0 {
		h := xxh3.Hash(other)
		r.media = append(r.media, mediaItem{fmt.Sprintf("%016x", h), len(r.tokens)})
		r.tokens = append(r.tokens, tokenImage, uint32(h)&0x7F7F7F7F, uint32(h>>32)&0x7F7F7F7F)
	}
	return nil
}

func (r *renderer) string(v jsontext.Value) {
	r.text = unquote(r.text[:0], v)
	r.part(r.text)
}

// unquote appends the text of a JSON string that was parsed already. Invalid
// UTF-8 and lone surrogates become U+FFFD.
func unquote(dst []byte, v jsontext.Value) []byte {
	if inner := v[1 : len(v)-1]; bytes.IndexByte(inner, '\\') < 0 && validUTF8(inner) {
		return append(dst, inner...)
	}
	dst, _ = jsontext.AppendUnquote(dst, v)
	return dst
}
