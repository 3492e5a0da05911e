package emulator

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"
)

// chat is what a chat template sees of a request. All values are views of the
// body.
type chat struct {
	messages         []chatMessage
	tools            jsontext.Value // nil: none
	generationPrompt bool
	continueFinal    bool // the last message stays open
	// Arguments of the template.
	noThinking bool   // enable_thinking is false
	date       string // date_string
}

type chatMessage struct {
	role, content, reasoning, calls, callID jsontext.Value
}

// is reports whether a message has a role; nobody escapes one.
func (m *chatMessage) is(role string) bool { return string(m.role[1:len(m.role)-1]) == role }

// lastUser returns the index of the last user message, -1 for none.
func (c *chat) lastUser() int {
	for i := len(c.messages) - 1; i >= 0; i-- {
		if c.messages[i].is("user") {
			return i
		}
	}
	return -1
}

// readMessages reads the array that d reads next. It is part of raw.
func (c *chat) readMessages(d *jsontext.Decoder, raw []byte) error {
	c.messages = nil // of duplicates the last counts
	err := descend(d, '[', func() error {
		m, err := readMessage(d, raw)
		c.messages = append(c.messages, m)
		return err
	})
	if err != nil {
		return fmt.Errorf("messages: %w", err)
	}
	if len(c.messages) == 0 {
		return errors.New("messages: must not be empty")
	}
	return nil
}

func readMessage(d *jsontext.Decoder, raw []byte) (m chatMessage, err error) {
	err = descend(d, '{', func() error {
		return member(d, raw, func(name string, v jsontext.Value) error {
			switch name {
			case "role":
				m.role = v
			case "content":
				m.content = v
			case "reasoning_content", "reasoning":
				if v.Kind() == '"' {
					m.reasoning = v
				}
			case "tool_calls":
				if v.Kind() == '[' {
					m.calls = v
				}
			case "tool_call_id":
				if v.Kind() == '"' {
					m.callID = v
				}
			}
			return nil
		})
	})
	if err == nil && m.role.Kind() != '"' {
		err = errors.New("a message needs a role")
	}
	return m, err
}

// readTools takes the tools of a request. An empty list is none.
func (c *chat) readTools(v jsontext.Value) {
	if c.tools = v; bytes.Equal(v, []byte("[]")) {
		c.tools = nil
	}
}

// readArguments takes chat_template_kwargs.
func (c *chat) readArguments(v jsontext.Value) error {
	err := eachMember(v, func(name string, v jsontext.Value) error {
		switch name {
		case "enable_thinking":
			c.noThinking = v.Kind() == 'f'
		case "date_string":
			if v.Kind() == '"' {
				c.date = string(unquote(nil, v))
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("chat_template_kwargs: %w", err)
	}
	return nil
}
