package prompt

import (
	"bytes"
	"slices"
)

// maxMediaTypeBytes is more than the head of a data: URL takes.
const maxMediaTypeBytes = 256

// isMedia reports whether a string is a data: URL in base64 (RFC 2397).
func isMedia(s []byte) bool {
	if !bytes.HasPrefix(s, []byte("data:")) {
		return false
	}
	head, _, ok := bytes.Cut(s[:min(len(s), maxMediaTypeBytes)], []byte(","))
	return ok && bytes.HasSuffix(head, []byte(";base64"))
}

// mediaBytes is the length of the data: URLs in a whole value: images and
// sound that the engine doesn't tokenise as text.
func (s *Scanner) mediaBytes(at Span) int {
	n := 0
	i, _ := slices.BinarySearchFunc(s.media, at.Start, func(m Span, start int) int { return m.Start - start })
	for _, m := range s.media[i:] {
		if m.Start >= at.End {
			break
		}
		n += m.End - m.Start
	}
	return n
}
