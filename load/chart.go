package load

import (
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// The chart's measures, in SVG user units.
const (
	chartWidth = 760
	chartLeft  = 130 // where bars start
	chartBar   = 430 // the longest bar
	chartRow   = 22
	chartGap   = 30
)

// WriteChart writes the comparison as an SVG picture: one group of bars a
// figure, ours first, each with its number. It stands for itself: the title
// says what was played, and hit share is drawn against its bound.
func (r *Report) WriteChart(w io.Writer) error {
	names := append([]string{""}, slices.Sorted(maps.Keys(r.Against))...)
	of := func(name string) Measures {
		if name == "" {
			return r.Ours
		}
		return r.Against[name]
	}
	var b strings.Builder
	y := 74
	for _, g := range []struct {
		title  string
		format string
		scale  float64
		value  func(Measures) Figure
		bound  float64
	}{
		{"mean TTFT, shorter is better", "%.0f ms", 1, func(m Measures) Figure { return m.TTFTMeanMillis }, 0},
		{"99th percentile TTFT", "%.0f ms", 1, func(m Measures) Figure { return m.TTFTP99Millis }, 0},
		{"prompt tokens found in a cache; the line is what an infinite shared cache would find", "%.1f %%", 100,
			func(m Measures) Figure { return m.HitShare }, 100 * float64(r.InfiniteCacheShare)},
	} {
		fmt.Fprintf(&b, `<text x="16" y="%d" class="group">%s</text>`+"\n", y, g.title)
		y += 10
		most := g.bound
		for _, n := range names {
			if v := g.value(of(n)); v.Known() {
				most = max(most, g.scale*float64(v))
			}
		}
		top := y
		for _, n := range names {
			v, label, class := g.value(of(n)), "Rhizome", "ours"
			if n != "" {
				label, class = n, "theirs"
			}
			text, length := "not measured", 0.0
			if v.Known() && most > 0 {
				text, length = fmt.Sprintf(g.format, g.scale*float64(v)), chartBar*g.scale*float64(v)/most
			}
			fmt.Fprintf(&b, `<text x="%d" y="%d" class="name">%s</text>`+"\n", chartLeft-8, y+15, escape(label))
			fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%.1f" height="%d" class="%s"/>`+"\n", chartLeft, y+3, length, chartRow-6, class)
			fmt.Fprintf(&b, `<text x="%.1f" y="%d" class="value">%s</text>`+"\n", chartLeft+length+6, y+15, text)
			y += chartRow
		}
		if g.bound > 0 {
			x := chartLeft + chartBar*g.bound/most
			fmt.Fprintf(&b, `<line x1="%.1f" x2="%.1f" y1="%d" y2="%d" class="bound"/>`+"\n", x, x, top, y)
		}
		y += chartGap
	}
	_, err := fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="system-ui, sans-serif" font-size="13">
<style>
 .title{font-size:15px;font-weight:600;fill:#1f2933} .sub,.group{fill:#52606d} .name{text-anchor:end;fill:#1f2933} .value{fill:#1f2933}
 .ours{fill:#0f766e} .theirs{fill:#9aa5b1} .bound{stroke:#d97706;stroke-width:2;stroke-dasharray:4 3}
</style>
<rect width="100%%" height="100%%" fill="#ffffff"/>
<text x="16" y="24" class="title">%d requests of %s, %d emulated workers for each router</text>
<text x="16" y="42" class="sub">modelled time at %g×, answers of at most %s tokens, %s, all routers in one run</text>
%s</svg>
`, chartWidth, y-chartGap/2, r.Ours.Requests/max(1, len(r.Seeds)), escape(r.Trace), r.Ours.Workers, r.Speed, outputs(r.MaxOutput), seeds(len(r.Seeds)), b.String())
	return err
}

func outputs(most int) string {
	if most == 0 {
		return "any number of"
	}
	return fmt.Sprint(most)
}

func seeds(n int) string {
	if n == 1 {
		return "a single run"
	}
	return fmt.Sprintf("mean of %d seeds", n)
}

func escape(s string) string {
	var b strings.Builder
	xml.EscapeText(&b, []byte(s)) // a Builder's Write never fails
	return b.String()
}
