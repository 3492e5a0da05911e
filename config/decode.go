package config

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// decoder reads a YAML tree into a Config and collects what is wrong. It goes
// by the Go types alone: a key without a field is a problem, and so is a value
// of another kind than its field's.
type decoder struct {
	at       func(*token.Token) Origin
	secret   func(text string) (string, error) // follows file: and env:
	problems []Problem
	origins  map[string]origin
	anchors  map[string]ast.Node
	nodes    int // seen so far
	// hidden is every place that was not read as something that may be shown.
	hidden []span
}

// origin is where the value at a path came from.
type origin struct {
	Origin
	given bool   // a value, a list or a map; else a section
	whole bool   // text that stands for all below
	ref   string // how a secret was referred to
}

// Limits of a document's shape.
const (
	maxNodes = 200_000 // with aliases followed
	maxChain = 16      // of aliases and merges
)

func (d *decoder) problem(at ast.Node, path, format string, args ...any) {
	d.problems = append(d.problems, Problem{Origin: d.at(first(at)), Key: path, Text: fmt.Sprintf(format, args...)})
}

// slot is where a node is read to.
type slot struct {
	path string
	v    reflect.Value
	def  reflect.Value // the default there; invalid inside lists and maps
	key  ast.Node      // the key before it, if there is one
	traits
}

// read reads a node into a slot.
func (d *decoder) read(n ast.Node, s slot) {
	n, ok := d.resolve(n, s.path)
	if !ok {
		return
	}
	if d.nodes++; d.nodes > maxNodes {
		if d.nodes == maxNodes+1 {
			d.problem(n, s.path, "the document is too large: more than %d values", maxNodes)
		}
		return
	}
	d.origins[s.path] = origin{Origin: d.at(first(n))}
	if _, isMapping := pairs(n); isMapping && s.key != nil {
		d.origins[s.path] = origin{Origin: d.at(first(s.key))}
	}
	text, isAScalar := scalar(n)
	switch {
	case s.v.Kind() == reflect.Struct && (!isAScalar || text.null || !isText(s.v.Type())):
		d.section(n, s)
	case s.v.Kind() == reflect.Slice:
		d.list(n, s)
	case s.v.Kind() == reflect.Map:
		d.mapping(n, s)
	case !isAScalar:
		d.hide(n)
		d.problem(n, s.path, "want %s, not a list or a mapping", want(s))
	default:
		d.value(n, text, s)
	}
}

// section reads a mapping into a struct; an empty one leaves all as it is.
func (d *decoder) section(n ast.Node, s slot) {
	if t, ok := scalar(n); ok && t.null {
		return
	}
	entries, ok := d.entries(n, s.path)
	if !ok {
		return
	}
	known := make(map[string]field)
	var names []string
	for _, f := range fields(s.v.Type()) {
		name := key(f.StructField)
		known[name], names = f, append(names, name)
	}
	for _, e := range entries {
		to, known := known[e.name]
		if !known {
			d.hide(e.value)
			d.problem(e.key, s.path, "unknown key %q%s", shownKey(e.name), hint(e.name, s.path, names))
			continue
		}
		f := slot{path: join(s.path, e.name), v: s.v.FieldByIndex(to.Index), key: e.key, traits: s.with(to.StructField)}
		if s.def.IsValid() {
			f.def = s.def.FieldByIndex(to.Index)
		}
		d.read(e.value, f)
	}
}

// hint says what an unknown key may have been meant to be.
func hint(name, path string, siblings []string) string {
	if near := suggest(name, siblings); near != "" {
		return fmt.Sprintf(": did you mean %s?", near)
	}
	for _, s := range schema() {
		if s.path == name || strings.HasSuffix(s.path, "."+name) {
			return fmt.Sprintf(": did you mean %s?", s.path)
		}
	}
	return ": known here are " + strings.Join(siblings, ", ")
}

// list reads a sequence into a slice, which it replaces.
func (d *decoder) list(n ast.Node, s slot) {
	seq, ok := n.(*ast.SequenceNode)
	if t, ok := scalar(n); ok && t.null {
		d.problem(n, s.path, "has no value: write [] for an empty list, or leave the key out")
		return
	}
	if !ok {
		d.hide(n)
		d.problem(n, s.path, "want a list: a dash before each of its items")
		return
	}
	list := reflect.MakeSlice(s.v.Type(), len(seq.Values), len(seq.Values))
	d.forget(s.path)
	for i, item := range seq.Values {
		d.read(item, slot{path: fmt.Sprintf("%s[%d]", s.path, i), v: list.Index(i), traits: s.traits})
	}
	d.give(s.path, false)
	s.v.Set(list)
}

// mapping reads a mapping into a map with keys of text, which it replaces.
func (d *decoder) mapping(n ast.Node, s slot) {
	if t, ok := scalar(n); ok && t.null {
		d.problem(n, s.path, "has no value: write {} for an empty mapping, or leave the key out")
		return
	}
	entries, ok := d.entries(n, s.path)
	if !ok {
		return
	}
	m := reflect.MakeMapWithSize(s.v.Type(), len(entries))
	d.forget(s.path)
	for _, e := range entries {
		v, path := reflect.New(s.v.Type().Elem()).Elem(), fmt.Sprintf("%s[%q]", s.path, e.name)
		d.read(e.value, slot{path: path, v: v, key: e.key, traits: s.traits})
		d.give(path, d.origins[path].whole)
		m.SetMapIndex(reflect.ValueOf(e.name).Convert(s.v.Type().Key()), v)
	}
	d.give(s.path, false)
	s.v.Set(m)
}

// value reads a scalar.
func (d *decoder) value(n ast.Node, t textNode, s slot) {
	if s.secret || !t.quoted && strings.Contains(t.text, ": ") { // the latter may hold another key's value
		d.hide(n)
	}
	kind := s.v.Kind()
	switch {
	case t.null:
		d.problem(n, s.path, "has no value: want %s, or leave the key out", want(s))
		return
	case kind == reflect.String && !t.quoted && t.typed:
		d.problem(n, s.path, "want text: put it in quotes")
		return
	case kind != reflect.String && t.quoted && kind != reflect.Struct:
		d.problem(n, s.path, "want %s: write it without quotes", want(s))
		return
	}
	if err := d.set(t.text, s); err != nil {
		d.problem(n, s.path, "%s", err)
		return
	}
	d.give(s.path, true)
}

// set reads text into a slot; the error doesn't show a secret.
func (d *decoder) set(text string, s slot) error {
	if s.secret {
		plain, err := d.secret(text)
		if err != nil {
			return err
		}
		if plain != text { // a reference, which may be shown
			o := d.origins[s.path]
			o.ref = text
			d.origins[s.path] = o
		}
		text = plain
	}
	before := reflect.ValueOf(s.v.Interface())
	if err := setScalar(s.v, text, s.traits); err != nil {
		if s.secret || s.v.Kind() == reflect.Struct {
			return err
		}
		shown, rest, _ := strings.Cut(text, ": ")
		if rest != "" {
			shown += hiding
		}
		return fmt.Errorf("%w, not %q", err, shorten(shown))
	}
	if s.def.IsValid() && !s.def.IsZero() && s.v.IsZero() && !s.zero && s.v.Kind() != reflect.Bool {
		s.v.Set(before)
		off := ""
		if s.off {
			off = ", or write off for no limit"
		}
		return fmt.Errorf("%q would mean the default, %s: leave the key out%s", text, formatScalar(s.def, s.traits), off)
	}
	return nil
}

// want says what kind of value a slot takes.
func want(s slot) string {
	t := s.v.Type()
	switch {
	case t == durationType:
		return "a duration"
	case s.bytes:
		return "a size in bytes"
	case isText(t):
		return "text"
	case s.v.CanInt(), s.v.CanUint():
		return "a whole number"
	case s.v.CanFloat():
		return "a number"
	case t.Kind() == reflect.Bool:
		return "true or false"
	}
	return "text"
}

// give notes that a path has a value of its own.
func (d *decoder) give(path string, whole bool) {
	o := d.origins[path]
	o.given, o.whole = true, whole
	d.origins[path] = o
}

// forget drops what was noted of what lies below a list or map that is replaced.
func (d *decoder) forget(path string) {
	for p := range d.origins {
		if strings.HasPrefix(p, path+"[") {
			delete(d.origins, p)
		}
	}
}

// entry is one key of a mapping with its value.
type entry struct {
	name  string
	key   ast.Node
	value ast.Node
}

// entries returns the keys of a mapping, merged ones (<<) included: what a
// mapping says itself goes before what it merges.
func (d *decoder) entries(n ast.Node, path string) ([]entry, bool) {
	return d.merged(n, path, 0)
}

func (d *decoder) merged(n ast.Node, path string, depth int) ([]entry, bool) {
	n, ok := d.resolve(n, path)
	if !ok {
		return nil, false
	}
	values, ok := pairs(n)
	if !ok {
		d.hide(n)
		d.problem(n, path, "want a mapping: keys with values, one a line, indented")
		return nil, false
	}
	var own, others []entry
	for _, p := range values {
		if p.Key.IsMergeKey() {
			if depth == maxChain {
				d.problem(p.Key, path, "merges are nested too deep")
				return nil, false
			}
			more, ok := d.merges(p.Value, path, depth+1)
			if !ok {
				return nil, false
			}
			others = append(others, more...)
			continue
		}
		if p.Start == nil || p.Start.Type != token.MappingValueType {
			d.hide(p.Key)
			d.problem(p.Key, path, "no colon and value come after what stands here")
			continue
		}
		name := keyText(p.Key)
		if i := slices.IndexFunc(own, func(e entry) bool { return e.name == name }); i >= 0 {
			d.hide(p.Value)
			d.problem(p.Key, join(path, shownKey(name)), "is given twice: first in line %d", first(own[i].key).Position.Line)
			continue
		}
		own = append(own, entry{name, p.Key, p.Value})
	}
	for _, e := range others {
		if !slices.ContainsFunc(own, func(o entry) bool { return o.name == e.name }) {
			own = append(own, e)
		}
	}
	return own, true
}

// merges returns the keys that << brings in: those of one mapping, or of each
// in a list.
func (d *decoder) merges(n ast.Node, path string, depth int) ([]entry, bool) {
	n, ok := d.resolve(n, path)
	if !ok {
		return nil, false
	}
	seq, isList := n.(*ast.SequenceNode)
	if !isList {
		return d.merged(n, path, depth)
	}
	var all []entry
	for _, item := range seq.Values {
		if d.nodes++; d.nodes > maxNodes {
			return nil, false
		}
		more, ok := d.merged(item, path, depth)
		if !ok {
			return nil, false
		}
		all = append(all, more...)
	}
	return all, true
}

// resolve follows anchors and aliases to what they stand for.
func (d *decoder) resolve(n ast.Node, path string) (ast.Node, bool) {
	start := n
	for range maxChain {
		switch x := n.(type) {
		case *ast.AnchorNode:
			n = x.Value
		case *ast.AliasNode:
			target, ok := d.anchors[first(x.Value).Value]
			if !ok {
				d.hide(x)
				d.problem(x, path, "no anchor (&) has the name that this alias (*) asks for: text that begins with * must be in quotes")
				return nil, false
			}
			n = target
		case *ast.TagNode:
			d.hide(x)
			d.problem(x, path, "tags (!) are not used here: text that begins with ! must be in quotes")
			return nil, false
		case nil:
			return nil, false
		default:
			return n, true
		}
	}
	d.problem(start, path, "aliases lead to aliases, or to themselves")
	return nil, false
}

// errAnchorTwice says that an anchor's name has two meanings.
var errAnchorTwice = errors.New("this anchor's name is used twice")

// Visit collects the anchors of a document; see ast.Walk.
func (d *decoder) Visit(n ast.Node) ast.Visitor {
	a, ok := n.(*ast.AnchorNode)
	if !ok {
		return d
	}
	name := first(a.Name).Value
	if _, twice := d.anchors[name]; twice {
		d.problem(a, "", "%s", errAnchorTwice)
	}
	d.anchors[name] = a.Value
	return d
}
