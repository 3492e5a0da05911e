package config

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"
)

// From says what kind of place a value came from.
type From string

// Where values come from, each taking precedence over those before it.
const (
	FromDefault From = "default"
	FromFile    From = "file"
	FromEnv     From = "env"
	FromFlag    From = "flag"
)

// Origin is where a value came from.
type Origin struct {
	From From
	// Name is the file, the variable or the flag.
	Name string
	// Line and Column, of a file, count from 1; Line 0 is the file as a whole.
	Line, Column int
}

// String returns the origin as messages and listings show it:
// "rhizome.yaml:12:3", "RHIZOME_GRACE", "--grace" or "default".
func (o Origin) String() string {
	switch {
	case o.From == FromDefault || o.From == "":
		return string(FromDefault)
	case o.Line > 0:
		return fmt.Sprintf("%s:%d:%d", o.Name, o.Line, o.Column)
	}
	return o.Name
}

// Problem is one thing that is wrong with a configuration.
type Problem struct {
	Origin Origin
	// Key is the setting's path; empty where there is none.
	Key string
	// Text says what is wrong and what to do.
	Text string

	excerpt string // the offending line, with a caret
}

// String returns the problem with its place and, of a file, the line.
func (p *Problem) String() string {
	if p.excerpt != "" {
		return p.brief() + "\n" + p.excerpt
	}
	return p.brief()
}

func (p *Problem) brief() string {
	text := p.Text
	switch first, _, _ := strings.Cut(text, " "); {
	case p.Key == "":
	case slices.Contains([]string{"is", "are", "has", "can't"}, first): // a sentence about the key
		text = p.Key + " " + text
	default:
		text = p.Key + ": " + text
	}
	if p.Origin.From != FromDefault && p.Origin.From != "" {
		text = p.Origin.String() + ": " + text
	}
	return text
}

// Error is all that is wrong with a configuration, in the order of the places.
type Error struct {
	Problems []Problem
	// Files are those that were read, or should have been: when one of them
	// changes it is worth trying again. Print is their Fingerprint as they were.
	Files []string
	Print string
}

func (e *Error) Error() string {
	var b strings.Builder
	for i := range e.Problems {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(e.Problems[i].String())
	}
	return b.String()
}

// Brief is Error in one line, for a log.
func (e *Error) Brief() string {
	parts := make([]string, len(e.Problems))
	for i := range e.Problems {
		parts[i] = e.Problems[i].brief()
	}
	return strings.Join(parts, "; ")
}

// maxProblems bounds how many problems are told at once.
const maxProblems = 50

func (e *Error) finish() {
	for i := range e.Problems {
		e.Problems[i].Text = mask(e.Problems[i].Text)
	}
	rank := map[From]int{FromFile: 1, FromEnv: 2, FromFlag: 3}
	slices.SortStableFunc(e.Problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(rank[a.Origin.From], rank[b.Origin.From]), cmp.Compare(a.Origin.Line, b.Origin.Line),
			cmp.Compare(a.Origin.Column, b.Origin.Column))
	})
	if more := len(e.Problems) - maxProblems; more > 0 {
		e.Problems = append(e.Problems[:maxProblems], Problem{Text: fmt.Sprintf("and %d more", more)})
	}
}

// span is a place in a document that an excerpt must not show: from a column to
// the end of the line, and so many lines after it.
type span struct{ line, column, more int }

// hiding replaces what an excerpt must not show.
const hiding = "…"

// maxExcerpt is how many letters of a line are shown.
const maxExcerpt = 120

// userInfo is a name or a password in a URL.
var userInfo = regexp.MustCompile(`//[^/@\s]*@`)

// secretValue matches what looks like a secret's key with its value, wherever
// it stands: a forgotten comma makes it a part of another value.
var secretValue = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?i)\b(` + strings.Join(secretKeys(), "|") + `)(["']?\s*:\s*)\S.*`)
})

// mask takes out of a text what looks like a secret.
func mask(text string) string {
	return secretValue().ReplaceAllString(userInfo.ReplaceAllString(text, "//"+hiding+"@"), "${1}${2}"+hiding)
}

// excerpt returns a line of a document with a caret below the column, without
// what hidden names.
func excerpt(lines []string, line, column int, hidden []span) string {
	if line < 1 || line > len(lines) || column < 1 {
		return ""
	}
	letters := []rune(strings.ReplaceAll(strings.TrimRight(lines[line-1], "\r\n"), "\t", " "))
	end, cut := len(letters), false
	for _, h := range hidden {
		switch {
		case h.line == line && h.column-1 < end:
			end, cut = max(0, h.column-1), true
		case h.line < line && line <= h.line+h.more:
			end, cut = 0, true
		}
	}
	if end > maxExcerpt {
		end, cut = maxExcerpt, true
	}
	text := mask(string(letters[:end]))
	if cut && !strings.HasSuffix(text, hiding) {
		text += hiding
	}
	number := fmt.Sprintf("%5d | ", line)
	caret := min(column-1, utf8.RuneCountInString(text))
	return number + text + "\n" + strings.Repeat(" ", utf8.RuneCountInString(number)-2) + "| " + strings.Repeat(" ", caret) + "^"
}

// suggest returns the one of names that a misspelt word most likely means; ""
// where none is near.
func suggest(word string, names []string) string {
	best, least := "", max(1, len(word)/3)+1
	for _, name := range names {
		if d := distance(strings.ToLower(word), strings.ToLower(name)); d < least {
			best, least = name, d
		}
	}
	return best
}

// maxWord bounds the words that are compared.
const maxWord = 80

// distance is Damerau's and Levenshtein's: how many letters to insert, delete,
// replace or swap with their neighbour (optimal string alignment).
func distance(a, b string) int {
	if len(a) > maxWord || len(b) > maxWord {
		return maxWord
	}
	before, last, now := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		now[0] = i
		for j := 1; j <= len(b); j++ {
			differ := 1
			if a[i-1] == b[j-1] {
				differ = 0
			}
			now[j] = min(last[j]+1, now[j-1]+1, last[j-1]+differ)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				now[j] = min(now[j], before[j-2]+1)
			}
		}
		before, last, now = last, now, before
	}
	return last[len(b)]
}
