package emulator

import (
	"bytes"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// thinking keeps the thinking of answers only behind the last user message: an
// agent's steps between two of them go on where the model was, but the next
// user message makes the engine compute them anew. Thinking stands in the
// content, between <think> and </think>, or in reasoning_content.
func (r *renderer) thinking(c *chat) {
	r.toolsHead(c.tools)
	last := c.lastUser()
	for i := range c.messages {
		m := &c.messages[i]
		if kind := m.content.Kind(); !m.is("assistant") || kind != '"' && kind != 'n' && kind != 0 {
			r.message(m)
			continue
		}
		r.openAs(m.role)
		var thought, said []byte
		if m.content.Kind() == '"' {
			thought, said = splitThinking(unquote(nil, m.content))
		}
		if m.reasoning != nil {
			thought = unquote(nil, m.reasoning)
		}
		if thought = bytes.Trim(thought, "\n"); i > last && len(thought) > 0 {
			r.tokens = append(r.tokens, tokenThink)
			r.part(thought)
			r.tokens = append(r.tokens, tokenThinkEnd)
		}
		r.part(said)
		if m.calls != nil {
			r.part(m.calls)
		}
		r.close()
	}
	r.finish(c)
	if c.generationPrompt && c.noThinking {
		r.tokens = append(r.tokens, tokenThink, tokenThinkEnd)
	}
}

// splitThinking cuts an answer into its thinking, if any, and what it says.
func splitThinking(text []byte) (thought, said []byte) {
	i := bytes.LastIndex(text, []byte(thinkEnd))
	if i < 0 {
		return nil, text
	}
	thought, said = text[:i], bytes.TrimLeft(text[i+len(thinkEnd):], "\n")
	if j := bytes.Index(thought, []byte(think)); j >= 0 {
		thought = thought[j+len(think):]
	}
	return thought, said
}

// toolsLast moves the tools with each new user message, so that what comes
// before the one but last stays and all behind it shifts.
func (r *renderer) toolsLast(c *chat) {
	last := c.lastUser()
	if last < 0 {
		r.toolsHead(c.tools)
	}
	for i := range c.messages {
		if i == last {
			r.toolsHead(c.tools)
		}
		r.message(&c.messages[i])
	}
	r.finish(c)
}

// dated begins with a system message, made up where there is none, that says
// which day it is: at midnight nothing is the beginning of anything any more.
func (r *renderer) dated(c *chat, now time.Time) {
	date := c.date
	if date == "" {
		date = now.Format("02 Jan 2006")
	}
	messages := c.messages
	r.open("system")
	r.part([]byte("Cutting Knowledge Date: December 2023\nToday Date: " + date + "\n\n"))
	if len(messages) > 0 && messages[0].is("system") {
		r.content(messages[0].content)
		messages = messages[1:]
	}
	r.close()
	r.toolsHead(c.tools)
	for i := range messages {
		r.message(&messages[i])
	}
	r.finish(c)
}

// toolJSON writes the JSON of tools and calls as Python's json.dumps does: the
// members in their order, white space as its own. A call is its name and its
// arguments, which clients send as a string of JSON.
func (r *renderer) toolJSON(c *chat) {
	if c.tools != nil {
		r.toolsHead(appendPythonJSON(nil, c.tools))
	}
	for i := range c.messages {
		m := &c.messages[i]
		r.openAs(m.role)
		r.content(m.content)
		if m.calls != nil {
			if err := eachElement(m.calls, r.call); err != nil && r.err == nil {
				r.err = err
			}
		}
		r.close()
	}
	r.finish(c)
}

// call writes one element of tool_calls.
func (r *renderer) call(v jsontext.Value) error {
	var name, arguments jsontext.Value
	if v.Kind() == '{' {
		_ = eachMember(v, func(n string, f jsontext.Value) error {
			if n != "function" || f.Kind() != '{' {
				return nil
			}
			return eachMember(f, func(n string, v jsontext.Value) error {
				switch n {
				case "name":
					name = v
				case "arguments":
					arguments = v
				}
				return nil
			})
		})
	}
	b := append([]byte("\n<tool_call>\n{\"name\": "), appendPythonJSON(nil, name)...)
	b = append(b, ", \"arguments\": "...)
	if arguments.Kind() == '"' {
		if inner := jsontext.Value(unquote(nil, arguments)); inner.IsValid(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)) {
			arguments = inner
		}
	}
	b = appendPythonJSON(b, arguments)
	r.part(append(b, "}\n</tool_call>"...))
	return nil
}

// appendPythonJSON appends a value that was parsed already, nothing as null.
func appendPythonJSON(dst []byte, v jsontext.Value) []byte {
	if len(v) == 0 {
		return append(dst, "null"...)
	}
	text := false
	for i := 0; i < len(v); i++ {
		switch b := v[i]; {
		case text && b == '\\':
			dst = append(dst, b, v[i+1])
			i++
			continue
		case b == '"':
			text = !text
		case text:
		case b == ' ' || b == '\t' || b == '\n' || b == '\r':
			continue
		case b == ',' || b == ':':
			dst = append(dst, b, ' ')
			continue
		}
		dst = append(dst, v[i])
	}
	return dst
}
