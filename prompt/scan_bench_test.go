package prompt

import (
	"strings"
	"testing"
)

// BenchmarkScan reads bodies of 500 KB: prose, and code, in which every other
// word is an escape.
func BenchmarkScan(b *testing.B) {
	for name, piece := range map[string]string{
		"prose": strings.Repeat("many words of a text ", 8) + `\n\n`,
		"code":  `if err != nil {\n\treturn fmt.Errorf(\"%w\", err)\n}\n`,
	} {
		body := []byte(`{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat(piece, 500<<10/len(piece)) + `"}]}`)
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			for b.Loop() {
				var s Scanner
				if s.Scan(body) != nil || s.End() != nil {
					b.Fatal("not read")
				}
			}
		})
	}
}
