package prompt

import "testing"

// TestMarks tries every byte at every place among neighbours that are nearly
// special, and all pairs in a row.
func TestMarks(t *testing.T) {
	check := func(b *[64]byte) {
		var want uint64
		for i, c := range b {
			if c < 0x20 || c == '"' || c == '\\' {
				want |= 1 << i
			}
		}
		if got := marks(b); got != want {
			t.Fatalf("% x: %b, want %b", b, got, want)
		}
		if got := marksOf(b); got != want {
			t.Fatalf("% x: %b in Go, want %b", b, got, want)
		}
	}
	for _, fill := range []byte{' ', '!', '#', '[', ']', 'a', 0x7f, 0x80, 0xff} {
		var b [64]byte
		for i := range b {
			b[i] = fill
		}
		for place := range b {
			for c := range 256 {
				b[place] = byte(c)
				check(&b)
			}
			b[place] = fill
		}
		for pair := range 1 << 16 {
			b[23], b[24] = byte(pair), byte(pair>>8)
			check(&b)
		}
	}
}
