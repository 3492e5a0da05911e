package load

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// WriteTable writes the report for a human, at most 100 columns wide for target
// names of up to 16 characters.
func (r *Report) WriteTable(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, model %s, speed %g, seeds %v", r.Trace, r.Model, r.Speed, r.Seeds)
	if r.MaxOutput > 0 {
		fmt.Fprintf(&b, ", answers cut at %d tokens", r.MaxOutput)
	}
	if r.Hold {
		b.WriteString(", turns held")
	}
	if r.Prompt == promptTokens {
		b.WriteString(", token prompts")
	}
	b.WriteString("\ntimes in modelled ms; ratio = our mean TTFT / theirs\n\n")

	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "target\trequests\terrors\tTTFT mean\tp50\tp99\tTPOT\tE2E\thit\tbusy\tratio\t")
	row := func(name string, m Measures, ratio string) {
		fmt.Fprintf(t, "%s\t%d\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", name, m.Requests, m.Errors,
			m.TTFTMeanMillis.digits(0), m.TTFTP50Millis.digits(0), m.TTFTP99Millis.digits(0), m.TPOTMeanMillis.digits(1),
			m.E2EMeanMillis.digits(0), m.HitShare.percent(), m.Utilisation.percent(), ratio)
	}
	row("ours", r.Ours, "")
	names := slices.Sorted(maps.Keys(r.Against))
	for _, name := range names {
		row(name, r.Against[name], r.TTFTRatio[name].digits(3))
	}
	t.Flush() // writes to b, which cannot fail

	fmt.Fprintf(&b, "\nan infinite shared cache would have hit %s; the client was at most %s ms late\n",
		r.InfiniteCacheShare.percent(), r.SendLagMaxMillis.digits(1))
	if len(r.PerSeed) > 1 {
		for _, name := range names {
			fmt.Fprintf(&b, "ratio to %s by seed:", name)
			for _, s := range r.PerSeed {
				fmt.Fprintf(&b, "  %s", s.TTFTRatio[name].digits(3))
			}
			b.WriteByte('\n')
		}
	} else {
		b.WriteString("a single run: no spread is known\n")
	}
	writeErrors(&b, "ours", r.Ours.ErrorKinds)
	for _, name := range names {
		writeErrors(&b, name, r.Against[name].ErrorKinds)
	}
	for _, note := range r.Notes {
		fmt.Fprintf(&b, "note: %s\n", note)
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("write the load report: %w", err)
	}
	return nil
}

func writeErrors(b *strings.Builder, target string, kinds map[string]int) {
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		fmt.Fprintf(b, "errors of %s: %d × %s\n", target, kinds[kind], kind)
	}
}

// digits shows f with that many digits after the point, or a dash.
func (f Figure) digits(n int) string {
	if !f.Known() {
		return "-"
	}
	return fmt.Sprintf("%.*f", n, float64(f))
}

func (f Figure) percent() string {
	if !f.Known() {
		return "-"
	}
	return fmt.Sprintf("%.1f%%", 100*float64(f))
}
