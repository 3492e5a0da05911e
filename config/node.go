package config

import (
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// textNode is what stands at a scalar.
type textNode struct {
	text   string
	quoted bool // in quotes, or a block of text
	typed  bool // YAML takes it for a number, a truth value or the like
	null   bool
}

// scalar returns what stands at a node, if it is a scalar.
func scalar(n ast.Node) (textNode, bool) {
	switch x := n.(type) {
	case *ast.StringNode:
		quoted := x.Token.Type == token.SingleQuoteType || x.Token.Type == token.DoubleQuoteType
		return textNode{text: x.Value, quoted: quoted}, true
	case *ast.LiteralNode:
		return textNode{text: x.Value.Value, quoted: true}, true
	case *ast.NullNode:
		return textNode{null: true}, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return textNode{text: n.GetToken().Value, typed: true}, true
	}
	return textNode{}, false
}

// pairs returns the keys and values of a mapping.
func pairs(n ast.Node) ([]*ast.MappingValueNode, bool) {
	switch x := n.(type) {
	case *ast.MappingNode:
		return x.Values, true
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{x}, true
	}
	return nil, false
}

// keyText returns a key as written.
func keyText(k ast.MapKeyNode) string {
	if m, ok := k.(*ast.MappingKeyNode); ok && m.Value != nil {
		return first(m.Value).Value
	}
	return first(k).Value
}

// nowhere stands for the token of a node that has none.
var nowhere = token.Token{Position: &token.Position{}}

// first returns the token by which a node is found: of a mapping its first key.
func first(n ast.Node) *token.Token {
	if p, ok := pairs(n); ok && len(p) > 0 {
		if m, ok := n.(*ast.MappingNode); !ok || !m.IsFlowStyle {
			n = p[0].Key
		}
	}
	if n == nil {
		return &nowhere
	}
	if t := n.GetToken(); t != nil && t.Position != nil {
		return t
	}
	return &nowhere
}

// hide keeps a node out of excerpts, and all that stands after it on its lines.
// Aliases are not followed: what they stand for is hidden where it stands.
func (d *decoder) hide(n ast.Node) {
	ast.Walk(hider{d}, n)
}

type hider struct{ d *decoder }

// Visit hides one node; see ast.Walk.
func (h hider) Visit(n ast.Node) ast.Visitor {
	if h.d.nodes++; h.d.nodes > maxNodes {
		return nil // too large a document gets no excerpts
	}
	t := n.GetToken()
	if t == nil || t.Position == nil {
		return h
	}
	s := span{t.Position.Line, t.Position.Column, strings.Count(strings.TrimSpace(t.Origin), "\n")}
	if l, ok := n.(*ast.LiteralNode); ok && l.Value != nil {
		s.more = strings.Count(l.Value.Token.Origin, "\n") + 1
	}
	h.d.hidden = append(h.d.hidden, s)
	return h
}

// maxShown is how many letters of a foreign value a message shows.
const maxShown = 60

// shorten bounds a text that is shown.
func shorten(s string) string {
	if utf8.RuneCountInString(s) <= maxShown {
		return s
	}
	return string([]rune(s)[:maxShown]) + "…"
}

// notInKey reports whether a letter is in no key of ours.
func notInKey(r rune) bool {
	return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_.-", r))
}

// shownKey is a key as a message shows it: not at all if it doesn't look like
// one, since it may be a value that lost its own.
func shownKey(name string) string {
	if strings.ContainsFunc(name, notInKey) {
		return hiding
	}
	return shorten(name)
}
