package report

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"flag"
	"io"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/rhizome-router/rhizome/sim"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// golden compares what write writes with a file in testdata.
func golden(t *testing.T, name string, write func(io.Writer) error) string {
	t.Helper()
	var b bytes.Buffer
	if err := write(&b); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), b.String()); diff != "" {
		t.Errorf("%s differs (-want +got); run with -update if that is meant:\n%s", path, diff)
	}
	return b.String()
}

func TestGoldens(t *testing.T) {
	many, one := suite(6, 5), []*sim.Table{madeUp("conversation", 3, 1)}
	table := func(tables []*sim.Table, o TableOptions) func(io.Writer) error {
		return func(w io.Writer) error { return WriteTable(w, tables, o) }
	}
	golden(t, "suite-120.txt", table(many, TableOptions{}))
	golden(t, "suite-80.txt", table(many[:1], TableOptions{Width: 80}))
	golden(t, "ablation.txt", func(w io.Writer) error { return WriteAblation(w, many[:2]) })
	golden(t, "suite-color.txt", table(many[:1], TableOptions{Color: true}))
	golden(t, "single.txt", table(one, TableOptions{}))
	golden(t, "hostile.txt", table([]*sim.Table{hostile()}, TableOptions{}))
	golden(t, "suite.md", func(w io.Writer) error { return WriteMarkdown(w, many) })
	golden(t, "suite.csv", func(w io.Writer) error { return WriteCSV(w, many) })
	golden(t, "suite.json", nameless("three", many))
	golden(t, "single.json", nameless("", one))
}

// nameless writes JSON without the insides of scenarios, which are not this
// package's.
func nameless(suite string, tables []*sim.Table) func(io.Writer) error {
	return func(w io.Writer) error {
		var b bytes.Buffer
		if err := WriteJSON(&b, suite, tables); err != nil {
			return err
		}
		end := ""
		for l := range strings.Lines(b.String()) {
			trimmed := strings.TrimLeft(l, " ")
			indent := l[:len(l)-len(trimmed)]
			switch {
			case end == "" && strings.HasPrefix(trimmed, `"scenario": {`):
				end = indent + "}"
				l = indent + "\"scenario\": {…}" + ",\n"
			case strings.HasPrefix(l, end) && end != "":
				end = ""
				continue
			case end != "":
				continue
			}
			if _, err := io.WriteString(w, l); err != nil {
				return err
			}
		}
		return nil
	}
}

// A table fits wherever it is put, and shows no colour unless asked to.
func TestTableFits(t *testing.T) {
	escape := regexp.MustCompile("\x1b\\[[0-9]*m")
	rapid.Check(t, func(t *rapid.T) {
		o := TableOptions{Width: rapid.IntRange(60, 200).Draw(t, "width"), Color: rapid.Bool().Draw(t, "color")}
		table := madeUp(rapid.StringMatching(`[a-z]{1,12}`).Draw(t, "scenario"), rapid.IntRange(1, len(peers)).Draw(t, "policies"),
			rapid.IntRange(1, 5).Draw(t, "seeds"))
		var b strings.Builder
		if err := WriteTable(&b, []*sim.Table{table}, o); err != nil {
			t.Fatal(err)
		}
		if !o.Color && strings.Contains(b.String(), "\x1b") {
			t.Fatal("colour where none was asked for")
		}
		all := escape.ReplaceAllString(b.String(), "")
		rows := strings.SplitN(all, "\n\n", 3)[1]
		if o.Width < 80 {
			all = rows // sentences need more
		}
		for l := range strings.Lines(all) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(l, "\n")); n > o.Width {
				t.Fatalf("%d columns wide, want at most %d:\n%s", n, o.Width, l)
			}
		}
		for name := range table.Policies {
			if !strings.Contains(rows, name) {
				t.Fatalf("no row of %s:\n%s", name, rows)
			}
		}
	})
}

func TestBestNeedsAChoice(t *testing.T) {
	for _, c := range []struct {
		values []float64
		better int
		want   []bool
	}{
		{[]float64{3}, -1, []bool{false}},
		{[]float64{3, 3}, -1, []bool{false, false}},
		{[]float64{3, 2, 2.001}, -1, []bool{false, true, true}},
		{[]float64{3, 2, math.NaN()}, +1, []bool{true, false, false}},
		{[]float64{3, 2}, 0, []bool{false, false}},
	} {
		col := column{figure: figure{kind: inRatio, better: c.better}, factor: 1, decimals: 2}
		for _, v := range c.values {
			col.cells = append(col.cells, cell{value: v})
		}
		if got := col.best(); !slices.Equal(got, c.want) {
			t.Errorf("best of %v, better %d: %v, want %v", c.values, c.better, got, c.want)
		}
	}
}

// A policy that answers nothing is not the fastest.
func TestSilenceIsNotFast(t *testing.T) {
	table := madeUp("x", 3, 3)
	table.Policies["silent"] = &sim.Row{Failed: 9, Requests: 9}
	order := names(table)
	if order[3] != "silent" {
		t.Errorf("order %v, want the silent one last", order)
	}
	for _, c := range columns(table, order) {
		if c.kind == inSeconds && c.best()[3] {
			t.Errorf("silence has the best %s", c.name)
		}
	}
}

// Every figure of a row is listed, under the name JSON knows it by.
func TestFiguresAreAllOfRow(t *testing.T) {
	row := reflect.TypeFor[sim.Row]()
	var fields, listed []string
	for i := range row.NumField() {
		if f := row.Field(i); f.Type.Kind() == reflect.Float64 {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			fields = append(fields, name)
		}
	}
	for _, f := range figures() {
		listed = append(listed, f.name)
		var r sim.Row
		for i := range row.NumField() {
			if name, _, _ := strings.Cut(row.Field(i).Tag.Get("json"), ","); name == f.name {
				reflect.ValueOf(&r).Elem().Field(i).SetFloat(7)
			}
		}
		if f.of(&r) != 7 {
			t.Errorf("figure %s reads another field", f.name)
		}
	}
	slices.Sort(fields)
	slices.Sort(listed)
	if diff := cmp.Diff(fields, listed); diff != "" {
		t.Errorf("figures of sim.Row (-) and listed ones (+):\n%s", diff)
	}
}

func TestJSONIsTheSameBytesEveryTime(t *testing.T) {
	write := func(jitter float64) string {
		tables := []*sim.Table{madeUp("x", 9, 4), madeUp("y", 2, 1)}
		for _, p := range tables[0].Policies {
			p.TTFTMean *= 1 + jitter
			p.MovedBytes += 1e12 * jitter
		}
		var b strings.Builder
		if err := WriteJSON(&b, "s", tables); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	first := write(0)
	for range 10 {
		if write(0) != first {
			t.Fatal("two writings differ")
		}
	}
	if write(1e-15) != first {
		t.Error("a difference in the last bit shows")
	}
	if write(1e-6) == first {
		t.Error("a real difference does not show")
	}
}

func TestJSONShape(t *testing.T) {
	table := madeUp("one", 2, 1)
	table.Versus = nil
	table.Seeds = []uint64{math.MaxUint64}
	var b bytes.Buffer
	if err := WriteJSON(&b, "ignored", []*sim.Table{table}); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Policies map[string]map[string]json.RawMessage
		Bound    sim.Bound
		Column   string
		Scenario sim.Scenario
		Seeds    []uint64
	}
	dec := json.NewDecoder(&b)
	dec.DisallowUnknownFields()
	if err := dec.Decode(&got); err != nil {
		t.Fatal(err)
	}
	if got.Scenario.Name != "one" || got.Column != "learned" || got.Seeds[0] != math.MaxUint64 || len(got.Policies) != 2 {
		t.Errorf("got %+v", got)
	}
	if ci := string(got.Policies[sim.Ours]["ci95"]); ci != "{}" {
		t.Errorf("interval of a single run: %s, want {}", ci)
	}
	if want := significant(table.Bound.TTFTMean, 9); got.Bound.TTFTMean != want {
		t.Errorf("bound %v, want %v", got.Bound.TTFTMean, want)
	}
}

func TestJSONRefusesWhatIsNoNumber(t *testing.T) {
	for _, bad := range []float64{math.NaN(), math.Inf(1)} {
		table := madeUp("x", 2, 3)
		table.Policies["lmetric-fitted"].LoadCoV = bad
		err := WriteJSON(io.Discard, "", []*sim.Table{table})
		if err == nil || !strings.Contains(err.Error(), `policy "lmetric-fitted"`) {
			t.Errorf("%v: error %v, want one that names the policy", bad, err)
		}
		if err := WriteCSV(io.Discard, []*sim.Table{table}); err != nil {
			t.Errorf("CSV: %v, want an empty field", err)
		}
	}
}

func TestSignificant(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := rapid.Float64().Draw(t, "v")
		r := significant(v, 9)
		if again := significant(r, 9); again != r {
			t.Fatalf("%v became %v, then %v", v, r, again)
		}
		if math.Abs(r-v) > math.Abs(v)*0.5001e-8 {
			t.Fatalf("%v became %v", v, r)
		}
	})
}

func TestCSVReadsBack(t *testing.T) {
	table := hostile()
	var b bytes.Buffer
	if err := WriteCSV(&b, []*sim.Table{table, madeUp("other", 2, 1)}); err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(&b).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	if want := 1 + len(table.Policies) + 2; len(rows) != want {
		t.Errorf("%d lines, want %d", len(rows), want)
	}
	for _, row := range rows[1 : 1+len(table.Policies)] {
		if row[0] != table.Scenario.Name || table.Policies[row[4]] == nil {
			t.Errorf("scenario %q, policy %q: not as given", row[0], row[4])
		}
	}
}

func TestNothingToWrite(t *testing.T) {
	twice := []*sim.Table{madeUp("x", 1, 1), madeUp("x", 1, 1)}
	hole := madeUp("y", 1, 1)
	hole.Policies["hole"] = nil
	for name, tables := range map[string][]*sim.Table{"none": nil, "twice": twice, "hole": {hole}} {
		for format, err := range map[string]error{
			"table": WriteTable(io.Discard, tables, TableOptions{}), "JSON": WriteJSON(io.Discard, "", tables),
			"CSV": WriteCSV(io.Discard, tables),
		} {
			if err == nil {
				t.Errorf("%s as %s: no error", name, format)
			}
		}
	}
}

func TestProgressEnds(t *testing.T) {
	for _, done := range []int{0, 3, 10} {
		step, finish := Progress(io.Discard, 10)
		for range done {
			step(1, "rhizome\x1b[2J, seed 1")
		}
		finish()
		step(1, "late") // must not block nor panic
	}
}
