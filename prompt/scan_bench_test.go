package prompt

import (
	"strings"
	"testing"
)

// BenchmarkScan reads bodies of 500 KB: prose, code, in which every other
// word is an escape, and turns of what people write.
func BenchmarkScan(b *testing.B) {
	for name, piece := range map[string]string{
		"prose": strings.Repeat("many words of a text ", 8) + `\n\n`,
		"code":  `if err != nil {\n\treturn fmt.Errorf(\"%w\", err)\n}\n`,
		"turns": strings.Repeat(`a request goes where its prompt has been seen before and the queue is short \"quoted\" the answer `+
			`comes back over one wire,\nword by word naïve grüße 東京 function return if err != nil { } data 12345 tool_call `, 8) +
			`"},{"role":"user","content":"`,
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
