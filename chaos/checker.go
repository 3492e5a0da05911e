package chaos

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Violation is one thing that was wrong.
type Violation struct {
	Checker string        `json:"checker"`
	At      time.Duration `json:"at_ns"`
	What    string        `json:"what"`
}

// Checker reads a history and says what was wrong in it.
type Checker struct {
	Name string
	Doc  string // in a line: what must hold
	// Check returns at most MaxViolations; it must not change what it reads.
	Check func(s *Scenario, h *History) []Violation
}

// MaxViolations bounds what one checker reports of a run.
const MaxViolations = 20

// Judge runs all checkers over a history.
func Judge(s *Scenario, h *History) []Violation {
	var all []Violation
	for _, c := range Checkers() {
		all = append(all, c.Check(s, h)...)
	}
	slices.SortStableFunc(all, func(a, b Violation) int { return cmp.Compare(a.At, b.At) })
	return all
}

// findings gathers what one checker found.
type findings struct {
	name string
	all  []Violation
}

func (f *findings) add(at time.Duration, format string, args ...any) {
	if len(f.all) < MaxViolations {
		f.all = append(f.all, Violation{f.name, at, fmt.Sprintf(format, args...)})
	}
}
