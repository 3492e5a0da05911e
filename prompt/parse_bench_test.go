package prompt_test

import (
	"testing"
	"time"

	"github.com/rhizome-router/rhizome/load/parsebench"
)

// BenchmarkParseMB makes keys of bodies of 1 MB, in turns with a bare skip over
// them: of-skip is what the first takes of the second.
func BenchmarkParseMB(b *testing.B) {
	for _, body := range parsebench.Bodies(1 << 20) {
		b.Run(body.Name, func(b *testing.B) {
			b.SetBytes(int64(len(body.JSON)))
			b.ReportAllocs()
			var keys parsebench.Keys
			skipper, skip, n := parsebench.NewSkipper(), time.Duration(0), 0
			for b.Loop() {
				b.StopTimer()
				from := time.Now()
				if err := skipper.Skip(body.JSON); err != nil {
					b.Fatal(err)
				}
				skip += time.Since(from)
				n++
				b.StartTimer()
				if err := keys.Read(body, len(body.JSON), nil); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed())/float64(skip), "of-skip")
		})
	}
}
