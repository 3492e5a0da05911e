package prompt

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"
)

// skipNaive is where a string's plain text and short escapes end.
func skipNaive(p []byte) int {
	i := 0
	for i < len(p) {
		switch {
		case isPlain(p[i]):
			i++
		case p[i] == '\\' && i+1 < len(p) && isShortEscape(p[i+1]):
			i += 2
		default:
			return i
		}
	}
	return i
}

// checkSkip holds both ways to skip text against the naive one: they may stop
// early where less than a block is left, but not within an escape.
func checkSkip(t interface{ Fatalf(string, ...any) }, p []byte) {
	want := skipNaive(p)
	for name, c := range map[string]struct {
		skip  func([]byte) int
		block int
	}{"words": {skipWords, 8}, "most": {skipMost, 64}} {
		got := c.skip(p)
		if got > want || got < want && got+c.block < len(p) || skipNaive(p[got:]) != want-got {
			t.Fatalf("%s: %q: skips %d bytes, want %d", name, p, got, want)
		}
	}
}

// TestSkipTriesEveryByte at every place among neighbours that are nearly
// special, and all pairs in a row.
func TestSkipTriesEveryByte(t *testing.T) {
	for _, fill := range []byte{' ', '!', '#', '[', ']', 'a', 0x7f, 0x80, 0xff} {
		b := bytes.Repeat([]byte{fill}, 128)
		for place := range b {
			for c := range 256 {
				b[place] = byte(c)
				checkSkip(t, b)
			}
			b[place] = fill
		}
		for _, place := range []int{23, 31, 63} {
			for pair := range 1 << 16 {
				b[place], b[place+1] = byte(pair), byte(pair>>8)
				checkSkip(t, b)
			}
			b[place], b[place+1] = fill, fill
		}
	}
}

// Rows of backslashes of all lengths, over the ends of blocks.
func TestSkipRowsOfBackslashes(t *testing.T) {
	for start := range 70 {
		for length := range 140 {
			for _, next := range []byte{'"', 'n', 'x', 'u', 0x1f, ' '} {
				p := append(bytes.Repeat([]byte{'a'}, start), bytes.Repeat([]byte{'\\'}, length)...)
				checkSkip(t, append(append(p, next), bytes.Repeat([]byte{'b'}, 64)...))
			}
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		checkSkip(t, rapid.SliceOfN(rapid.SampledFrom([]byte(`aaaaaaa\\\\nu"/`)), 0, 300).Draw(t, "text"))
	})
}

func TestOnlyPiecesAreHashedAhead(t *testing.T) {
	for body, want := range map[string]int{
		`{"model": "m", "prompt": [1, 2, 3]}`:                                   0,
		`{"messages": [{"role": "user", "content": "a"}], "temperature": 0.7}`:  1,
		`{"system": "s", "messages": [{"role": "user"}], "metadata": {"a": 1}}`: 2,
	} {
		var s Scanner
		if err := s.Scan([]byte(body)); err != nil || s.End() != nil {
			t.Fatal(err)
		}
		if got := len(s.ahead.hashes); got != want {
			t.Errorf("%s: %d hashes, want %d", body, got, want)
		}
	}
}
