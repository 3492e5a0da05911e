package config

import (
	"fmt"
	"strings"
	"testing"
)

// A file of 2000 workers, read and checked.
func BenchmarkLoad(b *testing.B) {
	var doc strings.Builder
	doc.WriteString("workers:\n")
	for i := range 2000 {
		fmt.Fprintf(&doc, "  - url: http://gpu-%d:8000\n    events: tcp://gpu-%d:5557\n    dp: 2\n", i, i)
	}
	src := []byte(doc.String())
	b.SetBytes(int64(len(src)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := load(src); err != nil {
			b.Fatal(err)
		}
	}
}
