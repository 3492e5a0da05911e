package config

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// MaxFileBytes bounds a configuration file.
const MaxFileBytes = 1 << 20

// parseFile reads a document into the loading's Config.
func (l *loading) parseFile(name string, src []byte) {
	src = bytes.TrimPrefix(src, []byte("\xef\xbb\xbf"))
	lines := strings.Split(string(src), "\n")
	at := func(t *token.Token) Origin {
		o := Origin{From: FromFile, Name: name}
		if t.Position != nil {
			o.Line, o.Column = t.Position.Line, t.Position.Column
		}
		return o
	}
	body, comments, fault := parseYAML(src)
	if fault != nil {
		o := at(fault.at)
		// What is secret in a document that can't be read nobody knows: keys
		// alone are shown.
		var hidden []span
		if o.Line >= 1 && o.Line <= len(lines) {
			shown := strings.Index(lines[o.Line-1], ": ") + 1
			hidden = []span{{o.Line, utf8.RuneCountInString(lines[o.Line-1][:shown]) + 1, 0}}
		}
		l.problems = append(l.problems, Problem{Origin: o, Text: fault.text, excerpt: excerpt(lines, o.Line, o.Column, hidden)})
		return
	}
	d := l.decoder(at)
	d.hidden = comments
	d.document(body, slot{v: l.v, def: l.def})
	for i := range d.problems {
		if p := &d.problems[i]; d.nodes <= maxNodes {
			p.excerpt = excerpt(lines, p.Origin.Line, p.Origin.Column, d.hidden)
		}
	}
	l.problems = append(l.problems, d.problems...)
	l.excerpt = func(o Origin) string {
		if o.From != FromFile || d.nodes > maxNodes {
			return ""
		}
		return excerpt(lines, o.Line, o.Column, d.hidden)
	}
}

// document reads a whole document into a slot.
func (d *decoder) document(body ast.Node, s slot) {
	d.anchors = make(map[string]ast.Node)
	ast.Walk(d, body)
	d.read(body, s)
}

// decoder returns one that adds to what the loading has so far.
func (l *loading) decoder(at func(*token.Token) Origin) *decoder {
	return &decoder{at: at, origins: l.origins, secret: l.secret}
}

// syntaxFault is why a text is no YAML that we take.
type syntaxFault struct {
	at   *token.Token
	text string
}

// parseYAML returns the one document of a text, and where its comments are: a
// secret may be in one.
func parseYAML(src []byte) (body ast.Node, comments []span, fault *syntaxFault) {
	defer func() {
		// The parser is foreign code on foreign bytes: should it panic, the file
		// is refused like any other that can't be read.
		if p := recover(); p != nil {
			body, fault = nil, &syntaxFault{&nowhere, "this is no YAML that can be read"}
		}
	}()
	if !utf8.Valid(src) {
		return nil, nil, &syntaxFault{&nowhere, "the file is not UTF-8"}
	}
	tokens := lexer.Tokenize(string(src))
	if fault := checkDepth(tokens); fault != nil {
		return nil, nil, fault
	}
	for _, t := range tokens {
		if t.Type == token.CommentType && t.Position != nil {
			comments = append(comments, span{t.Position.Line, t.Position.Column, 0})
		}
	}
	body, fault = oneDocument(tokens)
	return body, comments, fault
}

// oneDocument parses what must be a single document.
func oneDocument(tokens token.Tokens) (body ast.Node, fault *syntaxFault) {
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		fault := &syntaxFault{&nowhere, "this is no YAML that can be read"}
		if e := yaml.Error(nil); errors.As(err, &e) {
			// Some messages quote the text, which may be secret.
			text, _, _ := strings.Cut(e.GetMessage(), "\"")
			fault.text = strings.TrimRight(text, ": ")
			if t := e.GetToken(); t != nil && t.Position != nil {
				fault.at = t
			}
		}
		return nil, fault
	}
	for _, doc := range file.Docs {
		switch {
		case doc.Body == nil:
		case body != nil:
			return nil, &syntaxFault{first(doc.Body), "a second document begins here: want one"}
		default:
			body = doc.Body
		}
	}
	if body == nil {
		return nil, &syntaxFault{&nowhere, "the file holds no setting: a file that sets nothing may be one that is still being written"}
	}
	return body, nil
}

// maxDepth bounds how deep a document is nested; the deepest setting is far
// less.
const maxDepth = 64

// checkDepth refuses what would make the parser recurse too deep.
func checkDepth(tokens token.Tokens) *syntaxFault {
	line, flow, onLine := 0, 0, 0
	for _, t := range tokens {
		if t.Position == nil {
			continue
		}
		if t.Position.Line != line {
			line, onLine = t.Position.Line, 0
		}
		switch t.Type {
		case token.SequenceStartType, token.MappingStartType:
			flow++
		case token.SequenceEndType, token.MappingEndType:
			flow--
		case token.SequenceEntryType, token.MappingKeyType, token.AnchorType, token.TagType:
			if flow == 0 {
				onLine++
			}
		}
		if flow > maxDepth || onLine > maxDepth || flow == 0 && t.Position.Column > maxIndent && t.Type == token.MappingValueType {
			return &syntaxFault{t, fmt.Sprintf("nested deeper than %d levels", maxDepth)}
		}
	}
	return nil
}

// maxIndent bounds the column of a key outside of brackets.
const maxIndent = 1024

// override reads what a variable or a flag says of one setting.
func (l *loading) override(s setting, from Origin, values []string) {
	d := l.decoder(func(*token.Token) Origin { return from })
	to := slot{path: s.path, v: l.v.FieldByIndex(s.index), def: l.def.FieldByIndex(s.index), traits: s.traits}
	d.origins[s.path] = origin{Origin: from}
	kind := s.typ.Kind()
	switch {
	case kind == reflect.Slice && !(len(values) == 1 && strings.HasPrefix(strings.TrimSpace(values[0]), "[")):
		d.items(values, to)
	case kind == reflect.Slice || kind == reflect.Map:
		body, _, fault := parseYAML([]byte(values[0]))
		if fault != nil {
			d.problems = append(d.problems, Problem{Origin: from, Key: s.path, Text: "want YAML in brackets: " + fault.text})
			break
		}
		d.document(body, to)
	default:
		if err := d.set(values[len(values)-1], to); err != nil {
			d.problems = append(d.problems, Problem{Origin: from, Key: s.path, Text: err.Error()})
		}
		d.give(s.path, true)
	}
	l.problems = append(l.problems, d.problems...)
}

// items reads a list whose items are texts.
func (d *decoder) items(values []string, s slot) {
	d.forget(s.path)
	list := reflect.MakeSlice(s.v.Type(), len(values), len(values))
	for i, text := range values {
		item := slot{path: fmt.Sprintf("%s[%d]", s.path, i), v: list.Index(i), traits: s.traits}
		d.origins[item.path] = origin{Origin: d.at(&nowhere)}
		if item.v.Kind() == reflect.Struct && !isText(item.v.Type()) {
			d.problems = append(d.problems, Problem{Origin: d.at(&nowhere), Key: s.path, Text: "want YAML in brackets: [{…}, …]"})
			return
		}
		if err := d.set(text, item); err != nil {
			d.problems = append(d.problems, Problem{Origin: d.at(&nowhere), Key: item.path, Text: err.Error()})
		}
		d.give(item.path, true)
	}
	d.give(s.path, false)
	s.v.Set(list)
}
