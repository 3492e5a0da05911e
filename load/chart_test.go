package load

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strings"
	"testing"
)

func TestChartIsWellFormedAndTellsTheNumbers(t *testing.T) {
	r := Report{
		Trace: `a<b>&"c"`, Seeds: []uint64{1, 2}, Speed: 20, MaxOutput: 32, InfiniteCacheShare: 0.3,
		Ours:    Measures{Requests: 4000, TTFTMeanMillis: 500, TTFTP99Millis: 6000, HitShare: 0.25, Workers: 4},
		Against: map[string]Measures{"round-robin": {TTFTMeanMillis: 1500, TTFTP99Millis: 9000, HitShare: Figure(math.NaN())}},
	}
	var out strings.Builder
	if err := r.WriteChart(&out); err != nil {
		t.Fatal(err)
	}
	for d := xml.NewDecoder(strings.NewReader(out.String())); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("%v in\n%s", err, out.String())
		}
	}
	for _, want := range []string{"2000 requests", "500 ms", "1500 ms", "25.0 %", "not measured", "round-robin", "mean of 2 seeds", `width="430.0"`, `width="143.3"`, "a&lt;b&gt;"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the chart lacks %q", want)
		}
	}
}
