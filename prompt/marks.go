package prompt

import (
	"encoding/binary"
	"math/bits"
)

// skipText moves over the plain bytes of a string and its escapes, 64 bytes at
// a time. It branches on what stands where as little as it can: in text with
// escapes a wrong guess of the processor costs more than reading a block.
func (s *Scanner) skipText(body []byte) {
	i := s.pos
	for i+64 <= len(body) {
		end := i + 64
		for m := marks((*[64]byte)(body[i:])); m != 0; {
			n := bits.TrailingZeros64(m)
			at := i + n
			if at+1 == len(body) || body[at] != '\\' || !isShortEscape(body[at+1]) && !isEscape(body[at:]) {
				s.pos = at
				return
			}
			m &^= 3 << n
			if n == 63 {
				end++
			}
		}
		i = end
	}
	for i < len(body) && (isPlain(body[i]) || isEscape(body[i:])) {
		if body[i] == '\\' {
			i++
		}
		i++
	}
	s.pos = i
}

func isPlain(c byte) bool { return c >= 0x20 && c != '"' && c != '\\' }

// isEscape reports whether b begins with a whole escape.
func isEscape(b []byte) bool {
	if len(b) < 2 || b[0] != '\\' {
		return false
	}
	return isShortEscape(b[1]) || b[1] == 'u' && len(b) >= 6 && isHex(b[2]) && isHex(b[3]) && isHex(b[4]) && isHex(b[5])
}

// isShortEscape reports whether c may stand behind a backslash, \u left out.
func isShortEscape(c byte) bool {
	const low, high = 1<<'"' | 1<<'/', 1<<('\\'-64) | 1<<('b'-64) | 1<<('f'-64) | 1<<('n'-64) | 1<<('r'-64) | 1<<('t'-64)
	return c < 128 && [2]uint64{low, high}[c>>6]>>(c&63)&1 != 0
}

// marksOf is marks in Go.
func marksOf(block *[64]byte) uint64 {
	var m uint64
	for i := 0; i < len(block); i += 8 {
		x := binary.LittleEndian.Uint64(block[i:])
		m |= ends(x) << i
	}
	return m
}

// ends has a bit for each of eight bytes that is not plain text.
func ends(x uint64) uint64 {
	const ones = 0x0101010101010101
	found := zeros(x^'"'*ones) | zeros(x^'\\'*ones) | zeros(x&(0xe0*ones))
	return (found >> 7) * 0x0102040810204080 >> 56
}

// zeros has the top bit of each of eight bytes set that is 0.
func zeros(x uint64) uint64 {
	const lows = 0x7f7f7f7f7f7f7f7f
	return ^((x&lows + lows) | x | lows)
}
