package config

import (
	"bufio"
	_ "embed"
	"fmt"
	"io"
	"path"
	"reflect"
	"regexp"
	"strings"
)

// fieldDocs holds the doc comments of all settings, taken from the sources of
// the structs: a binary doesn't have them.
//
//go:generate go test -run TestFieldDocs|TestExample -update .
//go:embed fielddocs.txt
var fieldDocs string

// docName is the name of a field's doc comment: "gateway.Config.Listen".
func docName(t reflect.Type, f reflect.StructField) string {
	return path.Base(t.PkgPath()) + "." + t.Name() + "." + f.Name
}

// docs returns the doc comments by name.
func docs() map[string]string {
	all := make(map[string]string)
	for _, part := range strings.Split(fieldDocs, "\n## ")[1:] {
		name, text, _ := strings.Cut(part, "\n")
		all[name] = strings.TrimSpace(text)
	}
	return all
}

// capital matches the Go names in a doc comment.
var capital = regexp.MustCompile(`\b[A-Z][A-Za-z0-9]*\b`)

// docText is a field's doc comment in the words of the document: with the keys
// of the field and its neighbours instead of their Go names.
func docText(all map[string]string, t reflect.Type, f reflect.StructField) string {
	text := all[docName(t, f)]
	if rest, ok := strings.CutPrefix(text, f.Name+" "); ok {
		text = key(f) + " " + rest
	}
	return capital.ReplaceAllStringFunc(text, func(word string) string {
		if strings.ToUpper(word) == word {
			return word // URL, TLS: more likely the thing than the field
		}
		if other, ok := t.FieldByName(word); ok && key(other) != "" {
			return key(other)
		}
		return word
	})
}

// WriteExample writes a document that sets every setting to its default, with
// its doc comment above it.
func WriteExample(w io.Writer) error {
	b := bufio.NewWriter(w)
	fmt.Fprint(b, exampleHead)
	e := &example{b, docs()}
	def := Default()
	e.section(reflect.ValueOf(def), "", traits{})
	return b.Flush()
}

const exampleHead = `# The configuration of Rhizome: every setting with its default.
#
#   rhizome serve --config rhizome.yaml       runs by it and follows its changes
#   rhizome check-config rhizome.yaml         says what is wrong with it, or what is in force and from where
#
# Leave out what should stay as it is. A variable RHIZOME_GATEWAY_LISTEN overrides gateway.listen, and so on.
# Durations have units (500ms, 5s, 10m), sizes too (64 MiB, 1.5 GiB). Secrets may be file:PATH or env:NAME.
# Settings marked [restart] can't change while the router runs.
`

type example struct {
	*bufio.Writer
	docs map[string]string
}

func (e *example) section(v reflect.Value, margin string, tr traits) {
	for _, f := range fields(v.Type()) {
		name, mine := key(f.StructField), tr.with(f.StructField)
		text := docText(e.docs, f.in, f.StructField)
		if mine.fixed && !tr.fixed {
			text += " [restart]"
		}
		fmt.Fprintln(e)
		e.comment(margin, text)
		if isSection(f.Type) {
			fmt.Fprintf(e, "%s%s:\n", margin, name)
			e.section(v.FieldByIndex(f.Index), margin+indent, mine)
			continue
		}
		p := printer{}
		p.value(v.FieldByIndex(f.Index), Setting{}, 0, mine)
		fmt.Fprintf(e, "%s%s: %s\n", margin, name, p.lines[0].Value)
		e.item(f.Type, margin+indent)
	}
}

// item says what an item of a list or a map of structs may have, or a struct
// in one.
func (e *example) item(t reflect.Type, margin string) {
	if t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
		t = t.Elem()
	}
	if !isSection(t) {
		return
	}
	for _, f := range fields(t) {
		e.comment(margin, fmt.Sprintf("%s (%s): %s", key(f.StructField), kindName(f.Type, traits{}.with(f.StructField)), docText(e.docs, f.in, f.StructField)))
		e.item(f.Type, margin+indent)
	}
}

// kindName says what a value of a type looks like.
func kindName(t reflect.Type, tr traits) string {
	if k := t.Kind(); k == reflect.Slice {
		return "list"
	} else if k == reflect.Map || k == reflect.Struct && !isText(t) {
		return "mapping"
	}
	return want(slot{v: reflect.New(t).Elem(), traits: tr})
}

// maxComment is the width of the comments.
const maxComment = 110

// comment writes text as comment lines.
func (e *example) comment(margin, text string) {
	line := margin + "#"
	for _, word := range strings.Fields(text) {
		if len(line)+1+len(word) > maxComment {
			fmt.Fprintln(e, line)
			line = margin + "#"
		}
		line += " " + word
	}
	fmt.Fprintln(e, line)
}
