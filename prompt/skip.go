package prompt

import (
	"encoding/binary"
	"math/bits"
)

// skipText moves over the plain bytes of a string and its whole escapes.
func (s *Scanner) skipText(body []byte) {
	i := s.pos
	if i+8 <= len(body) { // names are short
		if x := ends(binary.LittleEndian.Uint64(body[i:])); x != 0 {
			if n := i + bits.TrailingZeros64(x)/8; body[n] == '"' {
				s.pos = n
				return
			}
		}
	}
	for {
		if i+64 <= len(body) {
			i += skipMost(body[i:])
		}
		for i < len(body) && isPlain(body[i]) {
			i++
		}
		if i == len(body) || body[i] == '"' {
			break
		}
		n := escapeBytes(body[i:])
		if n == 0 {
			break
		}
		i += n
	}
	s.pos = i
}

func isPlain(c byte) bool { return c >= 0x20 && c != '"' && c != '\\' }

// escapeBytes is the length of the escape that b begins with; 0 for none, or
// if it is not all there.
func escapeBytes(b []byte) int {
	switch {
	case len(b) < 2 || b[0] != '\\':
		return 0
	case isShortEscape(b[1]):
		return 2
	case b[1] == 'u' && len(b) >= 6 && isHex(b[2]) && isHex(b[3]) && isHex(b[4]) && isHex(b[5]):
		return 6
	}
	return 0
}

// isShortEscape reports whether c may stand behind a backslash, \u left out.
func isShortEscape(c byte) bool {
	switch c {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return true
	}
	return false
}

// skipWords returns how many bytes p begins with that are plain text in a
// string or short escapes. It looks at whole blocks of 8 bytes alone, so that
// more may follow.
func skipWords(p []byte) int {
	i := 0
	for i+8 <= len(p) {
		x := ends(binary.LittleEndian.Uint64(p[i:]))
		if x == 0 {
			i += 8
			continue
		}
		i += bits.TrailingZeros64(x) / 8
		if i+1 >= len(p) || p[i] != '\\' || !isShortEscape(p[i+1]) {
			break
		}
		i += 2
	}
	return i
}

// ends has the top bit of each of eight bytes set that is not plain text. A
// borrow can set one too many, but only above the first, which is the one that
// counts.
func ends(x uint64) uint64 {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	// With bit 1 flipped the quote (0x22) comes to stand right above the control
	// characters, and blank and exclamation mark behind it.
	low, slash := x^0x02*ones, x^'\\'*ones
	return ((low-0x21*ones)&^low | (slash-ones)&^slash) & tops
}

// skipBetween moves over what mostly stands between two strings, and into the
// next one. The bytes that it does not know are left to step.
func (s *Scanner) skipBetween(body []byte) {
	i := s.pos
	if i+2 >= len(body) {
		return
	}
	switch {
	case s.state == colon && body[i] == ':':
		s.state = value
		i++
	case s.state == after && body[i] == ',':
		s.state = value
		if s.open[len(s.open)-1] == '{' {
			s.state = key
		}
		i++
	}
	if s.state < value || s.state > after {
		return
	}
	if body[i] == ' ' {
		i++
	}
	s.pos = i
	if body[i] != '"' {
		return
	}
	switch s.state {
	case key, keyOrEnd:
		s.isKey, s.state, s.keyFrom = true, text, i
	case value, valueOrEnd:
		s.begin('"')
	default:
		return
	}
	s.pos++
}
