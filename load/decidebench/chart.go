package decidebench

import (
	"fmt"
	"io"
	"math"
	"strings"
)

// WriteChart writes both growth curves as an SVG picture, p50 and p99, with both
// axes logarithmic.
func (r *Report) WriteChart(w io.Writer) error {
	var b strings.Builder
	b.WriteString(`<svg xmlns="http://www.w3.org/2000/svg" width="960" height="400" font-family="sans-serif" font-size="12">` + "\n" +
		`<rect width="960" height="400" fill="white"/>` + "\n")
	byTokens := panel{title: "prompt tokens, at 1000 workers", left: 70}
	byWorkers := panel{title: "workers, at 131072 prompt tokens", left: 550}
	for _, row := range r.Rows {
		if row.Workers == mainWorkers {
			byTokens.add(float64(row.PromptTokens), row.P50Micros, row.P99Micros)
		}
		if row.PromptTokens == mainTokens {
			byWorkers.add(float64(row.Workers), row.P50Micros, row.P99Micros)
		}
	}
	byTokens.draw(&b)
	byWorkers.draw(&b)
	b.WriteString("</svg>\n")
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("write the chart: %w", err)
	}
	return nil
}

// panel is one chart: where it stands, and its points in any order.
type panel struct {
	title  string
	left   float64
	points [][3]float64 // x, p50, p99
}

const (
	panelWidth, panelHeight, panelTop = 380, 290, 40
	leastMicros, mostMicros           = 1, 1e5 // of the upright axis
)

func (p *panel) add(x, p50, p99 float64) {
	i := len(p.points)
	for i > 0 && p.points[i-1][0] > x {
		i--
	}
	p.points = append(p.points, [3]float64{})
	copy(p.points[i+1:], p.points[i:])
	p.points[i] = [3]float64{x, p50, p99}
}

func (p *panel) draw(b *strings.Builder) {
	if len(p.points) < 2 {
		return
	}
	from, to := math.Log(p.points[0][0]), math.Log(p.points[len(p.points)-1][0])
	x := func(v float64) float64 { return p.left + panelWidth*(math.Log(v)-from)/(to-from) }
	y := func(v float64) float64 {
		return panelTop + panelHeight*(1-math.Log(max(v, leastMicros)/leastMicros)/math.Log(mostMicros/leastMicros))
	}
	fmt.Fprintf(b, `<text x="%.0f" y="24" font-weight="bold">µs a decision, by %s</text>`+"\n", p.left, p.title)
	for v := float64(leastMicros); v <= mostMicros; v *= 10 {
		fmt.Fprintf(b, `<line x1="%.0f" x2="%.0f" y1="%.1f" y2="%.1f" stroke="#ddd"/><text x="%.0f" y="%.1f" text-anchor="end">%.0f</text>`+"\n",
			p.left, p.left+panelWidth, y(v), y(v), p.left-6, y(v)+4, v)
	}
	for _, at := range p.points {
		fmt.Fprintf(b, `<text x="%.1f" y="%d" text-anchor="middle" font-size="10">%.0f</text>`+"\n", x(at[0]), panelTop+panelHeight+18, at[0])
	}
	for i, colour := range [2]string{"#1f77b4", "#d62728"} {
		fmt.Fprintf(b, `<polyline fill="none" stroke="%s" stroke-width="2" points="`, colour)
		for _, at := range p.points {
			fmt.Fprintf(b, "%.1f,%.1f ", x(at[0]), y(at[i+1]))
		}
		last := p.points[len(p.points)-1]
		fmt.Fprintf(b, `"/><text x="%.1f" y="%.1f" fill="%s">%s</text>`+"\n", x(last[0])+6, y(last[i+1])+4, colour, [2]string{"p50", "p99"}[i])
	}
}
