package cost

import (
	"fmt"
	"math"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/rhizome-router/rhizome/kv"
)

// symbol is a row of testdata/symbols.txt.
type symbol struct{ name, unit, def, bounds, source string }

func symbols(t *testing.T) map[string]symbol {
	t.Helper()
	raw, err := os.ReadFile("testdata/symbols.txt")
	if err != nil {
		t.Fatal(err)
	}
	rows := make(map[string]symbol)
	for line := range strings.Lines(string(raw)) {
		f := strings.Fields(line)
		if len(f) == 0 || f[0] == "#" || f[0] == "field" {
			continue
		}
		if len(f) < 6 || rows[f[0]].name != "" {
			t.Fatalf("a short row, or a second one: %s", line)
		}
		rows[f[0]] = symbol{f[1], f[2], f[3], f[4], strings.Join(f[5:], " ")}
	}
	return rows
}

// within reports whether x lies in a range such as ">0", ">=0" or "0..1".
func within(t *testing.T, x float64, bounds string) bool {
	t.Helper()
	number := func(s string) float64 {
		v, err := strconv.ParseFloat(s, 64)
		if err != nil {
			t.Fatalf("range %q: %v", bounds, err)
		}
		return v
	}
	if low, high, ok := strings.Cut(bounds, ".."); ok {
		return x >= number(low) && x <= number(high)
	}
	if least, ok := strings.CutPrefix(bounds, ">="); ok {
		return x >= number(least)
	}
	return x > number(strings.TrimPrefix(bounds, ">"))
}

// Every parameter has a symbol, a unit that its name says, a range with its
// default in it, and a source; and the defaults are those that are written down.
func TestSymbols(t *testing.T) {
	rows := symbols(t)
	units := map[string]string{"Micros": "µs", "Tokens": "tokens", "Seqs": "sequences", "Bytes": "B/token", "PerMicro": "B/µs", "PerSecond": "1/s", "Slack": "requests"}
	generic := Generic()
	for _, v := range []any{generic, generic.Links[kv.CPU], DefaultWeights(), Distance{}, DefaultArticle()} {
		value := reflect.ValueOf(v)
		for i := range value.NumField() {
			field := value.Type().Field(i)
			name := value.Type().Name() + "." + field.Name
			if field.Type.Kind() == reflect.String || field.Type.Kind() == reflect.Array {
				continue // names and links, which have rows of their own
			}
			row, ok := rows[name]
			if !ok || row.source == "" {
				t.Errorf("%s has no row in testdata/symbols.txt", name)
				continue
			}
			delete(rows, name)
			for suffix, unit := range units {
				if strings.HasSuffix(field.Name, suffix) && !strings.HasPrefix(row.unit, unit) {
					t.Errorf("%s is in %s by its name, in %s by the table", name, unit, row.unit)
				}
			}
			if field.Type.Kind() == reflect.Bool {
				if fmt.Sprint(value.Field(i)) != row.def {
					t.Errorf("%s is %v, %s by the table", name, value.Field(i), row.def)
				}
				continue
			}
			def, err := strconv.ParseFloat(row.def, 64)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			got := value.Field(i).Convert(reflect.TypeFor[float64]()).Float()
			if math.Abs(got-def) > 1e-5*math.Abs(def) {
				t.Errorf("%s is %v, %v by the table", name, got, def)
			}
			if !within(t, got, row.bounds) {
				t.Errorf("%s is %v, outside %s", name, got, row.bounds)
			}
		}
	}
	for name := range rows {
		t.Errorf("%s is in the table and nowhere else", name)
	}
}
