package prompt

import (
	"bytes"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"
)

// eachMember calls f for the members of an object whose syntax was checked. The
// error is that it is too large to be read.
func eachMember(object []byte, f func(name []byte, v jsontext.Value)) error {
	if len(object) > maxObjectBytes {
		return &SyntaxError{0, fmt.Sprintf("want an object of at most %d bytes", maxObjectBytes)}
	}
	rest := nextToken(object[1:])
	for rest[0] == '"' {
		n := valueBytes(rest)
		name := rest[1 : n-1]
		if bytes.IndexByte(name, '\\') >= 0 {
			name, _ = jsontext.AppendUnquote(nil, rest[:n]) // what is no UTF-8 is no name that matters
		}
		rest = nextToken(rest[n:]) // the colon
		rest = nextToken(rest[1:]) // the value
		n = valueBytes(rest)
		f(name, jsontext.Value(rest[:n:n]))
		if rest = nextToken(rest[n:]); rest[0] == ',' {
			rest = nextToken(rest[1:])
		}
	}
	return nil
}

// nextToken returns b from the first byte that is no blank.
func nextToken(b []byte) []byte {
	for b[0] == ' ' || b[0] == '\t' || b[0] == '\r' || b[0] == '\n' {
		b = b[1:]
	}
	return b
}

// valueBytes is the length of the value that b begins with, whose syntax was
// checked and behind which something follows.
func valueBytes(b []byte) int {
	depth := 0
	for i := 0; ; {
		switch b[i] {
		case '"':
			for i++; b[i] != '"'; i++ {
				if b[i] == '\\' {
					i++
				}
			}
			i++
		case '{', '[':
			depth++
			i++
			continue // it has not ended
		case '}', ']':
			depth--
			i++
		case ' ', '\t', '\r', '\n', ',', ':':
			i++
			continue // only within a container
		default: // a number, true, false or null
			for !endsWord(b[i]) {
				i++
			}
		}
		if depth == 0 {
			return i
		}
	}
}

func endsWord(c byte) bool { return isBetween(c) || c == '}' || c == ']' }
