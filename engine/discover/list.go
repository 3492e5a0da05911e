package discover

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"github.com/rhizome-router/rhizome/engine"
)

// MaxListBytes bounds a list of workers in a file.
const MaxListBytes = 16 << 20

// ParseList reads a list of workers as YAML or JSON: each item a mapping with
// the keys of engine.Spec, or one line of text as --worker takes it. The list
// may be under the key workers. An empty list is [], not an empty text, which
// is what a file has while it is being written.
func ParseList(text []byte) ([]engine.Spec, error) {
	if len(text) > MaxListBytes {
		return nil, fmt.Errorf("more than %d bytes are not read", MaxListBytes)
	}
	body, err := parse(text)
	if err != nil {
		return nil, fmt.Errorf("no list of workers: %w", err)
	}
	var under struct {
		Workers ast.Node `yaml:"workers"`
	}
	if strict(body, &under) == nil && under.Workers != nil {
		body = under.Workers
	}
	list, ok := body.(*ast.SequenceNode)
	switch {
	case !ok:
		return nil, errors.New("no list of workers: want a dash before each, or [] for none")
	case len(list.Values) > MaxWorkers:
		return nil, fmt.Errorf("%d workers: at most %d are taken", len(list.Values), MaxWorkers)
	}
	specs := make([]engine.Spec, 0, len(list.Values))
	names := make(map[string]int, len(list.Values))
	for i, node := range list.Values {
		spec, err := specOf(node)
		if err != nil {
			return nil, fmt.Errorf("workers[%d]: %w", i, err)
		}
		if first, twice := names[spec.Name()]; twice {
			return nil, fmt.Errorf("workers[%d]: this is the same worker as workers[%d]: %s", i, first, spec.Name())
		}
		names[spec.Name()] = i
		specs = append(specs, spec)
	}
	return specs, nil
}

// ParseSpec reads one worker as ParseList reads an item.
func ParseSpec(text []byte) (engine.Spec, error) {
	body, err := parse(text)
	if err != nil {
		return engine.Spec{}, fmt.Errorf("no worker: %w", err)
	}
	return specOf(body)
}

// specOf reads one worker. A secret is not read from a file or a variable here,
// as the configuration does: whoever may name workers need not be one who may
// read those.
func specOf(node ast.Node) (engine.Spec, error) {
	var line string
	if strict(node, &line) == nil && line != "" {
		return engine.ParseSpec(line)
	}
	type fields engine.Spec // has the fields, but no UnmarshalText
	var f fields
	if _, ok := node.(*ast.MappingNode); !ok {
		if _, ok := node.(*ast.MappingValueNode); !ok {
			return engine.Spec{}, errors.New("want a mapping of keys, or a line of text as --worker takes it")
		}
	}
	if err := strict(node, &f); err != nil {
		return engine.Spec{}, err
	}
	if strings.HasPrefix(f.Token, "file:") || strings.HasPrefix(f.Token, "env:") {
		return engine.Spec{}, errors.New("token: file: and env: are followed in the configuration alone: write the token itself, or name the worker there")
	}
	return engine.Spec(f).Canonical()
}

// errYAML says that a text can't be read. It quotes nothing: where a text is
// broken a token may stand.
var errYAML = errors.New("this is no YAML or JSON that can be read")

// strict reads a node into v; the error quotes nothing but keys.
func strict(node ast.Node, v any) (err error) {
	defer recovered(&err)
	if err := yaml.NodeToValue(node, v, yaml.Strict()); err != nil {
		if e := new(yaml.UnknownFieldError); errors.As(err, &e) {
			return errors.New(e.Message)
		}
		return errYAML
	}
	return nil
}

// recovered makes an error of a panic: the parser is foreign code on foreign
// bytes.
func recovered(err *error) {
	if p := recover(); p != nil {
		*err = errYAML
	}
}

// Limits of nesting: a list of mappings needs two levels.
const (
	maxDepth  = 8
	maxColumn = 256
)

// parse returns the body of the one document of a text. What a list of workers
// needs is read, and nothing that could make much of little or go round in
// circles: no anchors, aliases, merges or tags, and no deep nesting.
func parse(text []byte) (body ast.Node, err error) {
	defer recovered(&err)
	if !utf8.Valid(text) {
		return nil, errYAML
	}
	tokens := lexer.Tokenize(string(text))
	flow, line, dashes := 0, 0, 0
	for _, t := range tokens {
		if t.Position == nil {
			return nil, errYAML
		}
		if t.Position.Line != line {
			line, dashes = t.Position.Line, 0
		}
		switch t.Type {
		case token.AnchorType, token.AliasType, token.MergeKeyType, token.TagType, token.DirectiveType:
			return nil, fmt.Errorf("line %d: anchors, aliases, merges and tags are not read here", t.Position.Line)
		case token.SequenceStartType, token.MappingStartType:
			flow++
		case token.SequenceEndType, token.MappingEndType:
			flow--
		case token.SequenceEntryType, token.MappingKeyType:
			dashes++
		}
		block := t.Type == token.MappingValueType || t.Type == token.SequenceEntryType
		if flow > maxDepth || flow == 0 && (dashes > maxDepth || block && t.Position.Column > maxColumn) {
			return nil, fmt.Errorf("line %d: nested too deep", t.Position.Line)
		}
	}
	file, err := parser.Parse(tokens, 0)
	if err != nil {
		return nil, errYAML
	}
	for _, doc := range file.Docs {
		switch {
		case doc.Body == nil:
		case body != nil:
			return nil, errors.New("there is a second document: want one")
		default:
			body = doc.Body
		}
	}
	if body == nil {
		return nil, errors.New("there is nothing")
	}
	return body, nil
}
