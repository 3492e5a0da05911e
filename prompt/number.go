package prompt

import (
	"encoding/binary"
	"math"
	"math/bits"
)

// skipNumbers moves over the digits of a whole number, and of those behind it in
// an array of numbers whose places nobody asks for.
func (s *Scanner) skipNumbers(body []byte) {
	i := s.pos
	inRow := s.open[len(s.open)-1] == '[' && (len(s.open) > 2 || s.at < 0 || s.members[s.at].numbers)
	for {
		if i+8 <= len(body) {
			i += leadingDigits(binary.LittleEndian.Uint64(body[i:]) ^ zeros)
		}
		for i < len(body) && body[i]-'0' < 10 {
			i++
		}
		s.pos = i
		if !inRow || i+2 >= len(body) || body[i] != ',' {
			return
		}
		if i++; body[i] == ' ' {
			i++
		}
		if body[i]-'1' >= 9 {
			return
		}
	}
}

// zeros are eight digits of 0.
const zeros = 0x3030303030303030

// leadingDigits returns how many of eight bytes, each with the bits of '0'
// flipped, are digits before the first that is none. A carry can reach only
// bytes behind that one.
func leadingDigits(x uint64) int {
	return bits.TrailingZeros64((x+0x7676767676767676|x)&0x8080808080808080) / 8
}

// wholeNumber reads the digits that b begins with. What is larger than any token
// id is read as some such number.
func wholeNumber(b []byte) (n uint64, digits int) {
	if len(b) >= 8 {
		if n, digits = shortNumber(binary.LittleEndian.Uint64(b)); digits < 8 {
			return n, digits
		}
	}
	for ; digits < len(b) && b[digits]-'0' < 10; digits++ {
		if n > math.MaxUint32 {
			n = math.MaxUint32 // stays more than it with one more digit
		}
		n = 10*n + uint64(b[digits]-'0')
	}
	return n, digits
}

// shortNumber reads the digits that eight bytes begin with: pairs of them, then
// pairs of pairs, all at once.
func shortNumber(x uint64) (n uint64, digits int) {
	x ^= zeros
	digits = leadingDigits(x)
	x <<= 64 - 8*digits // leading zeros instead of what follows
	x = 10*x + x>>8
	const every4th = 0x000000ff000000ff
	return (x&every4th*(100+1_000_000<<32) + x>>16&every4th*(1+10_000<<32)) >> 32, digits
}
