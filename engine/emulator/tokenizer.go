package emulator

import (
	"fmt"
	"math/bits"
	"strings"
)

// The tokeniser cuts text into pieces of four bytes from its start; the last
// piece may be shorter. A token id is the piece itself:
//
//	4 bytes: little-endian
//	n < 4:   little-endian in the low bytes, 0xF8+n in the high byte
//	special: 0xFF in the high byte
//
// A high byte of 0xF8 or more occurs in no UTF-8 text, so every id says which
// it is, every text has one tokenisation, and that of a text's beginning is a
// prefix of the whole's, but for the last piece. At four bytes a token it is as
// dense as real tokenisers are on English.
const (
	pieceBytes = 4

	shortMark   = 0xF8 << 24
	specialMark = 0xFF << 24

	tokenStart uint32 = specialMark | 1 // begins a message
	tokenEnd   uint32 = specialMark | 2 // ends a message, and an answer that stops by itself
	tokenImage uint32 = specialMark | 3 // an image, followed by two tokens of its content

	tokenThink    uint32 = specialMark | 4 // begins an answer's thinking
	tokenThinkEnd uint32 = specialMark | 5

	think, thinkEnd = "<think>", "</think>"
)

var specials = map[uint32]string{
	tokenStart: "<|im_start|>", tokenEnd: "<|im_end|>", tokenImage: "<|image|>", tokenThink: think, tokenThinkEnd: thinkEnd,
}

// appendTokens appends the tokens of text. Text spelled like a special token
// is only text.
func appendTokens(dst []uint32, text []byte) []uint32 {
	for len(text) >= pieceBytes {
		dst = append(dst, uint32(text[0])|uint32(text[1])<<8|uint32(text[2])<<16|uint32(text[3])<<24)
		text = text[pieceBytes:]
	}
	if len(text) == 0 {
		return dst
	}
	id := uint32(shortMark | len(text)<<24)
	for i, b := range text {
		id |= uint32(b) << (8 * i)
	}
	return append(dst, id)
}

// appendText appends the text of a token: the reverse of appendTokens, with
// special tokens spelled out. Ids that no text gives come out as numbers.
func appendText(dst []byte, token uint32) []byte {
	high := token >> 24
	switch {
	case high < 0xF8:
		return append(dst, byte(token), byte(token>>8), byte(token>>16), byte(token>>24))
	case high > 0xF8 && high < 0xF8+pieceBytes:
		for range high - 0xF8 {
			dst = append(dst, byte(token))
			token >>= 8
		}
		return dst
	}
	if s, ok := specials[token]; ok {
		return append(dst, s...)
	}
	return fmt.Appendf(dst, "<|%d|>", token)
}

// detokenize returns the text of tokens, as valid UTF-8.
func detokenize(tokens []uint32) string {
	b := make([]byte, 0, pieceBytes*len(tokens))
	for _, t := range tokens {
		b = appendText(b, t)
	}
	return strings.ToValidUTF8(string(b), "\uFFFD")
}

// An answer is made up from a seed that depends on the request alone, so that
// every worker and every replay gives the same. Each of its tokens is a
// pronounceable word of three letters and a space: four bytes, so that a client
// that sends the answer back gives the very same tokens. Where it begins with
// thinking, that is between tokenThink and tokenThinkEnd.
type answer struct {
	seed  uint64
	stop  bool // ends by itself: the last token is tokenEnd, which has no text
	n     int  // tokens
	think int  // of them thinking, the two marks included; 0 or at least 3
}

// token returns the i-th token.
func (a answer) token(i int) uint32 {
	const consonants, vowels = "bcdfghklmnprstvz", "aeiouaei"
	switch {
	case a.stop && i == a.n-1:
		return tokenEnd
	case i == 0 && a.think > 0:
		return tokenThink
	case i == a.think-1:
		return tokenThinkEnd
	}
	h, l := bits.Mul64(a.seed^uint64(i+1)*0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93)
	x := h ^ l
	return uint32(consonants[x&15]) | uint32(vowels[x>>4&7])<<8 | uint32(consonants[x>>8&15])<<16 | ' '<<24
}

// appendText appends the text of tokens from…to−1.
func (a answer) appendText(dst []byte, from, to int) []byte {
	for i := from; i < to; i++ {
		if t := a.token(i); t != tokenEnd {
			dst = appendText(dst, t)
		}
	}
	return dst
}

// finishReason returns "stop" or "length".
func (a answer) finishReason() string {
	if a.stop {
		return "stop"
	}
	return "length"
}
