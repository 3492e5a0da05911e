package gateway

import (
	"bytes"
	"strings"

	"github.com/rhizome-router/rhizome/prompt"
)

// endingOf names the events of which one has to end the event stream that
// answers x: without it a clean end of the body is still a broken answer. nil
// where the API is not known to have such events.
//
// OpenAI's older APIs end with [DONE]; the Messages API with message_stop
// (docs.anthropic.com, "Streaming messages"); the Responses API with the event
// that tells the response's last state. Engines may add [DONE] to the latter two.
func endingOf(x *exchange) []string {
	switch {
	case strings.HasPrefix(x.path, "/v1/responses/") && x.state != "": // its stream, once more
		return responsesEnd
	case !x.prompt.Stream:
		return nil
	}
	switch x.prompt.Kind {
	case prompt.Chat, prompt.Completion:
		return []string{"[DONE]"}
	case prompt.Messages:
		return []string{"message_stop"}
	case prompt.Responses:
		return responsesEnd
	}
	return nil
}

var responsesEnd = []string{"response.completed", "response.incomplete", "response.failed"}

// finished reports whether the stream that the tap has seen came to its
// regular end. It holds after Close.
func (t *tap) finished() bool {
	switch {
	case len(t.ending) == 0:
		return true
	case t.ending[0] == "[DONE]":
		return t.Done()
	}
	// The event may be long, and clients take no event without the line break
	// behind it.
	return t.ended && (bytes.HasSuffix(t.window, []byte("\n")) || bytes.HasSuffix(t.window, []byte("\r")))
}

// hasEvent reports whether an event of that name begins in the window: it
// stands in a line of its own, or in the event's data as its type. In a JSON
// string neither can be: its line breaks and quotes are escaped.
func hasEvent(window []byte, name string) bool {
	for at := 0; ; {
		i := bytes.Index(window[at:], []byte(name))
		if i < 0 {
			return false
		}
		before, after := window[:at+i], window[at+i+len(name):]
		if isEventLine(before, after) || isTypeMember(before, after) {
			return true
		}
		at += i + len(name)
	}
}

func isEventLine(before, after []byte) bool {
	line, ok := bytes.CutSuffix(bytes.TrimRight(before, " "), []byte("event:"))
	return ok && len(after) > 0 && (after[0] == '\n' || after[0] == '\r') &&
		(len(line) == 0 || line[len(line)-1] == '\n' || line[len(line)-1] == '\r')
}

func isTypeMember(before, after []byte) bool {
	before, ok := bytes.CutSuffix(before, []byte(`"`))
	before, colon := bytes.CutSuffix(bytes.TrimRight(before, " \t"), []byte(":"))
	return ok && colon && bytes.HasPrefix(after, []byte(`"`)) && bytes.HasSuffix(bytes.TrimRight(before, " \t"), []byte(`"type"`))
}
