package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"
	"time"

	"github.com/rhizome-router/rhizome/chaos"
)

// Meta says what was run, for the top of the page.
type Meta struct {
	Command string // the command line
	Commit  string // of the program, "" if unknown
}

//go:embed page.html
var pageText string

// pageData is what the template shows.
type pageData struct {
	Meta
	Summary  chaos.Summary
	Checkers []chaos.Checker
	Rows     []row
	Runs     []timeline
}

// row is one scenario on one ground, over all seeds.
type row struct {
	Scenario, Doc, Place, Regret string
	Runs, Passed, Requests       int
	Failed                       int
}

// timeline is one run's plots.
type timeline struct {
	Scenario, Doc, Place string
	Seed                 uint64
	Passed               bool
	Violations           []violation
	Faults               template.HTML
	Plots                []figure
}

type violation struct{ At, Checker, What string }

// figure is one plot with its legend.
type figure struct {
	Title  string
	Plot   template.HTML
	Legend []legend
}

type legend struct{ Colour, Name string }

// HTML writes the page.
func HTML(w io.Writer, scenarios []chaos.Scenario, results []chaos.Result, meta Meta) error {
	t, err := template.New("page").Parse(pageText)
	if err != nil {
		return fmt.Errorf("chaos report: %w", err)
	}
	d := pageData{Meta: meta, Summary: chaos.Sum(scenarios, results), Checkers: chaos.Checkers(), Rows: rowsOf(scenarios, results)}
	for i := range results {
		if r := &results[i]; r.History != nil {
			d.Runs = append(d.Runs, timelineOf(scenarioOf(scenarios, r.Scenario), r))
		}
	}
	if err := t.Execute(w, d); err != nil {
		return fmt.Errorf("chaos report: %w", err)
	}
	return nil
}

func scenarioOf(all []chaos.Scenario, name string) *chaos.Scenario {
	i := slices.IndexFunc(all, func(s chaos.Scenario) bool { return s.Name == name })
	return &all[i]
}

// rowsOf sums results up by scenario and ground.
func rowsOf(scenarios []chaos.Scenario, results []chaos.Result) []row {
	var rows []row
	least, most := 0.0, 0.0
	for i := range results {
		r := &results[i]
		if n := len(rows); n == 0 || rows[n-1].Scenario != r.Scenario || rows[n-1].Place != string(r.Place) {
			rows = append(rows, row{Scenario: r.Scenario, Doc: scenarioOf(scenarios, r.Scenario).Doc, Place: string(r.Place)})
			least, most = r.Regret, r.Regret
		}
		at := &rows[len(rows)-1]
		at.Runs++
		at.Requests, at.Failed = at.Requests+r.Requests, at.Failed+r.Failed
		if r.Passed() {
			at.Passed++
		}
		if least, most = min(least, r.Regret), max(most, r.Regret); most > 0 {
			at.Regret = fmt.Sprintf("%.2f to %.2f", least, most)
		}
	}
	return rows
}

func timelineOf(s *chaos.Scenario, r *chaos.Result) timeline {
	h := r.History
	t := timeline{Scenario: r.Scenario, Doc: s.Doc, Place: string(r.Place), Seed: r.Seed, Passed: r.Passed(), Faults: template.HTML(faultsPlot(s, h))}
	for _, v := range r.Violations {
		t.Violations = append(t.Violations, violation{v.At.Round(time.Millisecond).String(), v.Checker, v.What})
	}
	for _, f := range []struct {
		title  string
		series []series
	}{
		{"Hit rate", hitRate(h)}, {"Time to the first token, s", ttft(h)}, {"Batches behind the furthest replica", lag(h)},
		{"Share of workers of which the same is held as by the furthest", agreement(h)}, {"Replicas known", members(h)}, {"Leader, by number", leader(h)},
	} {
		if f.series == nil {
			continue
		}
		g := figure{Title: f.title, Plot: template.HTML(plot(s, h, f.series))}
		for i, l := range f.series {
			if l.name == "replica" {
				l.name = fmt.Sprint("replica ", i)
			}
			g.Legend = append(g.Legend, legend{colours[i%len(colours)], l.name})
		}
		t.Plots = append(t.Plots, g)
	}
	return t
}
