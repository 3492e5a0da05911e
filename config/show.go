package config

import (
	"bufio"
	"crypto/pbkdf2"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// masked stands for a secret that is set.
const masked = "***"

// Setting is one value in force, as it may be shown.
type Setting struct {
	Key string `json:"key"`
	// Value is as it would be written in the document; *** for a secret.
	Value string `json:"value"`
	// From is default, file, env or flag, and At the place: file:line:column,
	// the variable or the flag.
	From From   `json:"from"`
	At   string `json:"at,omitempty"`
	// Fixed says that a change needs a restart.
	Fixed bool `json:"fixed,omitempty"`

	label string // what stands before the value, indented
	doc   string // which doc comment tells of it
	typ   reflect.Type
}

// Settings lists what is in force in the order of the document, without
// secrets.
func (l *Loaded) Settings() []Setting {
	p := printer{origins: l.origins}
	p.fields(reflect.ValueOf(l.Config), "", 0, traits{}, "", false)
	return slices.DeleteFunc(p.lines, func(s Setting) bool { return s.From == "" })
}

// WriteYAML writes what is in force as a document that says after each value
// where it came from. Secrets are masked, so it is for reading.
func (l *Loaded) WriteYAML(w io.Writer) error {
	p := printer{origins: l.origins}
	p.fields(reflect.ValueOf(l.Config), "", 0, traits{}, "", false)
	width := 0
	for _, s := range p.lines {
		width = max(width, min(maxAligned, utf8.RuneCountInString(s.label+s.Value)))
	}
	b := bufio.NewWriter(w)
	for _, s := range p.lines {
		line := s.label + s.Value
		if s.From == "" {
			fmt.Fprintln(b, strings.TrimRight(line, " "))
			continue
		}
		at := string(s.From)
		if s.At != "" {
			at = s.At
		}
		fmt.Fprintf(b, "%s%s  # %s\n", line, strings.Repeat(" ", max(0, width-utf8.RuneCountInString(line))), at)
	}
	return b.Flush()
}

// maxAligned is how far to the right the remarks are lined up.
const maxAligned = 56

// secretRounds is how often secrets are hashed for the hash of a configuration,
// which is shown: with all else known a weak one could be guessed from it, so
// that each guess has to cost something (here some milliseconds).
const secretRounds = 20_000

// hash is that of the settings, of secrets a costly one of their values.
func (l *Loaded) hash() (string, error) {
	p := printer{origins: l.origins}
	p.fields(reflect.ValueOf(l.Config), "", 0, traits{}, "", false)
	h := sha256.New()
	for _, s := range p.lines {
		if s.From != "" {
			fmt.Fprintf(h, "%q %q\n", s.Key, s.Value)
		}
	}
	if len(p.secrets) > 0 {
		costly, err := pbkdf2.Key(sha256.New, strings.Join(p.secrets, "\n"), []byte("rhizome configuration"), secretRounds, sha256.Size)
		if err != nil {
			return "", fmt.Errorf("hash the secrets of the configuration: %w", err)
		}
		h.Write(costly)
	}
	return hex.EncodeToString(h.Sum(nil))[:16], nil
}

// HashNumber is the Hash as a number that a metric can hold exactly.
func (l *Loaded) HashNumber() float64 {
	n, err := strconv.ParseUint(l.Hash[:12], 16, 64)
	if err != nil {
		return 0 // never: hash writes hex
	}
	return float64(n)
}

// printer turns a Config into lines; those of sections have no From.
type printer struct {
	origins map[string]origin
	lines   []Setting
	secrets []string // each with its key, quoted
}

const indent = "  "

// fields prints a struct's fields; dash stands before the first, sparse leaves
// out what isn't set.
func (p *printer) fields(v reflect.Value, path string, depth int, tr traits, dash string, sparse bool) {
	for _, f := range fields(v.Type()) {
		name, at := key(f.StructField), v.FieldByIndex(f.Index)
		if sparse && at.IsZero() {
			continue
		}
		label := strings.Repeat(indent, depth) + name + ": "
		if dash != "" {
			label, dash = dash+name+": ", ""
		}
		s := Setting{Key: join(path, name), label: label, doc: docName(f.in, f.StructField), typ: f.Type}
		p.value(at, s, depth, tr.with(f.StructField))
	}
	if dash != "" {
		p.lines = append(p.lines, Setting{Key: path, label: dash, Value: "{}"})
	}
}

// value prints one value; s is its line so far.
func (p *printer) value(v reflect.Value, s Setting, depth int, tr traits) {
	switch v.Kind() {
	case reflect.Struct:
		p.lines = append(p.lines, s)
		p.fields(v, s.Key, depth+1, tr, "", false)
	case reflect.Slice:
		p.list(v, s, depth, tr)
	case reflect.Map:
		p.mapping(v, s, depth, tr)
	default:
		text := formatScalar(v, tr)
		switch {
		case tr.secret && text != "":
			p.secrets = append(p.secrets, fmt.Sprintf("%q %q", s.Key, text))
			text = masked
			if ref := p.origins[s.Key].ref; ref != "" {
				text = ref
			}
			text = quoted(text)
		case v.Kind() == reflect.String:
			text = quoted(text)
		}
		p.leaf(text, s, tr)
	}
}

func (p *printer) list(v reflect.Value, s Setting, depth int, tr traits) {
	if v.Len() == 0 {
		p.leaf("[]", s, tr)
		return
	}
	p.lines = append(p.lines, s)
	for i := range v.Len() {
		item := Setting{Key: fmt.Sprintf("%s[%d]", s.Key, i), label: strings.Repeat(indent, depth+1) + "- "}
		if v.Index(i).Kind() == reflect.Struct {
			p.fields(v.Index(i), item.Key, depth+2, tr, item.label, true)
			continue
		}
		p.value(v.Index(i), item, depth+1, tr)
	}
}

func (p *printer) mapping(v reflect.Value, s Setting, depth int, tr traits) {
	if v.Len() == 0 {
		p.leaf("{}", s, tr)
		return
	}
	p.lines = append(p.lines, s)
	names := slices.SortedFunc(slices.Values(v.MapKeys()), func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
	for _, k := range names {
		item := Setting{Key: fmt.Sprintf("%s[%q]", s.Key, k.String()), label: strings.Repeat(indent, depth+1) + quoted(k.String()) + ": "}
		switch e := v.MapIndex(k); {
		case e.Kind() != reflect.Struct:
			p.value(e, item, depth+1, tr)
		case e.IsZero():
			p.leaf("{}", item, tr)
		default:
			p.lines = append(p.lines, item)
			p.fields(e, item.Key, depth+2, tr, "", true)
		}
	}
}

func (p *printer) leaf(text string, s Setting, tr traits) {
	o := p.from(s.Key)
	s.Value, s.From, s.Fixed = text, o.From, tr.fixed
	if o.From != FromDefault {
		s.At = o.String()
	}
	p.lines = append(p.lines, s)
}

// from is where the value at a path came from: it, or a text or override that
// stands for all below.
func (p *printer) from(path string) Origin {
	if o := p.origins[path]; o.given {
		return o.Origin
	}
	for {
		cut := strings.LastIndexAny(path, ".[")
		if cut < 0 {
			return Origin{From: FromDefault}
		}
		path = path[:cut]
		if o := p.origins[path]; o.whole {
			return o.Origin
		}
	}
}

// plain matches text that YAML reads as text without quotes.
var plain = regexp.MustCompile(`^[A-Za-z_/][A-Za-z0-9_./-]*(:[A-Za-z0-9_./-]+)*$`)

// quoted returns text as it must be written to be read as that text.
func quoted(s string) string {
	switch strings.ToLower(s) {
	case "", ".inf", ".nan", "true", "false", "null", "yes", "no", "on", "off", "y", "n":
		return strconv.Quote(s)
	}
	if plain.MatchString(s) {
		return s
	}
	return strconv.Quote(s)
}
