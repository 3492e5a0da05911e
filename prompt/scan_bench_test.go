package prompt

import (
	"strings"
	"testing"

	"github.com/rhizome-router/rhizome/clock"
)

// BenchmarkScan reads bodies of 500 KB: prose, code, in which every other word
// is an escape, and turns of both. The words are drawn: what repeats, the
// processor learns by heart.
func BenchmarkScan(b *testing.B) {
	prose := strings.Fields(`many words of a text which says this and that and in the end not much more than naïve grüße 東京`)
	code := strings.Fields(`if err != nil {\n \treturn fmt.Errorf( \"%w\", err) }\n func x() int \t for range 9 \n`)
	for name, c := range map[string]struct {
		words []string
		turn  int
	}{"prose": {prose, 500 << 10}, "code": {code, 500 << 10}, "turns": {append(append(prose, prose...), code...), 2000}} {
		random := clock.Rand(1, name)
		var text strings.Builder
		for from := 0; text.Len() < 500<<10; {
			text.WriteString(c.words[random.IntN(len(c.words))] + " ")
			if text.Len()-from > c.turn {
				text.WriteString(`"},{"role":"user","content":"`)
				from = text.Len()
			}
		}
		body := []byte(`{"model":"m","messages":[{"role":"user","content":"` + text.String() + `"}]}`)
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
