package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"unicode/utf8"

	"github.com/rhizome-router/rhizome/route"
)

const (
	// lineWidth is how wide what is printed gets, where a terminal can have it.
	lineWidth = 118
	// nameWidth is how much of a worker's name is shown.
	nameWidth = 26
)

// workerName is what operators call a worker, or else its address, with its
// rank where it has several.
func workerName(name, url string, rank int16) string {
	if name == "" {
		name = strings.TrimPrefix(url, "http://")
	}
	if n := utf8.RuneCountInString(name); n > nameWidth {
		name = "…" + string([]rune(name)[n-nameWidth+1:]) // hosts and pods differ at the end
	}
	if rank >= 0 {
		name += fmt.Sprintf("/%d", rank)
	}
	return name
}

// writeWrapped prints a text in lines of lineWidth at most, broken at spaces,
// the first after indent and the others two further in. A longer word stays
// whole.
func writeWrapped(w io.Writer, indent, text string) {
	line, width := indent, utf8.RuneCountInString(indent)
	for i, word := range strings.Fields(text) {
		n := utf8.RuneCountInString(word)
		switch {
		case i == 0:
			line, width = line+word, width+n
		case width+1+n > lineWidth:
			fmt.Fprintln(w, line)
			line, width = indent+"  "+word, len(indent)+2+n
		default:
			line, width = line+" "+word, width+1+n
		}
	}
	fmt.Fprintln(w, line)
}

// writeRecent prints the last decisions, a line each.
func writeRecent(w io.Writer, list []route.Brief) error {
	if len(list) == 0 {
		_, err := fmt.Fprintln(w, "no decision yet")
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "id\tago\tworker\tprompt\tcached\tactual\tttft ms\tactual\tresult")
	for i := range list {
		b := &list[i]
		result := orDash(b.Result)
		if b.Cause != "" && b.Cause != route.Exact.String() {
			result += ", " + b.Cause
		}
		fmt.Fprintf(t, "%s\t%.0f s\t%s\t%d\t%d\t%s\t%.1f\t%s\t%s\n", b.ID, b.AgoSeconds, workerName(b.Name, b.Worker, -1),
			b.PromptTokens, b.CachedTokens, known(b.ActualCachedTokens), b.TTFTMillis, knownMillis(b.ActualTTFTMillis), result)
	}
	return t.Flush()
}
