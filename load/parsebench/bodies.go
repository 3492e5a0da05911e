package parsebench

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/prompt"
)

// Body is one request to read.
type Body struct {
	Name string
	Kind prompt.Kind
	JSON []byte
}

var (
	prose = strings.Fields(`many words of a text which says this and that and in the end not much more than naïve grüße 東京`)
	code  = strings.Fields(`if err != nil {\n \treturn fmt.Errorf( \"%w\", err) }\n func x() int \t for range 9 \n`)
)

// Bodies returns bodies of about so many bytes each. Words and numbers are
// drawn: what repeats, a processor learns by heart.
func Bodies(bytes int) []Body {
	return []Body{
		{"prose", prompt.Chat, chat(bytes, prose, bytes)},
		{"code", prompt.Chat, chat(bytes, code, bytes)},
		{"turns of 2 KB", prompt.Chat, chat(bytes, append(append(code, prose...), prose...), 2000)},
		{"turns of 100 B", prompt.Chat, chat(bytes, prose, 100)},
		{"tools", prompt.Chat, tools(bytes)},
		{"token ids", prompt.Completion, tokens(bytes)},
	}
}

func words(to *strings.Builder, rng *rand.Rand, from []string, bytes int) {
	for end := to.Len() + bytes; to.Len() < end; {
		to.WriteString(from[rng.IntN(len(from))])
		to.WriteByte(' ')
	}
}

// chat is a conversation with messages of so many bytes, as a client sends it.
func chat(bytes int, from []string, turn int) []byte {
	var b strings.Builder
	rng := clock.Rand(1, "chat")
	b.WriteString(`{"messages": [{"role": "system", "content": "Be brief."}`)
	for i := 0; b.Len() < bytes; i++ {
		fmt.Fprintf(&b, `, {"role": "%s", "content": "`, [...]string{"user", "assistant"}[i%2])
		words(&b, rng, from, turn)
		b.WriteString(`"}`)
	}
	b.WriteString(`], "model": "meta-llama/Llama-3.1-8B-Instruct", "stream": true, "temperature": 0.7, "max_tokens": 512}`)
	return []byte(b.String())
}

// tools is an agent's request: half of it says what its tools take, half is
// calls of them and short answers.
func tools(bytes int) []byte {
	var b strings.Builder
	rng := clock.Rand(1, "tools")
	b.WriteString(`{"model": "meta-llama/Llama-3.1-8B-Instruct", "tools": [`)
	for i := 0; b.Len() < bytes/2; i++ {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, `{"type": "function", "function": {"name": "tool_%d", "description": "`, i)
		words(&b, rng, prose, 40+rng.IntN(100))
		b.WriteString(`", "parameters": {"type": "object", "properties": {`)
		for j := range 2 + rng.IntN(6) {
			if j > 0 {
				b.WriteString(", ")
			}
			fmt.Fprintf(&b, `"field_%d": {"type": "integer", "minimum": %d, "maximum": %d, "description": "`, j, rng.IntN(10), 10+rng.IntN(1000))
			words(&b, rng, prose, 10+rng.IntN(40))
			b.WriteString(`"}`)
		}
		b.WriteString(`}, "required": ["field_0", "field_1"], "additionalProperties": false}}}`)
	}
	b.WriteString(`], "messages": [{"role": "user", "content": "Go on."}`)
	for i := 0; b.Len() < bytes; i++ {
		fmt.Fprintf(&b, `, {"role": "assistant", "content": null, "tool_calls": [{"id": "call_%d", "type": "function", "function": {"name": "tool_%d", "arguments": "{\"field_0\": %d, \"field_1\": %d}"}}]}`,
			i, rng.IntN(100), rng.IntN(100), rng.IntN(100))
		fmt.Fprintf(&b, `, {"role": "tool", "tool_call_id": "call_%d", "content": "`, i)
		words(&b, rng, code, 20+rng.IntN(300))
		b.WriteString(`"}`)
	}
	b.WriteString(`], "tool_choice": "auto", "stream": true, "stream_options": {"include_usage": true}}`)
	return []byte(b.String())
}

// tokens is a prompt of token ids, as large as vocabularies have them.
func tokens(bytes int) []byte {
	var b strings.Builder
	rng := clock.Rand(1, "tokens")
	b.WriteString(`{"model": "meta-llama/Llama-3.1-8B-Instruct", "max_tokens": 512, "prompt": [1`)
	for b.Len() < bytes {
		fmt.Fprintf(&b, ", %d", rng.IntN(128_000))
	}
	b.WriteString("]}")
	return []byte(b.String())
}
