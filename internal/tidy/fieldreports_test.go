package tidy

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	reportTest = regexp.MustCompile(`(?m)^func (TestBR\d\d_\w+)\(`)
	namedTest  = regexp.MustCompile("`(TestBR\\d\\d_\\w+)`")
	reportRow  = regexp.MustCompile(`(?m)^\| (BR-\d\d) \|.*$`)
)

// TestFieldReportsAreListed: docs/field-reports.md names every test of a report,
// each in the row of its own, and no test that isn't there. A report without a
// test says what it waits for.
func TestFieldReportsAreListed(t *testing.T) {
	text, err := os.ReadFile("../../docs/field-reports.md")
	if err != nil {
		t.Fatal(err)
	}
	there := make(map[string]bool)
	err = filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && strings.HasPrefix(d.Name(), ".") && len(d.Name()) > 2, d.IsDir() && d.Name() == "testdata":
			return filepath.SkipDir
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		source, err := os.ReadFile(path)
		for _, m := range reportTest.FindAllStringSubmatch(string(source), -1) {
			there[m[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	rows := reportRow.FindAllStringSubmatch(string(text), -1)
	if len(rows) != 46 {
		t.Errorf("%d reports are listed, there are 46", len(rows))
	}
	listed := make(map[string]bool)
	for _, row := range rows {
		own := "TestBR" + strings.TrimPrefix(row[1], "BR-") + "_"
		tests := namedTest.FindAllStringSubmatch(row[0], -1)
		has := false
		for _, m := range tests {
			has = has || strings.HasPrefix(m[1], own)
			listed[m[1]] = true
			if !there[m[1]] {
				t.Errorf("%s: there is no %s", row[1], m[1])
			}
		}
		if !has && !strings.Contains(row[0], "waits for") {
			t.Errorf("%s has no test of its own and does not say what it waits for", row[1])
		}
	}
	for name := range there { // order-free: each by itself
		if !listed[name] {
			t.Errorf("%s is not in docs/field-reports.md: name it in the row of BR-%s", name, name[6:8])
		}
	}
}
