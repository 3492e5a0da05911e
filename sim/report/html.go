package report

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"

	"github.com/rhizome-router/rhizome/sim"
)

// Meta says what was run, for the top of the page.
type Meta struct {
	Suite   string   // what was played, the title
	Command string   // the command line
	Commit  string   // of the program, "" if unknown
	Notes   []string // whatever else a reader should know
}

//go:embed page
var page embed.FS

// pageData is what the template shows without scripts.
type pageData struct {
	Meta
	Title     string
	Seeds     string
	Columns   string
	Single    bool // at least one scenario is a single run
	Style     template.CSS
	Plot      template.JS
	Script    template.JS
	Data      template.JS
	Scenarios []pageScenario
}

// pageScenario is one scenario's part of it.
type pageScenario struct {
	Index  int
	Name   string
	Set    string
	Column string
	Runs   string
	What   string
	Single bool
	JSON   string // the scenario as data
	Tables []pageTable
}

// pageTable is a table of some of the figures.
type pageTable struct {
	Caption string
	Heads   []pageHead
	Rows    []pageRow
}

type pageHead struct{ Group, Head, Unit string }

type pageRow struct {
	Name  string
	Class string
	Cells []pageCell
}

type pageCell struct {
	Text, Spread string
	Best         bool
}

// WriteHTML writes one page that needs nothing but itself: plots that its
// script draws, and below them the whole table, which stands without.
func WriteHTML(w io.Writer, tables []*sim.Table, meta Meta) error {
	if err := check(tables); err != nil {
		return err
	}
	d := pageData{Meta: meta, Title: meta.Suite}
	if d.Title == "" {
		d.Title = tables[0].Scenario.Name
	}
	columns, seeds := make([]string, 0, 1), make([]string, 0, 1)
	for i, t := range tables {
		s, err := newPageScenario(i, t)
		if err != nil {
			return err
		}
		d.Scenarios = append(d.Scenarios, s)
		d.Single = d.Single || s.Single
		columns, seeds = appendNew(columns, s.Column), appendNew(seeds, seedText(t.Seeds))
	}
	d.Columns, d.Seeds = strings.Join(columns, ", "), strings.Join(seeds, "; ")
	data, err := json.Marshal(newPlotData(tables)) // escapes <, > and &
	if err != nil {
		return fmt.Errorf("report: write the page's data: %w", err)
	}
	d.Data = template.JS(data)

	files := make(map[string]string)
	for _, name := range []string{"page.html", "page.css", "plot.js", "page.js"} {
		text, err := page.ReadFile("page/" + name)
		if err != nil {
			return fmt.Errorf("report: read the page's part %s: %w", name, err)
		}
		files[name] = string(text)
	}
	d.Style, d.Plot, d.Script = template.CSS(files["page.css"]), template.JS(files["plot.js"]), template.JS(files["page.js"])
	form, err := template.New("page").Parse(files["page.html"])
	if err != nil {
		return fmt.Errorf("report: read the page's template: %w", err)
	}
	var b bytes.Buffer
	if err := form.Execute(&b, d); err != nil {
		return fmt.Errorf("report: write the page: %w", err)
	}
	if _, err := w.Write(b.Bytes()); err != nil {
		return fmt.Errorf("report: write the page: %w", err)
	}
	return nil
}

func appendNew(all []string, s string) []string {
	if slices.Contains(all, s) {
		return all
	}
	return append(all, s)
}

// seedText writes seeds as a list, or as a range where they follow each other.
func seedText(seeds []uint64) string {
	if len(seeds) == 0 {
		return "none"
	}
	text, following := make([]string, len(seeds)), true
	for i, s := range seeds {
		text[i] = fmt.Sprint(s)
		following = following && s == seeds[0]+uint64(i)
	}
	if following && len(seeds) > 2 {
		return text[0] + "–" + text[len(text)-1]
	}
	return strings.Join(text, ", ")
}

func newPageScenario(i int, t *sim.Table) (pageScenario, error) {
	about, err := json.MarshalIndent(t.Scenario, "", "  ")
	if err != nil {
		return pageScenario{}, fmt.Errorf("report: scenario %q as data: %w", t.Scenario.Name, err)
	}
	s := pageScenario{Index: i, Name: t.Scenario.Name, Set: t.Scenario.Set, Column: string(t.Column), Runs: runs(t), What: t.Scenario.Describe(), Single: single(t), JSON: string(about)}
	order := names(t)
	all := columns(t, order)
	cut := 0
	for cut < len(all) && all[cut].kind == inSeconds {
		cut++
	}
	if len(order) > 0 {
		s.Tables = []pageTable{
			newPageTable("Latency", t, order, all[:cut]),
			newPageTable("Goodput, cache, load and the rest", t, order, measured(all[cut:])),
		}
	}
	return s, nil
}

// measured leaves out columns that are zero or unknown throughout.
func measured(all []column) []column {
	var out []column
	for _, c := range all {
		if c.most(1) > 0 {
			out = append(out, c)
		}
	}
	return out
}

func newPageTable(caption string, t *sim.Table, order []string, cols []column) pageTable {
	p := pageTable{Caption: caption}
	marks := make([][]bool, len(cols))
	bound := pageRow{Name: "bound", Class: "bound"}
	for j := range cols {
		c := &cols[j]
		marks[j] = c.best()
		h := pageHead{c.group, c.head, c.shown}
		if h.Head == "f-up" {
			h.Head = "follow-up"
		}
		p.Heads = append(p.Heads, h)
		b := pageCell{}
		switch c.name {
		case "ttft_mean_s":
			b.Text = c.text(t.Bound.TTFTMean)
		case "hit_hbm":
			b.Text = c.text(t.Bound.Cached)
		}
		bound.Cells = append(bound.Cells, b)
	}
	for i, name := range order {
		r := pageRow{Name: name}
		if name == sim.Ours {
			r.Class = "ours"
		}
		for j := range cols {
			c, v := &cols[j], cols[j].cells[i]
			e := pageCell{Text: c.text(v.value), Best: marks[j][i]}
			if known(v.ci) {
				e.Spread = "±" + c.text(v.ci)
			}
			r.Cells = append(r.Cells, e)
		}
		p.Rows = append(p.Rows, r)
	}
	p.Rows = append(p.Rows, bound)
	return p
}
