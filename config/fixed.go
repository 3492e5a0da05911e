package config

import (
	"fmt"
	"reflect"
	"strings"
)

// CheckReload says which settings differ from those of a running router though
// they can't change while it runs; nil where there is none. The error is an
// *[Error].
func (l *Loaded) CheckReload(running *Loaded) error {
	err := &Error{Files: l.Files, Print: l.Print}
	now, then := reflect.ValueOf(l.Config), reflect.ValueOf(running.Config)
	for _, s := range schema() {
		is, was := now.FieldByIndex(s.index), then.FieldByIndex(s.index)
		if !s.fixed || reflect.DeepEqual(is.Interface(), was.Interface()) {
			continue
		}
		o := l.from(s.path)
		from := ""
		if !s.secret {
			from = fmt.Sprintf(" (from %s to %s)", shown(was, s.traits), shown(is, s.traits))
		}
		err.Problems = append(err.Problems, Problem{Origin: o, Key: s.path, excerpt: l.excerpt(o),
			Text: "can't change while the router runs" + from + ": restart to apply it, or set it back"})
	}
	if len(err.Problems) == 0 {
		return nil
	}
	err.finish()
	return err
}

// from is where a setting came from.
func (l *Loaded) from(path string) Origin {
	p := printer{origins: l.origins}
	return p.from(path)
}

// shown is a value as a message shows it.
func shown(v reflect.Value, tr traits) string {
	p := printer{}
	p.value(v, Setting{}, 0, tr)
	var parts []string
	for _, line := range p.lines {
		if line.Value != "" {
			parts = append(parts, line.Value)
		}
	}
	return strings.Join(parts, ", ")
}
