package report

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/rhizome-router/rhizome/sim"
)

// kind is what a figure measures, from which its unit for humans follows.
type kind int

const (
	inSeconds kind = iota
	inMicros
	inShare
	inBytes
	inCount
	inRatio
)

// figure is one number of a policy in a scenario.
type figure struct {
	name        string // JSON name in sim.Row, and the key of its interval
	unit        string // what CSV puts behind the name, unless it is there
	group, head string // how the tables call it: "TTFT", "mean"
	kind        kind
	better      int // +1: more is better, −1: less is, 0: neither
	of          func(*sim.Row) float64
}

// absent tells that v says that the figure was not measured: nothing takes no
// time, and these two are left out of sim.Row by a zero.
func (f *figure) absent(v float64) bool {
	return f.kind == inSeconds && v <= 0 || v == 0 && (f.name == "cached_error" || f.name == "capacity_speed")
}

// decision is the one figure that is not in sim.Row.
const decision = "decision_us"

// figures lists every figure of sim.Row in the order of the tables.
func figures() []figure {
	return []figure{
		{"ttft_mean_s", "", "TTFT", "mean", inSeconds, -1, func(r *sim.Row) float64 { return r.TTFTMean }},
		{"ttft_p50_s", "", "TTFT", "p50", inSeconds, -1, func(r *sim.Row) float64 { return r.TTFTP50 }},
		{"ttft_p90_s", "", "TTFT", "p90", inSeconds, -1, func(r *sim.Row) float64 { return r.TTFTP90 }},
		{"ttft_p99_s", "", "TTFT", "p99", inSeconds, -1, func(r *sim.Row) float64 { return r.TTFTP99 }},
		{"tpot_mean_s", "", "TPOT", "mean", inSeconds, -1, func(r *sim.Row) float64 { return r.TPOTMean }},
		{"tpot_p50_s", "", "TPOT", "p50", inSeconds, -1, func(r *sim.Row) float64 { return r.TPOTP50 }},
		{"tpot_p90_s", "", "TPOT", "p90", inSeconds, -1, func(r *sim.Row) float64 { return r.TPOTP90 }},
		{"tpot_p99_s", "", "TPOT", "p99", inSeconds, -1, func(r *sim.Row) float64 { return r.TPOTP99 }},
		{"e2e_mean_s", "", "E2E", "mean", inSeconds, -1, func(r *sim.Row) float64 { return r.E2EMean }},
		{"e2e_p50_s", "", "E2E", "p50", inSeconds, -1, func(r *sim.Row) float64 { return r.E2EP50 }},
		{"e2e_p90_s", "", "E2E", "p90", inSeconds, -1, func(r *sim.Row) float64 { return r.E2EP90 }},
		{"e2e_p99_s", "", "E2E", "p99", inSeconds, -1, func(r *sim.Row) float64 { return r.E2EP99 }},
		{"goodput", "share", "goodput", "", inShare, +1, func(r *sim.Row) float64 { return r.Goodput }},
		{"hit_hbm", "share", "hit", "HBM", inShare, +1, func(r *sim.Row) float64 { return r.HitHBM }},
		{"hit_tier", "share", "hit", "tier", inShare, 0, func(r *sim.Row) float64 { return r.HitTier }},
		{"followup_cached", "share", "hit", "f-up", inShare, +1, func(r *sim.Row) float64 { return r.FollowupCached }},
		{"load_cov", "ratio", "load", "CoV", inRatio, -1, func(r *sim.Row) float64 { return r.LoadCoV }},
		{"load_max_mean", "ratio", "load", "max/mean", inRatio, -1, func(r *sim.Row) float64 { return r.LoadMaxMean }},
		{"moved_bytes", "", "moved", "up", inBytes, 0, func(r *sim.Row) float64 { return r.MovedBytes }},
		{"preemptions", "count", "preempted", "", inCount, -1, func(r *sim.Row) float64 { return r.Preemptions }},
		{"failed", "count", "failed", "", inCount, -1, func(r *sim.Row) float64 { return r.Failed }},
		{"cached_error", "share", "cached", "error", inShare, -1, func(r *sim.Row) float64 { return r.PredictedError }},
		{"requests", "count", "requests", "", inCount, 0, func(r *sim.Row) float64 { return r.Requests }},
		{"makespan_s", "", "makespan", "", inSeconds, -1, func(r *sim.Row) float64 { return r.MakespanSeconds }},
		{"capacity_speed", "ratio", "capacity", "speed", inRatio, +1, func(r *sim.Row) float64 { return r.CapacitySpeed }},
	}
}

// names returns a table's policies, the fastest to the first token first, and
// last those that answered nothing.
func names(t *sim.Table) []string {
	all := slices.Sorted(maps.Keys(t.Policies))
	rank := func(name string) float64 {
		if v := t.Policies[name].TTFTMean; v > 0 {
			return v
		}
		return math.Inf(1)
	}
	slices.SortStableFunc(all, func(a, b string) int { return cmp.Compare(rank(a), rank(b)) })
	return all
}

// check refuses tables that can't be shown.
func check(tables []*sim.Table) error {
	if len(tables) == 0 {
		return fmt.Errorf("report: no scenario was played, so there is nothing to write")
	}
	seen := make(map[string]bool)
	for _, t := range tables {
		if seen[t.Scenario.Name] {
			return fmt.Errorf("report: two scenarios are called %q; give each a name of its own", t.Scenario.Name)
		}
		seen[t.Scenario.Name] = true
		for name, row := range t.Policies { // order-free: any one is reported
			if row == nil {
				return fmt.Errorf("report: scenario %q has no figures of policy %q", t.Scenario.Name, name)
			}
		}
	}
	return nil
}

// single tells that a table is of one run, so that no spread is known.
func single(t *sim.Table) bool { return len(t.Seeds) < 2 }

// cell is a figure of one policy: its value and the half-width of its
// interval; NaN where there is none.
type cell struct{ value, ci float64 }

func known(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// column is a figure of all policies, with how to write it.
type column struct {
	figure
	cells    []cell
	factor   float64 // from the figure's own unit to the one shown
	shown    string  // the unit shown, "" for none
	decimals int
}

// columns collects the figures of a table's policies, in the order of names.
// Figures of one group share a unit, so that they can be compared by eye.
func columns(t *sim.Table, order []string) []column {
	var all []column
	for _, f := range figures() {
		c := column{figure: f}
		for _, name := range order {
			row := t.Policies[name]
			v := cell{f.of(row), math.NaN()}
			if f.absent(v.value) {
				v = cell{math.NaN(), math.NaN()}
			}
			if ci, ok := row.CI95[f.name]; ok && !single(t) && known(v.value) {
				v.ci = ci
			}
			c.cells = append(c.cells, v)
		}
		all = append(all, c)
	}
	d := column{figure: figure{name: decision, group: "decision", head: "", kind: inMicros, better: -1}}
	for _, name := range order {
		v, ok := t.DecisionMicros[name]
		if !ok {
			v = math.NaN()
		}
		d.cells = append(d.cells, cell{v, math.NaN()})
	}
	all = append(all, d)
	first := 0
	for i := range all {
		if all[i].group != all[first].group || all[i].kind != all[first].kind {
			first = i
		}
		all[i].factor, all[i].shown = unit(all[i].kind, all[first].most(1))
		all[i].decimals = all[i].places()
	}
	return all
}

// unit chooses a unit for figures of which the greatest is most.
func unit(k kind, most float64) (factor float64, name string) {
	switch k {
	case inSeconds:
		if most < 1 {
			return 1e3, "ms"
		}
		return 1, "s"
	case inMicros:
		return 1, "µs"
	case inShare:
		return 100, "%"
	case inBytes:
		names := []string{"B", "kB", "MB", "GB", "TB", "PB"}
		i := 0
		for factor = 1; most*factor >= 1000 && i < len(names)-1; i++ {
			factor /= 1000
		}
		return factor, names[i]
	default:
		return 1, ""
	}
}

// most is the greatest known value times factor, 0 of none.
func (c *column) most(factor float64) float64 {
	m := 0.0
	for _, v := range c.cells {
		if known(v.value) {
			m = max(m, math.Abs(v.value)*factor)
		}
	}
	return m
}

// places chooses the digits after the point: enough for the least value to
// keep two of its own, and no more than five digits in all.
func (c *column) places() int {
	if c.kind == inShare {
		return 1
	}
	if c.kind == inCount {
		return 0
	}
	least := math.Inf(1)
	for _, v := range c.cells {
		if a := math.Abs(v.value) * c.factor; known(a) && a > 0 {
			least = min(least, a)
		}
	}
	n := 0
	switch {
	case least < 0.1:
		n = 3
	case least < 10:
		n = 2
	case least < 100:
		n = 1
	}
	switch most := c.most(c.factor); {
	case most >= 1000:
		n = 0
	case most >= 100:
		n = min(n, 1)
	}
	return n
}

// text writes a value in the column's unit, "–" of none.
func (c *column) text(v float64) string {
	if !known(v) {
		return "–"
	}
	return strconv.FormatFloat(v*c.factor, 'f', c.decimals, 64)
}

// bare is text without the zero before the point.
func (c *column) bare(v float64) string {
	s := c.text(v)
	if strings.HasPrefix(s, "0.") {
		return s[1:]
	}
	return s
}

// best tells which of the cells are the best of the column, as far as its
// digits show. It marks nothing where there is no choice.
func (c *column) best() []bool {
	marks := make([]bool, len(c.cells))
	if c.better == 0 || len(c.cells) < 2 {
		return marks
	}
	top := math.NaN()
	for _, v := range c.cells {
		if known(v.value) && (math.IsNaN(top) || (v.value-top)*float64(c.better) > 0) {
			top = v.value
		}
	}
	n := 0
	for i, v := range c.cells {
		if known(v.value) && c.text(v.value) == c.text(top) {
			marks[i] = true
			n++
		}
	}
	if n == len(marks) {
		clear(marks)
	}
	return marks
}

// plain makes a name from a file safe to print on a terminal.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}

// runs says how many runs a table's figures are the mean of.
func runs(t *sim.Table) string {
	if single(t) {
		return "1 seed, no interval"
	}
	return fmt.Sprintf("%d seeds, ± is the 95 %% interval", len(t.Seeds))
}
