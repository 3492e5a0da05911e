package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/rhizome-router/rhizome/sim"
)

// WriteJSON writes one scenario as an object with "policies", "bound",
// "column", "scenario", "seeds" and, where policies were compared, "versus"; several as
//
//	{"suite": suite, "scenarios": {name: {as above}}}
//
// Equal tables give equal bytes: keys are sorted and figures rounded to 9
// significant digits, which hides what compilers and CPUs differ in. A figure
// that is no number is an error.
func WriteJSON(w io.Writer, suite string, tables []*sim.Table) error {
	if err := check(tables); err != nil {
		return err
	}
	scenarios := make(map[string]any)
	var out any
	for _, t := range tables {
		one, err := tree(t)
		if err != nil {
			return fmt.Errorf("report: scenario %q as JSON: %w", t.Scenario.Name, err)
		}
		scenarios[t.Scenario.Name], out = one, one
	}
	if len(tables) > 1 {
		out = map[string]any{"suite": suite, "scenarios": scenarios}
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(out); err != nil {
		return fmt.Errorf("report: write JSON: %w", err)
	}
	if _, err := w.Write(b.Bytes()); err != nil {
		return fmt.Errorf("report: write JSON: %w", err)
	}
	return nil
}

// tree returns a table as what encoding/json writes with sorted keys.
func tree(t *sim.Table) (map[string]any, error) {
	policies := make(map[string]any)
	for name, row := range t.Policies { // order-free: fills a map
		r := *row
		if r.CI95 == nil || single(t) {
			r.CI95 = map[string]float64{}
		}
		v, err := rounded(&r, true)
		if err != nil {
			return nil, fmt.Errorf("policy %q: %w", name, err)
		}
		policies[name] = v
	}
	out := map[string]any{"policies": policies, "column": t.Column}
	seeds := t.Seeds
	if seeds == nil {
		seeds = []uint64{}
	}
	for _, part := range []struct {
		key     string
		value   any
		figures bool
	}{
		{"bound", t.Bound, true}, {"versus", t.Versus, true}, {"scenario", t.Scenario, false}, {"seeds", seeds, false},
	} {
		if part.key == "versus" && len(t.Versus) == 0 {
			continue
		}
		v, err := rounded(part.value, part.figures)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", part.key, err)
		}
		out[part.key] = v
	}
	return out, nil
}

// rounded passes v through JSON and rounds its numbers. Whole numbers stay as
// they are unless they are figures too: a seed has more digits than 9.
func rounded(v any, figures bool) (any, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var out any
	if err := dec.Decode(&out); err != nil {
		return nil, err
	}
	return roundAll(out, figures), nil
}

func roundAll(v any, figures bool) any {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v { // order-free: each is replaced by itself, rounded
			v[k] = roundAll(e, figures)
		}
	case []any:
		for i, e := range v {
			v[i] = roundAll(e, figures)
		}
	case json.Number:
		f, err := v.Float64()
		if err != nil || !figures && !strings.ContainsAny(string(v), ".eE") {
			return v
		}
		return significant(f, 9)
	}
	return v
}

// significant rounds to that many significant digits.
func significant(f float64, digits int) float64 {
	r, err := strconv.ParseFloat(strconv.FormatFloat(f, 'e', digits-1, 64), 64)
	if err != nil {
		return f // rounding up passed the greatest number
	}
	return r
}
