package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/rhizome-router/rhizome/cost"
	"github.com/rhizome-router/rhizome/route"
)

type explainCommand struct {
	ID      string `arg:"" optional:"" help:"The request's id, as the response header x-request-id says."`
	Example string `enum:",article,tiers" default:"" help:"Print a worked example of the cost model instead: article or tiers."`
	JSON    bool   `help:"Print the JSON as served."`
	adminFlags
}

func (c *explainCommand) Run(sh *shell) error {
	switch {
	case c.Example != "" && (c.ID != "" || c.JSON):
		return errors.New("--example goes with no request id and no --json: it asks no replica")
	case c.Example == "article":
		return writeExample(sh.stdout, cost.ArticleExample())
	case c.Example == "tiers":
		return writeExample(sh.stdout, cost.TiersExample())
	}
	if c.ID == "" {
		return errors.New("no request id given: it is the response header x-request-id")
	}
	body, err := c.get(sh.ctx, "explain", c.ID)
	if errors.Is(err, errNotFound) {
		return fmt.Errorf("%s knows no request %q: only its last decisions are kept, and only on the replica that made them", c.Admin, c.ID)
	}
	if err != nil {
		return err
	}
	if c.JSON {
		_, err := sh.stdout.Write(body)
		return err
	}
	var e route.Explanation
	if err := json.Unmarshal(body, &e); err != nil {
		return fmt.Errorf("%s answered no explanation: %w", c.Admin, err)
	}
	return writeExplanation(sh.stdout, &e)
}

// writeExplanation prints a decision as a person wants to read it.
func writeExplanation(w io.Writer, e *route.Explanation) error {
	size := "guessed from its text"
	if e.PromptExact {
		size = "exact"
	}
	fmt.Fprintf(w, "request %s for %s: %d prompt tokens (%s), %d expected out\n", e.ID, e.Model, e.PromptTokens, size, e.OutputTokens)
	fmt.Fprintf(w, "policy %s chose %s: %s\n\n", e.Policy, e.Worker, e.Why)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "worker\thit hbm\tlower\ttier\tfrom\tqueued\tin flight\tqueue\tadmission\tload\tprefill\tothers\tcost ms\t\t")
	most := 0.0
	for _, c := range e.Candidates {
		most = max(most, c.CostMicros)
	}
	for _, c := range e.Candidates {
		mark := ""
		if c.Chosen {
			mark = " <"
		}
		others := c.Terms.OwnDecodeMicros + c.Terms.PrefillExternalityMicros + c.Terms.KVExternalityMicros + c.Terms.QueueExternalityMicros
		fmt.Fprintf(t, "%s\t%d\t%d\t%s\t%s\t%d\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t %s%s\t\n", strings.TrimPrefix(c.Worker, "http://"),
			c.HBMTokens, c.LowerTokens, orDash(c.Tier), orDash(c.Source), c.QueuedTokens, c.InFlight, ms(c.Terms.QueueMicros),
			ms(c.Terms.AdmissionMicros), ms(c.Terms.LoadMicros), ms(c.Terms.PrefillMicros), ms(others), ms(c.CostMicros),
			bar(c.CostMicros, most), mark)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(w, "\n%s", tieText(e.NearTie))
	writeCandidates(w, e)
	fmt.Fprintf(w, "\n%-10s cached %6d tokens   first token after %8.1f ms\n", "predicted", e.CachedTokens, e.TTFTMillis)
	actual := "still running"
	switch {
	case e.Result != "":
		actual = e.Result
	}
	fmt.Fprintf(w, "%-10s cached %6s tokens   first token after %8s ms   (%s)\n", "actual",
		known(e.ActualCachedTokens), knownMillis(e.ActualTTFTMillis), actual)
	return nil
}

// fitText shows a worker's constants and what they rest on.
func fitText(f *route.FitState) string {
	rests := "uncalibrated"
	switch {
	case f.Fixed:
		rests = "fixed"
	case f.Calibrated:
		rests = fmt.Sprintf("off by %.0f %% on average, %d alarms", 100*f.MeanError, f.Alarms)
	}
	k := &f.Constants
	return fmt.Sprintf("overhead %.1f ms, step %.2f ms, %.3g µs a sequence, %.3g µs a KV token, %.3g µs a prompt token, %.3g µs a pair (%d samples, %d of its class, %s)",
		k.OverheadMicros/1e3, k.StepMicros/1e3, k.SeqMicros, k.KVTokenMicros, k.TokenMicros, k.PairMicros, f.Samples, f.OfClass, rests)
}

// barWidth is the length of the longest cost's bar.
const barWidth = 24

func bar(x, most float64) string {
	if most <= 0 {
		return ""
	}
	return strings.Repeat("█", max(1, int(x/most*barWidth+0.5)))
}

func ms(micros float64) string { return fmt.Sprintf("%.1f", micros/1e3) }

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func known(tokens int) string {
	if tokens < 0 {
		return "?"
	}
	return fmt.Sprint(tokens)
}

func knownMillis(x float64) string {
	if x == 0 {
		return "?"
	}
	return fmt.Sprintf("%.1f", x)
}
