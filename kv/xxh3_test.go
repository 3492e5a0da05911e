package kv

import (
	"encoding/binary"
	"testing"

	"github.com/zeebo/xxh3"
	"pgregory.net/rapid"
)

// TestSumsAreXXH3: the hashes of words are those of their bytes.
func TestSumsAreXXH3(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var w [4]uint64
		var b []byte
		for i := range w {
			w[i] = rapid.Uint64().Draw(t, "word")
			b = binary.LittleEndian.AppendUint64(b, w[i])
		}
		if got, want := sum16(w[0], w[1]), xxh3.Hash(b[:16]); got != want {
			t.Errorf("sum16(%x) is %x, want %x", w[:2], got, want)
		}
		if got, want := Sum32(w[0], w[1], w[2], w[3]), xxh3.Hash(b); got != want {
			t.Errorf("Sum32(%x) is %x, want %x", w, got, want)
		}
	})
}
