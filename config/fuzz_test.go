package config

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
)

// load reads a document as Source.Load does a file, without touching the disk.
func load(src []byte) (*Loaded, error) {
	return Source{}.load(func(l *loading) { l.parseFile("f.yaml", src) })
}

// Whatever the bytes, there is an error that tells something, or a Config that
// is valid and reads the same again when it is written down.
func FuzzLoad(f *testing.F) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range files {
		archive, err := txtar.ParseFile(name)
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range archive.Files {
			if file.Name == "c.yaml" {
				f.Add(file.Data)
			}
		}
	}
	example, err := os.ReadFile("../rhizome.example.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(example)
	for _, s := range []string{"", "\x00", "a: &a *a", "? ? ? x", "- - - -", "{{{", "[[[[", "<<: {<<: {}}", "\xff", "a: !!x y", "workers: [null]", "gateway: ~"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		if len(src) > MaxFileBytes {
			return
		}
		loaded, err := load(src)
		if err != nil {
			if strings.TrimSpace(err.Error()) == "" {
				t.Error("an error that says nothing")
			}
			return
		}
		if strings.Contains(string(src), "file:") || strings.Contains(string(src), "env:") || loaded.Config.Gateway.Admin.Token != "" {
			return // what is masked can't be read again
		}
		var b bytes.Buffer
		if err := loaded.WriteYAML(&b); err != nil {
			t.Fatal(err)
		}
		again, err := load(b.Bytes())
		if err != nil {
			t.Fatalf("what was written can't be read: %v\n%s", err, &b)
		}
		if !reflect.DeepEqual(loaded.Settings(), forgetPlaces(loaded, again)) {
			t.Errorf("what was written reads otherwise:\n%s", &b)
		}
	})
}

// forgetPlaces returns the settings of b with the places of a.
func forgetPlaces(a, b *Loaded) []Setting {
	theirs, mine := a.Settings(), b.Settings()
	for i := range mine {
		if i < len(theirs) {
			mine[i].From, mine[i].At = theirs[i].From, theirs[i].At
		}
	}
	return mine
}

// A parser of foreign bytes must not take for ever, nor all memory or stack.
func TestHostileDocuments(t *testing.T) {
	for name, src := range map[string]string{
		"brackets":  strings.Repeat("[", MaxFileBytes/64),
		"braces":    strings.Repeat("{a: ", MaxFileBytes/64),
		"dashes":    strings.Repeat("- ", MaxFileBytes/64),
		"questions": strings.Repeat("? ", MaxFileBytes/64),
		"anchors":   strings.Repeat("&a ", MaxFileBytes/64),
		"tags":      strings.Repeat("!a ", MaxFileBytes/64),
		"indents":   staircase(300),
		"aliases":   "workers: &w [" + strings.Repeat("*w,", 5_000) + "]",
		"laughs": "a: &a [x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b]\n" +
			"workers: [*c,*c,*c,*c,*c,*c,*c,*c]\n",
		"merges": "workers:\n- &a {<<: [" + strings.Repeat("*a,", 20) + "]}\n",
		"line":   "name: " + strings.Repeat("x", 1<<19),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := load([]byte(src))
			if err == nil && name != "line" {
				t.Fatal("accepted")
			}
			if err != nil && len(err.Error()) > 1<<16 {
				t.Errorf("the error is %d bytes long", len(err.Error()))
			}
		})
	}
}

func staircase(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strings.Repeat(" ", i) + "a:\n")
	}
	return b.String()
}
