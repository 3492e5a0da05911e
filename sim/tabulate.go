package sim

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// tabulate turns the runs of a scenario into its table.
func tabulate(sc Scenario, o Options, runs [][]run, bounds []Bound) *Table {
	t := &Table{
		Scenario: sc, Column: o.Column, Seeds: o.Seeds, Order: namesOf(o.Policies), Policies: make(map[string]*Row),
		Pictures: make(map[string]*Picture), DecisionMicros: make(map[string]float64),
	}
	for _, b := range bounds {
		t.Bound.TTFTMean += b.TTFTMean / float64(len(bounds))
		t.Bound.Cached += b.Cached / float64(len(bounds))
	}
	figures := make([]map[string][]float64, len(runs))
	for p, bySeed := range runs {
		name := o.Policies[p].Name
		figures[p] = make(map[string][]float64)
		micros := 0.0
		for s := range bySeed {
			// order-free: each figure has a list of its own.
			for key, v := range figuresOf(&bySeed[s].row) {
				figures[p][key] = append(figures[p][key], v)
			}
			micros += bySeed[s].micros / float64(len(bySeed))
		}
		t.Policies[name] = summarise(figures[p])
		t.DecisionMicros[name] = micros
		t.Pictures[name] = bySeed[0].picture
	}
	t.Versus = versus(t.Order, figures)
	return t
}

// figuresOf returns the numbers of a row by their JSON names.
func figuresOf(r *Row) map[string]float64 {
	raw, err := json.Marshal(r)
	if err != nil {
		panic(fmt.Sprintf("sim: a row is no JSON: %v", err)) // it holds numbers, and no NaN by construction
	}
	all := make(map[string]any)
	if err := json.Unmarshal(raw, &all); err != nil {
		panic(fmt.Sprintf("sim: a row's JSON can't be read: %v", err))
	}
	out := make(map[string]float64, len(all))
	// order-free: copied into another map.
	for k, v := range all {
		if x, ok := v.(float64); ok {
			out[k] = x
		}
	}
	return out
}

// summarise makes one row of the figures of all seeds.
func summarise(bySeed map[string][]float64) *Row {
	means := make(map[string]any, len(bySeed))
	ci := make(map[string]float64)
	for _, key := range slices.Sorted(maps.Keys(bySeed)) {
		values := bySeed[key]
		mean, half := interval(values)
		means[key] = mean
		if len(values) > 1 {
			ci[key] = half
		}
	}
	var row Row
	raw, err := json.Marshal(means)
	if err == nil {
		err = json.Unmarshal(raw, &row)
	}
	if err != nil {
		panic(fmt.Sprintf("sim: means are no row: %v", err))
	}
	row.CI95 = ci
	return &row
}

// interval returns the mean and the half-width of its 95 % interval by
// Student's t; 0 of a single value.
func interval(x []float64) (mean, half float64) {
	if len(x) < 2 {
		return x[0], 0
	}
	mean, std := stat.MeanStdDev(x, nil)
	t := distuv.StudentsT{Mu: 0, Sigma: 1, Nu: float64(len(x) - 1)}.Quantile(0.975)
	return mean, t * std / math.Sqrt(float64(len(x)))
}

// compared are the figures that Versus pairs.
var compared = [...]string{"ttft_mean_s", "ttft_p99_s", "tpot_mean_s", "e2e_mean_s", "goodput"}

// versus compares every policy with the product's, or with the first one where
// that was not played, seed by seed.
func versus(order []string, figures []map[string][]float64) []Versus {
	base := max(0, slices.Index(order, Ours))
	var out []Versus
	for p := range order {
		if p == base {
			continue
		}
		for _, figure := range compared {
			ours, theirs := figures[base][figure], figures[p][figure]
			var logs []float64
			for s := range ours {
				if ours[s] > 0 && theirs[s] > 0 {
					logs = append(logs, math.Log(ours[s]/theirs[s]))
				}
			}
			if len(logs) == 0 || len(logs) < len(ours) {
				continue
			}
			mean, half := interval(logs)
			out = append(out, Versus{Policy: order[base], Than: order[p], Figure: figure,
				Ratio: math.Exp(mean), Low: math.Exp(mean - half), High: math.Exp(mean + half)})
		}
	}
	return out
}
