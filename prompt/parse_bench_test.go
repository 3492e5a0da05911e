package prompt

import (
	"fmt"
	"strings"
	"testing"
)

// BenchmarkParseMB reads a conversation of 1 MB in messages of 2 KB.
func BenchmarkParseMB(b *testing.B) {
	var s strings.Builder
	s.WriteString(`{"model":"m","stream":true,"temperature":0.5,"messages":[{"role":"system","content":"be brief"}`)
	for i := 0; s.Len() < 1<<20; i++ {
		fmt.Fprintf(&s, `,{"role":"%s","content":"%s"}`, [...]string{"user", "assistant"}[i%2], strings.Repeat("some words ", 185))
	}
	body := []byte(s.String() + "]}")
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse(Chat, body); err != nil {
			b.Fatal(err)
		}
	}
}
