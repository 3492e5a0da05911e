package emulator

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/zeebo/xxh3"
)

// Template is how the messages of a chat become one prompt. All are made up, in
// the manner of ChatML:
//
//	[<|im_start|> tools⏎ JSON of the tools as sent <|im_end|>]
//	<|im_start|> role⏎ content … <|im_end|>                    for each message
//	<|im_start|> assistant⏎                                    generation prompt
//
// Every part (role, text part, tool calls) is tokenised by itself. But for the
// plain one each has one trait of real models' templates that keeps a
// conversation's beginning from being the beginning of its continuation.
type Template string

// The templates.
const (
	// TemplatePlain has no such trait: equal leading messages give equal leading
	// tokens whatever follows, and an answer sent back as a message gives the
	// tokens it was generated as.
	TemplatePlain Template = "plain"
	// TemplateThinking makes the model think, and leaves the thinking of earlier
	// answers out once a newer user message exists, as Qwen3, DeepSeek and gpt-oss.
	TemplateThinking Template = "thinking"
	// TemplateToolsLast has the tools before the last user message, as Mistral.
	TemplateToolsLast Template = "tools-last"
	// TemplateDated has today's date in its head, as Llama 3.1 and harmony.
	TemplateDated Template = "dated"
	// TemplateToolJSON writes tools and tool calls in its own JSON, as Hermes
	// and Qwen: what differs in white space and in the ids of calls is the same.
	TemplateToolJSON Template = "tool-json"
)

// Templates returns the names of the templates.
func Templates() []string {
	return []string{string(TemplatePlain), string(TemplateThinking), string(TemplateToolsLast), string(TemplateDated), string(TemplateToolJSON)}
}

// ParseTemplate returns the template called s; an empty one is the plain one.
func ParseTemplate(s string) (Template, error) {
	if s == "" {
		return TemplatePlain, nil
	}
	if !slices.Contains(Templates(), s) {
		return "", fmt.Errorf("chat template %q is unknown; use one of %s", s, strings.Join(Templates(), ", "))
	}
	return Template(s), nil
}

// render returns the prompt of a chat. bodyBytes is the length of the request,
// for a guess at the prompt's. now is for dated heads.
func (t Template) render(c *chat, bodyBytes int, now time.Time) (renderer, error) {
	r := renderer{tokens: make([]uint32, 0, bodyBytes/pieceBytes+answerRoom)}
	switch t {
	case TemplateThinking:
		r.thinking(c)
	case TemplateToolsLast:
		r.toolsLast(c)
	case TemplateDated:
		r.dated(c, now)
	case TemplateToolJSON:
		r.toolJSON(c)
	default:
		r.plain(c)
	}
	return r, r.err
}

// renderer writes a prompt.
type renderer struct {
	tokens []uint32
	media  []mediaItem
	text   []byte // scratch
	err    error  // the first; the client's
}

// mediaItem is an image or the like in a prompt: mediaTokens tokens from one on.
type mediaItem struct {
	id string // depends on the content as it was sent
	at int    // its first token
}

// mediaTokens is how many tokens a media item is. In vLLM all are placeholders,
// and its block hashes and events name the content beside them; SGLang has ids
// made from the content in their place, all but the first one here.
const mediaTokens = 3

// answerRoom is capacity for the tokens of an answer, which will be appended.
const answerRoom = 512

func (r *renderer) plain(c *chat) {
	r.toolsHead(c.tools)
	for i := range c.messages {
		r.message(&c.messages[i])
	}
	r.finish(c)
}

func (r *renderer) toolsHead(tools []byte) {
	if tools != nil {
		r.open("tools")
		r.part(tools)
		r.close()
	}
}

// message writes one message whole.
func (r *renderer) message(m *chatMessage) {
	r.openAs(m.role)
	if m.callID != nil {
		r.string(m.callID)
	}
	r.content(m.content)
	if m.calls != nil {
		r.part(m.calls)
	}
	r.close()
}

// finish opens the last message again, or adds the generation prompt.
func (r *renderer) finish(c *chat) {
	if c.continueFinal {
		r.tokens = r.tokens[:len(r.tokens)-1]
	} else if c.generationPrompt {
		r.open("assistant")
	}
}

func (r *renderer) part(text []byte) { r.tokens = appendTokens(r.tokens, text) }

func (r *renderer) open(role string) {
	r.tokens = append(r.tokens, tokenStart)
	r.text = append(append(r.text[:0], role...), '\n')
	r.part(r.text)
}

func (r *renderer) openAs(role jsontext.Value) {
	r.tokens = append(r.tokens, tokenStart)
	r.text = append(unquote(r.text[:0], role), '\n')
	r.part(r.text)
}

func (r *renderer) close() { r.tokens = append(r.tokens, tokenEnd) }

func (r *renderer) content(v jsontext.Value) {
	switch v.Kind() {
	case '"':
		r.string(v)
	case '[':
		if err := eachElement(v, r.contentPart); err != nil && r.err == nil {
			r.err = fmt.Errorf("messages: %w", err)
		}
	case 'n', 0:
	default:
		r.err = errors.New("messages: content must be a string or an array of parts")
	}
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
		r.tokens = append(r.tokens, tokenImage, tokenImage, tokenImage)
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
