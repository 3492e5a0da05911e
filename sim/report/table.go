package report

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/rhizome-router/rhizome/sim"
)

// TableOptions say what the place is like that a table is written to.
type TableOptions struct {
	// Width is how many columns there are; 0 means 120. Where it is short, the
	// intervals go on lines of their own, then columns are left out and named
	// below the table; it never drops below about 40.
	Width int
	// Color allows ANSI colours.
	Color bool
}

// FitTo returns the options for w: those of the terminal it is, or 120 columns
// without colour.
func FitTo(w io.Writer) TableOptions {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return TableOptions{}
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		width = 0
	}
	return TableOptions{Width: width, Color: true}
}

// brief are the figures a terminal has room for, and in which order they leave
// when it has not.
var (
	brief = []string{"ttft_mean_s", "ttft_p50_s", "ttft_p99_s", "tpot_mean_s", "goodput", "hit_hbm", "hit_tier",
		"followup_cached", "load_cov", "load_max_mean", "capacity_speed", decision}
	leaving = []string{"load_max_mean", "hit_tier", "followup_cached", "ttft_p50_s", decision, "tpot_mean_s", "load_cov"}
)

const (
	ansiBold  = "\x1b[1m"
	ansiDim   = "\x1b[2m"
	ansiGreen = "\x1b[32m"
	ansiCyan  = "\x1b[36m"
	ansiReset = "\x1b[0m"
)

// WriteTable writes one block for each scenario: its policies as rows, the
// fastest to the first token first, and what no policy can pass as the last.
func WriteTable(w io.Writer, tables []*sim.Table, o TableOptions) error {
	if err := check(tables); err != nil {
		return err
	}
	if o.Width <= 0 {
		o.Width = 120
	}
	var b strings.Builder
	for i, t := range tables {
		if i > 0 {
			b.WriteByte('\n')
		}
		writeBlock(&b, t, o)
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("report: write the table: %w", err)
	}
	return nil
}

func writeBlock(b *strings.Builder, t *sim.Table, o TableOptions) {
	order := names(t)
	cols := slices.DeleteFunc(columns(t, order), func(c column) bool { return !slices.Contains(brief, c.name) })
	g := newGrid(t, order, cols, false, 2)
	for gap := 2; gap > 0 && g.width() > o.Width; gap-- {
		g = newGrid(t, order, cols, true, gap)
	}
	var left []string
	for _, name := range leaving {
		if g.width() <= o.Width {
			break
		}
		i := slices.IndexFunc(cols, func(c column) bool { return c.name == name })
		left = append(left, strings.TrimSpace(cols[i].group+" "+cols[i].head))
		cols = slices.Delete(cols, i, i+1)
		g = newGrid(t, order, cols, true, 1)
	}

	title := plain(t.Scenario.Name)
	if t.Scenario.Set != "" {
		title += " (set " + plain(t.Scenario.Set) + ")"
	}
	if o.Color {
		title = ansiBold + title + ansiReset
	}
	fmt.Fprintf(b, "%s, column %s, %s\n%s\n\n", title, plain(string(t.Column)), runs(t), cut(plain(t.Scenario.Describe()), o.Width))
	g.write(b, o.Color)
	b.WriteByte('\n')
	for _, name := range order {
		if r := t.Policies[name]; r.Failed > 0 {
			fmt.Fprintf(b, "%s left %.3g of %.5g requests without a full answer\n", plain(name), r.Failed, r.Requests)
		}
	}
	b.WriteString("* best of its column; > ours; f-up: cached share of turns after the first\n" +
		"bound: one cache for all that never forgets, and no queue\n")
	if len(left) > 0 {
		fmt.Fprintf(b, "too narrow for: %s\n", strings.Join(left, ", "))
	}
}

// grid is a table laid out as text.
type grid struct {
	lines  []line
	gap    int   // between columns; a mark stands in its last place
	widths []int // of the name, then of the columns
}

// line is one line of it.
type line struct {
	name  string
	cells []string
	best  []bool
	style string // ANSI, of the whole line
}

// newGrid lays the columns out with intervals behind the values, or on lines
// of their own when stacked.
func newGrid(t *sim.Table, order []string, cols []column, stacked bool, gap int) *grid {
	g := &grid{gap: gap}
	top, head := line{style: ansiDim}, line{name: "  policy", style: ansiDim}
	for i, c := range cols {
		group := c.group
		if i > 0 && cols[i-1].group == group {
			group = ""
		}
		top.cells = append(top.cells, group)
		head.cells = append(head.cells, strings.TrimSpace(c.head+" "+c.shown))
	}
	g.lines = append(g.lines, top, head)
	marks := make([][]bool, len(cols))
	for j := range cols {
		marks[j] = cols[j].best()
	}
	for i, name := range order {
		l, below := line{name: "  " + plain(name)}, line{style: ansiDim}
		if name == sim.Ours {
			l.name, l.style = "> "+name, ansiBold+ansiCyan
		}
		spread := false
		for j := range cols {
			c, v := &cols[j], cols[j].cells[i]
			text, ci := c.text(v.value), ""
			if known(v.ci) {
				ci, spread = "±"+c.bare(v.ci), true
			}
			if !stacked {
				text, ci = text+ci, ""
			}
			l.cells, l.best, below.cells = append(l.cells, text), append(l.best, marks[j][i]), append(below.cells, ci)
		}
		g.lines = append(g.lines, l)
		if stacked && spread {
			g.lines = append(g.lines, below)
		}
	}
	bound := line{name: "  bound", style: ansiDim}
	for j := range cols {
		text := ""
		switch cols[j].name {
		case "ttft_mean_s":
			text = cols[j].text(t.Bound.TTFTMean)
		case "hit_hbm":
			text = cols[j].text(t.Bound.Cached)
		}
		bound.cells = append(bound.cells, text)
	}
	g.lines = append(g.lines, bound)
	g.measure(len(cols))
	return g
}

// measure cuts names to 28 and finds the widths.
func (g *grid) measure(cols int) {
	g.widths = make([]int, 1+cols)
	for i := range g.lines {
		l := &g.lines[i]
		l.name = cut(l.name, 28)
		g.widths[0] = max(g.widths[0], utf8.RuneCountInString(l.name))
		for j, c := range l.cells {
			g.widths[1+j] = max(g.widths[1+j], utf8.RuneCountInString(c))
		}
	}
}

// width is of the widest line.
func (g *grid) width() int {
	n := g.widths[0]
	for _, w := range g.widths[1:] {
		n += g.gap + w
	}
	return n
}

func (g *grid) write(b *strings.Builder, color bool) {
	for _, l := range g.lines {
		var s strings.Builder
		s.WriteString(pad(l.name, -g.widths[0]))
		for j, c := range l.cells {
			if j < len(l.best) && l.best[j] {
				text := pad("*"+c, g.gap+g.widths[1+j])
				if color {
					text = ansiBold + ansiGreen + text + ansiReset + l.style
				}
				s.WriteString(text)
				continue
			}
			s.WriteString(pad(c, g.gap+g.widths[1+j]))
		}
		text := strings.TrimRight(s.String(), " ")
		if color && l.style != "" {
			text = l.style + text + ansiReset
		}
		b.WriteString(text + "\n")
	}
}

// cut shortens s to a width.
func cut(s string, width int) string {
	if r := []rune(s); len(r) > width {
		return string(r[:width-1]) + "…"
	}
	return s
}

// pad fills s to a width, to the left unless it is negative.
func pad(s string, width int) string {
	fill := strings.Repeat(" ", max(0, max(width, -width)-utf8.RuneCountInString(s)))
	if width < 0 {
		return s + fill
	}
	return fill + s
}
