package tidy

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"
)

func TestHouse(t *testing.T) {
	pkgs, err := Load("../..")
	if err != nil {
		t.Fatal(err)
	}
	if len(pkgs) < 10 {
		t.Fatalf("only %d packages loaded", len(pkgs))
	}
	for _, p := range pkgs {
		for _, rule := range []func(*packages.Package) []string{Imports, Documented, Purity, GlobalRand} {
			for _, finding := range rule(p) {
				t.Error(finding)
			}
		}
	}
}

// The rules must be able to fail: each is shown a small module that breaks it.
func TestRulesFindWhatTheyForbid(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":         "module " + Module + "\n\ngo 1.26\n",
		"kv/kv.go":       "// Package kv is a stand-in.\npackage kv\n\nimport _ \"" + Module + "/clock\"\n",
		"clock/c.go":     "// Package clock is a stand-in.\npackage clock\n",
		"attic/a.go":     "// Package attic is no room.\npackage attic\n",
		"index/i.go":     "package index\n\nimport _ \"" + Module + "/route\"\n",
		"cmd/lab/m.go":   "// Command lab.\npackage main\n\nfunc main() {}\n",
		"gateway/g.go":   "// Package gateway draws.\npackage gateway\n\nimport \"math/rand/v2\"\n\nvar X = rand.IntN(3)\n",
		"route/r.go":     "// Package route is impure.\npackage route\n\nimport \"time\"\n\nfunc f(m map[int]int) time.Time {\n\tgo func() {}()\n\tfor range m {\n\t}\n\t// order-free: nothing happens\n\tfor range m {\n\t}\n\treturn time.Now()\n}\n\nvar _ = f\n",
		"cmd/lab/doc.go": "package main\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	pkgs, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, p := range pkgs {
		for _, rule := range []func(*packages.Package) []string{Imports, Documented, Purity, GlobalRand} {
			all = append(all, rule(p)...)
		}
	}
	found := strings.Join(all, "\n")
	for _, want := range []string{
		"kv imports clock", `"attic" is no room`, "index imports route, which is not above it", "index has 0 package comments",
		"gateway/g.go:6", "route/r.go:7: a pure package starts no goroutine", "route/r.go:8: a loop over a map",
		"route/r.go:13: a pure package does not use time.Now",
	} {
		if !strings.Contains(found, want) {
			t.Errorf("not found: %q in\n%s", want, found)
		}
	}
	if strings.Contains(found, "r.go:11") || strings.Contains(found, "cmd/lab") {
		t.Errorf("found too much:\n%s", found)
	}
}
