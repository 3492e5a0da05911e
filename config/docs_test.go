package config

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite goldens and what is generated")

// golden compares got with a file, or rewrites it.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(name, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is not what it should be; rewrite it with: go test ./config -update\n%s", name, cmp.Diff(string(want), string(got)))
	}
}

// structs lists the struct types that a document is read into.
func structs() []reflect.Type {
	var all []reflect.Type
	var walk func(reflect.Type)
	walk = func(t reflect.Type) {
		for t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
			t = t.Elem()
		}
		if t.Kind() != reflect.Struct || slices.Contains(all, t) {
			return
		}
		all = append(all, t)
		for _, f := range fields(t) {
			if f.in != t && !slices.Contains(all, f.in) {
				all = append(all, f.in)
			}
			walk(f.Type)
		}
	}
	walk(reflect.TypeFor[Config]())
	return all
}

const modulePath = "github.com/rhizome-router/rhizome/"

// The doc comments that the example shows are those of the sources, and every
// setting has one.
func TestFieldDocs(t *testing.T) {
	docs := make(map[string]string)
	for _, typ := range structs() {
		for name, text := range sourceDocs(t, typ) {
			docs[name] = text
		}
	}
	var b bytes.Buffer
	fmt.Fprintln(&b, "The doc comments of all settings, by package.Type.Field. Generated: go generate ./config")
	for _, name := range slices.Sorted(maps.Keys(docs)) {
		fmt.Fprintf(&b, "\n## %s\n%s\n", name, docs[name])
	}
	golden(t, "fielddocs.txt", b.Bytes())
	if *update {
		fieldDocs = b.String() // for the example, which is written next
	}
}

// sourceDocs reads the doc comments of a struct's fields.
func sourceDocs(t *testing.T, typ reflect.Type) map[string]string {
	t.Helper()
	dir := filepath.Join("..", strings.TrimPrefix(typ.PkgPath(), modulePath))
	pkgs, err := parser.ParseDir(token.NewFileSet(), dir, func(f fs.FileInfo) bool { return !strings.HasSuffix(f.Name(), "_test.go") }, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	docs := make(map[string]string)
	for _, pkg := range pkgs {
		ast.Inspect(pkg, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok || spec.Name.Name != typ.Name() {
				return true
			}
			for _, f := range spec.Type.(*ast.StructType).Fields.List {
				text := f.Doc.Text()
				if text == "" {
					text = f.Comment.Text()
				}
				for _, name := range f.Names {
					field, _ := typ.FieldByName(name.Name)
					if key(field) != "" {
						docs[docName(typ, field)] = strings.Join(strings.Fields(text), " ")
					}
				}
			}
			return false
		})
	}
	for i := range typ.NumField() {
		f := typ.Field(i)
		if f.IsExported() && f.Tag.Get("yaml") == "" {
			t.Errorf("%s has no yaml tag: name its key, or - for none", docName(typ, f))
		}
		if key(f) != "" && docs[docName(typ, f)] == "" {
			t.Errorf("%s has no doc comment", docName(typ, f))
		}
	}
	return docs
}

func TestEveryVariableNamesOneSetting(t *testing.T) {
	seen := make(map[string]string)
	for _, s := range schema() {
		name := envName(s.path)
		if other, twice := seen[name]; twice {
			t.Errorf("%s names both %s and %s", name, other, s.path)
		}
		seen[name] = s.path
		if serviceLink.MatchString(name) {
			t.Errorf("%s looks like a variable that Kubernetes adds", name)
		}
	}
}

// The example at the root of the tree is what the structs give, and reading it
// changes nothing.
func TestExample(t *testing.T) {
	const name = "../rhizome.example.yaml"
	var b bytes.Buffer
	if err := WriteExample(&b); err != nil {
		t.Fatal(err)
	}
	golden(t, name, b.Bytes())
	loaded, err := Source{File: name}.Load()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Default(), loaded.Config, equalEmpty); diff != "" {
		t.Errorf("the example is not the defaults:\n%s", diff)
	}
	set := make(map[string]bool)
	for _, s := range loaded.Settings() {
		if s.From != FromFile {
			t.Errorf("the example does not show %s", s.Key)
		}
		set[s.Key] = true
	}
	for _, s := range schema() {
		if !set[s.path] {
			t.Errorf("the listing does not show %s", s.path)
		}
	}
}

// equalEmpty takes an empty list for none.
var equalEmpty = cmp.FilterValues(func(a, b any) bool {
	x, y := reflect.ValueOf(a), reflect.ValueOf(b)
	return x.IsValid() && y.IsValid() && x.Type() == y.Type() && (x.Kind() == reflect.Slice || x.Kind() == reflect.Map) && x.Len() == 0 && y.Len() == 0
}, cmp.Comparer(func(a, b any) bool { return true }))
