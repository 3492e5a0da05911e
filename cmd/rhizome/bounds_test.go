package main

import (
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

var quoted = regexp.MustCompile("`([A-Za-z0-9_.]+)`")

// TestBoundsAreAsTold: of each bound that docs/mesh.md lists, the setting is one,
// a replica in a mesh shows the metric, and the test is there.
func TestBoundsAreAsTold(t *testing.T) {
	doc := read(t, "../../docs/mesh.md")
	_, table, ok := strings.Cut(doc, "\n## Bounds\n")
	table, _, _ = strings.Cut(table, "\n## ")
	if !ok {
		t.Fatal("docs/mesh.md has no section on bounds")
	}
	var settings map[string]any
	if err := yaml.Unmarshal([]byte(read(t, "../../rhizome.example.yaml")), &settings); err != nil {
		t.Fatal(err)
	}
	shown, tests := metricsShown(t), testsThere(t)
	rows := 0
	for _, line := range strings.Split(table, "\n") {
		cells := strings.Split(line, "|")
		if len(cells) != 7 || strings.HasPrefix(line, "|---") || strings.Contains(line, "| bound |") {
			continue
		}
		rows++
		what, bound := strings.TrimSpace(cells[1]), strings.TrimSpace(cells[2])
		if bound != "fixed" && !isSetting(settings, strings.Trim(bound, "`")) {
			t.Errorf("%s: there is no setting %s", what, bound)
		}
		for column, there := range map[int]map[string]bool{4: shown, 5: tests} {
			names := quoted.FindAllStringSubmatch(cells[column], -1)
			if len(names) == 0 {
				t.Errorf("%s: nothing is named in column %d", what, column)
			}
			for _, name := range names {
				if !there[name[1]] {
					t.Errorf("%s: there is no %s", what, name[1])
				}
			}
		}
	}
	if rows < 20 {
		t.Errorf("%d bounds are listed", rows)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// isSetting reports whether a path of keys leads to a value.
func isSetting(settings map[string]any, path string) bool {
	first, rest, more := strings.Cut(path, ".")
	value, ok := settings[first]
	if !more {
		_, section := value.(map[string]any)
		return ok && !section
	}
	inner, ok := value.(map[string]any)
	return ok && isSetting(inner, rest)
}

// metricsShown are the names of the metrics of a replica in a mesh.
func metricsShown(t *testing.T) map[string]bool {
	t.Helper()
	c := newCluster(t, 1, 1)
	r, err := http.Get(c.replicas[0].admin + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	shown := make(map[string]bool)
	for _, m := range regexp.MustCompile(`(?m)^(rhizome_\w+)`).FindAllStringSubmatch(string(text), -1) {
		shown[m[1]] = true
	}
	return shown
}

// testsThere are the names of all tests.
func testsThere(t *testing.T) map[string]bool {
	t.Helper()
	there := make(map[string]bool)
	name := regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)`)
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (len(d.Name()) > 2 && d.Name()[0] == '.' || d.Name() == "testdata" || d.Name() == "node_modules"):
			return filepath.SkipDir
		case strings.HasSuffix(path, "_test.go"):
			for _, m := range name.FindAllStringSubmatch(read(t, path), -1) {
				there[m[1]] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return there
}
