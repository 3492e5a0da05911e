// Package tidy holds the house rules and the code that checks them; its test
// runs them over the whole module.
//
// The central value is [Rooms], the import order of the house, leaves first.
// Start reading there; each rule is one function that returns what it found.
package tidy

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

// Module is this module's path.
const Module = "github.com/rhizome-router/rhizome"

// Rooms are the top-level packages, leaves first: a room imports only rooms
// above it in this list.
var Rooms = []string{
	"clock", "state", "kv", "index", "crdt", "cost", "transport", "mesh", "engine", "fleet", "prompt", "route", "gateway",
	"workload", "load", "sim", "chaos", "web", "config", "cmd",
}

// Pure are the packages whose behaviour depends on their arguments alone.
var Pure = []string{"kv", "index", "crdt", "cost", "route", "engine/model", "mesh/core"}

// labOnly are rooms that the product binary must not contain.
var labOnly = []string{"sim", "chaos"}

// Load reads and type-checks every package of the module that stands in dir,
// test files left out: what the rules are about is what ships.
func Load(dir string) ([]*packages.Package, error) {
	cfg := &packages.Config{Dir: dir, Mode: packages.NeedName | packages.NeedImports | packages.NeedDeps |
		packages.NeedFiles | packages.NeedSyntax | packages.NeedTypes | packages.NeedTypesInfo}
	pkgs, err := packages.Load(cfg, Module+"/...")
	if err != nil {
		return nil, fmt.Errorf("load the module in %s: %w", dir, err)
	}
	for _, p := range pkgs {
		for _, e := range p.Errors {
			return nil, fmt.Errorf("load %s: %w", p.PkgPath, e)
		}
	}
	return pkgs, nil
}

// inside returns a package's path within the module.
func inside(path string) (string, bool) {
	return strings.CutPrefix(path, Module+"/")
}

func room(path string) string {
	first, _, _ := strings.Cut(path, "/")
	return first
}

// Imports reports every import that goes against the order of Rooms.
func Imports(p *packages.Package) []string {
	path, _ := inside(p.PkgPath)
	mine := slices.Index(Rooms, room(path))
	if room(path) == "internal" {
		return nil
	}
	if mine < 0 {
		return []string{fmt.Sprintf("%s: %q is no room of the house; see the list in internal/tidy", path, room(path))}
	}
	var bad []string
	for imported := range p.Imports {
		other, ours := inside(imported)
		if !ours || room(other) == room(path) {
			continue
		}
		theirs := slices.Index(Rooms, room(other))
		switch {
		case room(path) == "kv":
			bad = append(bad, fmt.Sprintf("%s imports %s, but kv imports nothing of ours", path, other))
		case theirs < 0 || theirs >= mine:
			bad = append(bad, fmt.Sprintf("%s imports %s, which is not above it", path, other))
		case path == "cmd/rhizome" && slices.Contains(labOnly, room(other)):
			bad = append(bad, fmt.Sprintf("%s imports %s, which belongs to the laboratory", path, other))
		}
	}
	slices.Sort(bad)
	return bad
}

// Documented reports a package without a package comment, and one whose
// comment is split over several files.
func Documented(p *packages.Package) []string {
	n := 0
	for _, f := range p.Syntax {
		if f.Doc != nil {
			n++
		}
	}
	if path, _ := inside(p.PkgPath); n != 1 {
		return []string{fmt.Sprintf("%s has %d package comments, want 1", path, n)}
	}
	return nil
}

// impure are the functions that a pure package must not call, by package path;
// an empty list means all.
var impure = map[string][]string{
	"time":         {"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"},
	"os":           {},
	"net":          {},
	"net/http":     {},
	"log":          {},
	"log/slog":     {},
	"math/rand":    {},
	"math/rand/v2": globalRand,
}

// globalRand are the functions of math/rand/v2 that draw from the process-wide
// source; no package at all may use them.
var globalRand = []string{"Int", "IntN", "Int32", "Int32N", "Int64", "Int64N", "Uint32", "Uint32N", "Uint64", "Uint64N",
	"UintN", "Uint", "N", "Float32", "Float64", "NormFloat64", "ExpFloat64", "Perm", "Shuffle"}

// orderFree is the remark that vouches for a loop over a map.
const orderFree = "order-free:"

// Purity reports what makes a pure package depend on more than its arguments:
// clocks, goroutines, global randomness, I/O, and loops over maps that nobody
// vouched for with a remark "order-free: why".
func Purity(p *packages.Package) []string {
	path, _ := inside(p.PkgPath)
	if !slices.Contains(Pure, path) {
		return nil
	}
	var bad []string
	report := func(pos token.Pos, format string, args ...any) {
		at := p.Fset.Position(pos)
		bad = append(bad, fmt.Sprintf("%s:%d: %s", at.Filename, at.Line, fmt.Sprintf(format, args...)))
	}
	for _, f := range p.Syntax {
		vouched := remarks(p.Fset, f)
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				report(n.Pos(), "a pure package starts no goroutine")
			case *ast.SelectorExpr:
				if pkg, name := used(p.TypesInfo, n); pkg != "" {
					if names, ok := impure[pkg]; ok && (len(names) == 0 || slices.Contains(names, name)) {
						report(n.Pos(), "a pure package does not use %s.%s", pkg, name)
					}
				}
			case *ast.RangeStmt:
				if t := p.TypesInfo.TypeOf(n.X); t != nil {
					line := p.Fset.Position(n.Pos()).Line
					if _, isMap := t.Underlying().(*types.Map); isMap && !vouched[line] && !vouched[line-1] {
						report(n.Pos(), "a loop over a map needs a remark %q why its order can't matter", orderFree)
					}
				}
			}
			return true
		})
	}
	return bad
}

// GlobalRand reports draws from the process-wide random source.
func GlobalRand(p *packages.Package) []string {
	var bad []string
	for _, f := range p.Syntax {
		ast.Inspect(f, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok {
				if pkg, name := used(p.TypesInfo, sel); pkg == "math/rand" || pkg == "math/rand/v2" && slices.Contains(globalRand, name) {
					bad = append(bad, fmt.Sprintf("%s: draws from the process-wide source; take a seeded one (clock.Rand)", p.Fset.Position(n.Pos())))
				}
			}
			return true
		})
	}
	return bad
}

// used returns the package-level object that a selector names.
func used(info *types.Info, sel *ast.SelectorExpr) (pkg, name string) {
	x, ok := sel.X.(*ast.Ident)
	if !ok {
		return "", ""
	}
	imported, ok := info.Uses[x].(*types.PkgName)
	if !ok {
		return "", ""
	}
	return imported.Imported().Path(), sel.Sel.Name
}

// remarks returns the lines on which a vouching remark stands.
func remarks(fset *token.FileSet, f *ast.File) map[int]bool {
	lines := make(map[int]bool)
	for _, g := range f.Comments {
		for _, c := range g.List {
			if strings.Contains(c.Text, orderFree) {
				lines[fset.Position(c.End()).Line] = true
			}
		}
	}
	return lines
}
