package report

import (
	"bytes"
	"encoding/json"
	"html"
	"io"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rhizome-router/rhizome/sim"
)

func writePage(t testing.TB, tables []*sim.Table, meta Meta) string {
	t.Helper()
	var b bytes.Buffer
	if err := WriteHTML(&b, tables, meta); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

var tag = regexp.MustCompile(`<(/?)([a-zA-Z][a-zA-Z0-9]*)((?:\s+[a-zA-Z-]+(?:="[^"<>]*")?)*)\s*>`)

// markup is a page without what stands in its scripts and styles.
func markup(t *testing.T, page string) string {
	t.Helper()
	var b strings.Builder
	for {
		at := -1
		for _, name := range []string{"script", "style"} {
			if i := strings.Index(page, "<"+name); i >= 0 && (at < 0 || i < at) {
				at = i
			}
		}
		if at < 0 {
			b.WriteString(page)
			return b.String()
		}
		open := at + strings.IndexByte(page[at:], '>') + 1
		end := strings.Index(page[open:], "</s")
		if end < 0 {
			t.Fatal("a script or style has no end")
		}
		b.WriteString(page[:open])
		page = page[open+end:]
	}
}

// wellFormed checks that all elements are closed in order, and that no "<"
// stands for anything else than a tag.
func wellFormed(t *testing.T, page string) {
	t.Helper()
	body := strings.TrimPrefix(markup(t, page), "<!doctype html>")
	if rest := tag.ReplaceAllString(body, ""); strings.ContainsAny(rest, "<>") {
		i := strings.IndexAny(rest, "<>")
		t.Errorf("stray angle bracket near %q", rest[max(0, i-40):min(len(rest), i+40)])
	}
	void := []string{"meta", "br", "link"}
	var open []string
	for _, m := range tag.FindAllStringSubmatch(body, -1) {
		switch name := m[2]; {
		case slices.Contains(void, name):
		case m[1] == "":
			open = append(open, name)
		case len(open) == 0 || open[len(open)-1] != name:
			t.Fatalf("</%s> closes %v", name, open)
		default:
			open = open[:len(open)-1]
		}
	}
	if len(open) > 0 {
		t.Errorf("never closed: %v", open)
	}
}

func TestPageIsWholeAndAlone(t *testing.T) {
	for name, tables := range map[string][]*sim.Table{
		"one policy": {madeUp("x", 1, 3)}, "all": {madeUp("x", len(peers), 10)}, "single": {madeUp("x", 4, 1)},
		"hostile": {hostile(), madeUp("y", 3, 1)}, "empty": {{Scenario: sim.Scenario{Name: "empty"}}},
	} {
		t.Run(name, func(t *testing.T) {
			page := writePage(t, tables, Meta{Suite: "a <suite>", Command: `sim --x "<y>" & z`, Notes: []string{"</p>"}})
			wellFormed(t, page)
			outside := html.UnescapeString(markup(t, page))
			for _, table := range tables {
				for policy := range table.Policies {
					if !strings.Contains(outside, ">"+policy+"<") {
						t.Errorf("policy %q is in no table", policy)
					}
				}
				if got := strings.Contains(outside, "single run"); got != slices.ContainsFunc(tables, single) {
					t.Errorf("marked as a single run: %v", got)
				}
			}
			for _, m := range tag.FindAllString(markup(t, page), -1) {
				for _, bad := range []string{"//", "<link", "<img", "src=", "url("} {
					if strings.Contains(m, bad) {
						t.Errorf("a tag refers to something outside: %s", m)
					}
				}
			}
			if !strings.Contains(page, "default-src 'none'") {
				t.Error("the page may load things")
			}
		})
	}
}

func TestPageDataIsWhatWasGiven(t *testing.T) {
	table := hostile()
	table.Pictures[sim.Ours].HitHBM[3] = math.NaN()
	page := writePage(t, []*sim.Table{table}, Meta{})
	_, data, ok := strings.Cut(page, `<script type="application/json" id="data">`)
	data, _, closed := strings.Cut(data, "</script>")
	if !ok || !closed {
		t.Fatal("no data")
	}
	if strings.ContainsAny(data, "<>&") {
		t.Error("the data has what HTML could take for markup")
	}
	var d struct {
		Policies  []plotPolicy
		Scenarios []struct {
			Rows []struct {
				P   int
				Pic *struct{ TTFT, HBM []*float64 }
			}
		}
	}
	if err := json.Unmarshal([]byte(data), &d); err != nil {
		t.Fatal(err)
	}
	if len(d.Policies) != len(table.Policies) || len(d.Scenarios[0].Rows) != len(table.Policies) {
		t.Fatalf("%d policies and %d rows, want %d", len(d.Policies), len(d.Scenarios[0].Rows), len(table.Policies))
	}
	for _, r := range d.Scenarios[0].Rows {
		name := d.Policies[r.P].Name
		if table.Policies[name] == nil {
			t.Errorf("policy %q is not as given", name)
		}
		if (r.Pic == nil) != (table.Pictures[name] == nil) {
			t.Errorf("%q has a picture: %v", name, r.Pic != nil)
		}
		if name == sim.Ours && (r.Pic.HBM[3] != nil || r.Pic.HBM[4] == nil || len(r.Pic.TTFT) != 201) {
			t.Errorf("a window without a number is not a gap")
		}
	}
}

func TestPageIsTheSameBytesEveryTime(t *testing.T) {
	first := writePage(t, []*sim.Table{madeUp("x", 12, 3)}, Meta{})
	for range 3 {
		if writePage(t, []*sim.Table{madeUp("x", 12, 3)}, Meta{}) != first {
			t.Fatal("two writings differ")
		}
	}
}

func TestLooksTellPoliciesApart(t *testing.T) {
	looks := newLooks(suite(len(peers), 1))
	seen := make(map[[2]int]string)
	for _, p := range looks {
		key := [2]int{p.Hue, p.Dash}
		if other, ok := seen[key]; ok {
			t.Errorf("%s looks like %s", p.Name, other)
		}
		seen[key] = p.Name
		if (p.Hue == 0) != (p.Name == sim.Ours) {
			t.Errorf("%s has hue %d", p.Name, p.Hue)
		}
	}
	if looks[0].Name != sim.Ours {
		t.Errorf("first is %s, want ours", looks[0].Name)
	}
}

func TestThinKeepsExtremes(t *testing.T) {
	p := &sim.Picture{WindowSeconds: 10}
	for i := range 5000 {
		p.LoadMin, p.LoadMean, p.LoadMax = append(p.LoadMin, 0.4), append(p.LoadMean, 0.5), append(p.LoadMax, 0.6)
		if i == 4321 {
			p.LoadMin[i], p.LoadMax[i] = 0, 1
		}
	}
	out := newPlotPicture(p)
	if len(out.Min) > points || slices.Min(out.Min) != 0 || slices.Max(out.Max) != 1 {
		t.Errorf("%d points from %v to %v, want at most %d from 0 to 1", len(out.Min), slices.Min(out.Min), slices.Max(out.Max), points)
	}
	if got, want := float64(out.Window)*float64(len(out.Min)), 50000.0; math.Abs(got-want) > float64(out.Window) {
		t.Errorf("the series last %v s, want %v", got, want)
	}
}

func BenchmarkWriteHTML(b *testing.B) {
	tables := suite(len(peers), 10)
	for b.Loop() {
		if err := WriteHTML(io.Discard, tables, Meta{}); err != nil {
			b.Fatal(err)
		}
	}
}
