package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// What the examples print is held against files: the numbers in them are those
// that package cost tests, the text is what people read.
func TestExamplesPrintTheirTables(t *testing.T) {
	for _, name := range []string{"article", "tiers"} {
		want, err := os.ReadFile(filepath.Join("testdata", "example-"+name+".txt"))
		if err != nil {
			t.Fatal(err)
		}
		var out, errs bytes.Buffer
		if code := run(t.Context(), []string{"explain", "--example", name}, &out, &errs); code != 0 {
			t.Fatalf("%s: exit %d: %s", name, code, errs.String())
		}
		if !bytes.Equal(out.Bytes(), want) {
			t.Errorf("%s prints\n%s\nwant\n%s", name, out.String(), want)
		}
	}
	var out, errs bytes.Buffer
	if code := run(t.Context(), []string{"explain", "x", "--example", "tiers"}, &out, &errs); code != 1 {
		t.Errorf("an id and an example: exit %d", code)
	}
}
