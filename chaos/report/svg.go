package report

import (
	"fmt"
	"html"
	"math"
	"strings"
	"time"

	"github.com/rhizome-router/rhizome/chaos"
)

// Sizes of a plot, in pixels.
const (
	plotWidth, plotHeight = 860, 92
	plotLeft, plotRight   = 52, 10
	faultHeight           = 15
)

var colours = []string{"#2563a8", "#c2410c", "#15803d", "#7e22ce", "#b91c1c", "#0e7490", "#a16207", "#4d7c0f", "#be185d", "#475569"}

// scale turns a moment into pixels.
func scale(at, end time.Duration) float64 {
	return plotLeft + float64(at)/float64(max(end, 1))*(plotWidth-plotLeft-plotRight)
}

// faultsPlot draws a bar for each fault.
func faultsPlot(s *chaos.Scenario, h *chaos.History) string {
	var b strings.Builder
	height := faultHeight*len(s.Faults) + 20
	fmt.Fprintf(&b, `<svg viewBox="0 0 %d %d" role="img" aria-label="faults">`, plotWidth, height)
	for i := range s.Faults {
		f := &s.Faults[i]
		from, until := scale(f.At, h.End), scale(f.End(), h.End)
		y := faultHeight * i
		label, at, anchor := until+4, y+11, "start"
		if until > plotWidth*0.7 {
			label, anchor = from-4, "end"
		}
		fmt.Fprintf(&b, `<rect class="fault" x="%.1f" y="%d" width="%.1f" height="%d"/><text x="%.1f" y="%d" text-anchor="%s">%s</text>`,
			from, y+1, max(2, until-from), faultHeight-3, label, at, anchor, html.EscapeString(f.String()))
	}
	axis(&b, h.End, height-14)
	b.WriteString("</svg>")
	return b.String()
}

// axis draws the times.
func axis(b *strings.Builder, end time.Duration, y int) {
	step := 10 * time.Second
	for end/step > 12 {
		step *= 2
	}
	for at := time.Duration(0); at <= end; at += step {
		fmt.Fprintf(b, `<text class="tick" x="%.1f" y="%d" text-anchor="middle">%.0f s</text>`, scale(at, end), y+12, at.Seconds())
	}
}

// plot draws lines over time, with the faults as shadows behind them.
func plot(s *chaos.Scenario, h *chaos.History, all []series) string {
	top := 0.0
	for _, l := range all {
		for _, p := range l.points {
			top = max(top, p.value)
		}
	}
	top = nice(top)
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 %d %d" role="img">`, plotWidth, plotHeight+18)
	for i := range s.Faults {
		f := &s.Faults[i]
		from := scale(f.At, h.End)
		fmt.Fprintf(&b, `<rect class="shadow" x="%.1f" y="4" width="%.1f" height="%d"/>`, from, max(1, scale(f.End(), h.End)-from), plotHeight-4)
	}
	y := func(v float64) float64 { return plotHeight - v/top*(plotHeight-10) }
	for _, v := range []float64{0, top / 2, top} {
		fmt.Fprintf(&b, `<line class="grid" x1="%d" x2="%d" y1="%.1f" y2="%.1f"/><text class="tick" x="%d" y="%.1f" text-anchor="end">%s</text>`,
			plotLeft, plotWidth-plotRight, y(v), y(v), plotLeft-5, y(v)+3, number(v))
	}
	for i, l := range all {
		line(&b, l.points, h.End, y, colours[i%len(colours)])
	}
	axis(&b, h.End, plotHeight)
	b.WriteString("</svg>")
	return b.String()
}

// gap is how far points may be apart to be joined.
const gap = 3 * window

func line(b *strings.Builder, points []point, end time.Duration, y func(float64) float64, colour string) {
	if len(points) == 0 {
		return
	}
	fmt.Fprintf(b, `<path style="stroke:%s" d="`, colour)
	for i, p := range points {
		command := "L"
		if i == 0 || p.at-points[i-1].at > gap && len(points) > 2 {
			command = "M"
		}
		fmt.Fprintf(b, "%s%.1f %.1f", command, scale(p.at, end), y(p.value))
	}
	b.WriteString(`"/>`)
}

// nice rounds up to 1, 2 or 5 times a power of ten.
func nice(v float64) float64 {
	if v <= 0 {
		return 1
	}
	unit := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 2, 5} {
		if v <= m*unit {
			return m * unit
		}
	}
	return 10 * unit
}

func number(v float64) string { return fmt.Sprintf("%.3g", v) }
