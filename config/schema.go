package config

import (
	"encoding"
	"reflect"
	"slices"
	"strings"
	"time"
)

// traits are what a field's tag, or that of a struct around it, says of it.
type traits struct {
	fixed, secret, zero, off bool
	bytes                    bool // counts bytes: its Go name says so
}

// with returns the traits of a field inside something with traits t.
func (t traits) with(f reflect.StructField) traits {
	words := strings.Split(f.Tag.Get("config"), ",")
	t.fixed = t.fixed || slices.Contains(words, "fixed")
	t.secret = t.secret || slices.Contains(words, "secret")
	t.zero = t.zero || slices.Contains(words, "zero")
	t.off = t.off || slices.Contains(words, "off")
	t.bytes = strings.HasSuffix(f.Name, "Bytes") && (f.Type.Kind() == reflect.Int64 || f.Type.Kind() == reflect.Int)
	return t
}

// key returns the YAML key of a field; "" for one that is no setting.
func key(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
	if name == "-" || !f.IsExported() {
		return ""
	}
	return name
}

// field is one setting of a struct, or the section that it holds.
type field struct {
	reflect.StructField // its Index leads there from the struct that was asked for
	in                  reflect.Type
}

// fields lists the settings of a struct in their order, with those of structs
// that are inlined in it.
func fields(t reflect.Type) []field {
	var all []field
	for i := range t.NumField() {
		f := t.Field(i)
		if _, opts, _ := strings.Cut(f.Tag.Get("yaml"), ","); opts == "inline" && f.IsExported() {
			for _, g := range fields(f.Type) {
				g.Index = append(slices.Clone(f.Index), g.Index...)
				all = append(all, g)
			}
			continue
		}
		if key(f) != "" {
			all = append(all, field{f, t})
		}
	}
	return all
}

// setting is one field of Config, however deep, that is not a struct: a value,
// or a whole list or map.
type setting struct {
	path  string // "gateway.admin.listen"
	index []int  // for reflect.Value.FieldByIndex
	typ   reflect.Type
	traits
}

// schema lists the settings in the order of the document.
func schema() []setting {
	var all []setting
	var walk func(t reflect.Type, path string, index []int, outer traits)
	walk = func(t reflect.Type, path string, index []int, outer traits) {
		for _, f := range fields(t) {
			here, at, mine := join(path, key(f.StructField)), append(slices.Clone(index), f.Index...), outer.with(f.StructField)
			if isSection(f.Type) {
				walk(f.Type, here, at, mine)
				continue
			}
			all = append(all, setting{here, at, f.Type, mine})
		}
	}
	walk(reflect.TypeFor[Config](), "", nil, traits{})
	return all
}

// secretKeys returns the keys whose values are secret, of items of lists and
// maps too.
func secretKeys() []string {
	var names []string
	var walk func(reflect.Type, traits)
	walk = func(t reflect.Type, outer traits) {
		for t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
			t = t.Elem()
		}
		if !isSection(t) {
			return
		}
		for _, f := range fields(t) {
			mine := outer.with(f.StructField)
			if name := key(f.StructField); mine.secret && !slices.Contains(names, name) {
				names = append(names, name)
			}
			walk(f.Type, mine)
		}
	}
	walk(reflect.TypeFor[Config](), traits{})
	return names
}

// isSection reports whether a type is read from a mapping of keys.
func isSection(t reflect.Type) bool { return t.Kind() == reflect.Struct }

// isText reports whether a type knows how to read itself from text.
func isText(t reflect.Type) bool {
	return reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

var durationType = reflect.TypeFor[time.Duration]()

// envName is the variable that overrides a setting.
func envName(path string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(path, ".", "_"))
}

const envPrefix = "RHIZOME_"

// join returns the path of a key below another.
func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}
