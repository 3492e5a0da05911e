package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
)

var update = flag.Bool("update", false, "rewrite goldens")

// hashes differ whenever a default does, which is not what these cases are about.
var hashes = regexp.MustCompile(`\b[0-9a-f]{16}\b`)

// Each file of testdata is one run of the binary: its comment holds variables
// (NAME=value) and the command line, then come files, and what it printed.
// Lines of settings that have their default are left out.
func TestCommandLines(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no cases:", err)
	}
	for _, name := range files {
		golden, err := filepath.Abs(name)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			t.Chdir(t.TempDir())
			var args []string
			for _, line := range strings.Split(strings.TrimSpace(string(archive.Comment)), "\n") {
				if command, ok := strings.CutPrefix(line, "rhizome "); ok {
					args = strings.Fields(command)
				} else if name, value, ok := strings.Cut(line, "="); ok {
					t.Setenv(name, value)
				}
			}
			kept := archive.Files[:0]
			for _, f := range archive.Files {
				if f.Name == "printed" {
					continue
				}
				kept = append(kept, f)
				if err := os.WriteFile(f.Name, f.Data, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			var out, errs bytes.Buffer
			code := run(t.Context(), args, &out, &errs)
			printed := hashes.ReplaceAllString(withoutDefaults(out.String()), "HASH")
			printed = fmt.Sprintf("%sexit %d\n%s", printed, code, errs.String())
			if strings.Contains(printed, "s3cret") {
				t.Errorf("a secret is printed:\n%s", printed)
			}
			archive.Files = append(kept, txtar.File{Name: "printed", Data: []byte(printed)})
			got := txtar.Format(archive)
			if *update {
				if err := os.WriteFile(golden, got, 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want) {
				t.Errorf("printed (rewrite with: go test ./cmd/rhizome -run TestCommandLines -update)\n%s\nwant\n%s", got, want)
			}
		})
	}
}

func withoutDefaults(out string) string {
	var b strings.Builder
	for _, line := range strings.SplitAfter(out, "\n") {
		if !strings.HasSuffix(line, "# default\n") && !strings.HasPrefix(line, "  ") || strings.Contains(line, "#") && !strings.HasSuffix(line, "# default\n") {
			b.WriteString(regexp.MustCompile(`  +#`).ReplaceAllString(line, "  #"))
		}
	}
	return b.String()
}

func TestCheckConfigForPrograms(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile("good.yaml", []byte("grace: 1s\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("bad.yaml", []byte("grace: 1s\ngarce: 2s\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	type answer struct {
		OK       bool
		Hash     string
		Settings []struct{ Key, Value, From, At string }
		Problems []struct {
			From, Name, Key, Message string
			Line, Column             int
		}
	}
	check := func(file string) (a answer, code int) {
		var out, errs bytes.Buffer
		code = run(t.Context(), []string{"check-config", "--json", file}, &out, &errs)
		if err := json.Unmarshal(out.Bytes(), &a); err != nil || errs.Len() > 0 {
			t.Fatalf("%v in %s, and %s", err, out.String(), errs.String())
		}
		return a, code
	}
	a, code := check("good.yaml")
	found := false
	for _, s := range a.Settings {
		found = found || s.Key == "grace" && s.Value == "1s" && s.From == "file" && s.At == "good.yaml:1:8"
	}
	if code != 0 || !a.OK || len(a.Hash) != 16 || !found {
		t.Errorf("good: exit %d, %+v", code, a)
	}
	a, code = check("bad.yaml")
	if code != 1 || a.OK || len(a.Problems) != 1 || a.Problems[0].Line != 2 || a.Problems[0].Column != 1 || !strings.Contains(a.Problems[0].Message, "did you mean grace?") {
		t.Errorf("bad: exit %d, %+v", code, a)
	}
}

func TestPrintExampleIsTheFileInTheTree(t *testing.T) {
	want, err := os.ReadFile("../../rhizome.example.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	if code := run(t.Context(), []string{"check-config", "--print-example"}, &out, &errs); code != 0 || !bytes.Equal(out.Bytes(), want) {
		t.Errorf("exit %d, %s; the example differs from what is printed: go generate ./config", code, errs.String())
	}
}
