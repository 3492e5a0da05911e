package prompt

import (
	"encoding/binary"
	"math/bits"
	"testing"
)

// TestEndsFindsTheFirst tries every byte at every place among neighbours that
// are nearly special, and all pairs in a row.
func TestEndsFindsTheFirst(t *testing.T) {
	special := func(c byte) bool { return c < 0x20 || c == '"' || c == '\\' }
	check := func(b [8]byte) {
		want := 0
		for want < len(b) && !special(b[want]) {
			want++
		}
		if got := bits.TrailingZeros64(ends(binary.LittleEndian.Uint64(b[:]))) / 8; got != want {
			t.Fatalf("% x: the first is %d, want %d", b, got, want)
		}
	}
	for place := range 8 {
		for c := range 256 {
			for _, fill := range []byte{' ', '!', '#', '[', ']', 'a', 0x7f, 0x80, 0xff} {
				b := [8]byte{fill, fill, fill, fill, fill, fill, fill, fill}
				b[place] = byte(c)
				check(b)
				for next := range 256 {
					b[(place+1)%8] = byte(next)
					check(b)
				}
			}
		}
	}
}
