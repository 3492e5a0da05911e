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
	Last    bool   `help:"List the last 20 decisions instead."`
	Example string `enum:",article,tiers" default:"" help:"Print a worked example of the cost model instead: article or tiers."`
	JSON    bool   `help:"Print the JSON as served: all there is."`
	adminFlags
}

func (c *explainCommand) Run(sh *shell) error {
	switch {
	case c.Example != "" && (c.ID != "" || c.JSON || c.Last):
		return errors.New("--example goes with no request id, no --last and no --json: it asks no replica")
	case c.Example == "article":
		return writeExample(sh.stdout, cost.ArticleExample())
	case c.Example == "tiers":
		return writeExample(sh.stdout, cost.TiersExample())
	case c.Last && c.ID != "":
		return errors.New("--last goes with no request id")
	case c.Last:
		return c.last(sh)
	case c.ID == "":
		return errors.New("no request id given: it is the response header x-request-id, and --last lists the last ones")
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

// last lists the last decisions.
func (c *explainCommand) last(sh *shell) error {
	body, err := c.get(sh.ctx, "explain")
	if err != nil {
		return err
	}
	if c.JSON {
		_, err := sh.stdout.Write(body)
		return err
	}
	var list []route.Brief
	if err := json.Unmarshal(body, &list); err != nil {
		return fmt.Errorf("%s answered no list of decisions: %w", c.Admin, err)
	}
	return writeRecent(sh.stdout, list)
}

// knownBy says in words what named the parts of a prompt: see route.Keyed.
func knownBy(keys string) string {
	switch keys {
	case route.ByTokens.String():
		return "its token ids"
	case route.ByLearned.String():
		return "tokens that were learned, and its bytes beyond them"
	case route.ByTokenize.String():
		return "its tokens, which a worker was asked for"
	case route.ByBytes.String():
		return "what was sent where"
	case route.BySessionLast.String():
		return "its session's last worker alone"
	}
	return keys
}

// writeExplanation prints a decision as a person wants to read it, in lines of
// lineWidth at most.
func writeExplanation(w io.Writer, e *route.Explanation) error {
	size := "guessed from its text"
	if e.PromptExact {
		size = "exact"
	}
	writeWrapped(w, "", fmt.Sprintf("request %s for %s: %d prompt tokens (%s), %d expected out", e.ID, e.Model, e.PromptTokens, size, e.OutputTokens))
	if e.PromptKeys != "" {
		writeWrapped(w, "", "the prompt is known by "+knownBy(e.PromptKeys))
	}
	writeWrapped(w, "", fmt.Sprintf("policy %s chose %s: %s", e.Policy, workerName(e.Name, e.Worker, e.Rank), e.Why))
	fmt.Fprintln(w)
	if err := writeSummary(w, e.Candidates); err != nil {
		return err
	}
	fmt.Fprintln(w)
	if tie := tieText(e.NearTie); tie != "" {
		writeWrapped(w, "", strings.TrimSuffix(tie, "\n"))
	}
	writeCandidates(w, e)
	fmt.Fprintf(w, "\n%-10s cached %6d tokens   first token after %8.1f ms\n", "predicted", e.CachedTokens, e.TTFTMillis)
	actual := "still running"
	if e.Result != "" {
		actual = e.Result
	}
	fmt.Fprintf(w, "%-10s cached %6s tokens   first token after %8s ms   (%s)\n", "actual",
		known(e.ActualCachedTokens), knownMillis(e.ActualTTFTMillis), actual)
	if e.Audit != nil {
		writeWrapped(w, "", "audit: "+auditText(e.Audit)+ttftText(e))
	}
	return nil
}

// writeSummary prints a line a candidate, cheapest first.
func writeSummary(w io.Writer, candidates []route.Candidate) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "worker\thbm\tlower\tfrom\tqueued\tin flight\tcost ms\t")
	most := 0.0
	for i := range candidates {
		most = max(most, candidates[i].CostMicros)
	}
	for i := range candidates {
		c := &candidates[i]
		mark, lower := "", "-"
		if c.Chosen {
			mark = " <"
		}
		if c.LowerTokens > 0 {
			lower = fmt.Sprintf("%d %s", c.LowerTokens, c.Tier)
		}
		fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%d\t%d\t%s\t  %s%s\n", workerName(c.Name, c.Worker, c.Rank), c.HBMTokens, lower, orDash(c.Source),
			c.QueuedTokens, c.InFlight, ms(c.CostMicros), bar(c.CostMicros, most), mark)
	}
	return t.Flush()
}

// ttftText says how the time to first token compares with the prediction.
func ttftText(e *route.Explanation) string {
	if e.ActualTTFTMillis == 0 || e.TTFTMillis <= 0 {
		return ""
	}
	return fmt.Sprintf("; the first token took %.2f times the predicted time", e.ActualTTFTMillis/e.TTFTMillis)
}

// auditText says what made the cached tokens differ from the prediction.
func auditText(a *route.Audit) string {
	if a.Pending {
		return fmt.Sprintf("short by %d tokens; news of what left the cache may still be under way", a.ShortTokens)
	}
	switch a.Cause {
	case route.Exact:
		return "the cached tokens are as predicted, to within a block"
	case route.Under:
		return fmt.Sprintf("%d tokens more than predicted were cached", -a.ShortTokens)
	}
	return fmt.Sprintf("short by %d tokens: ", a.ShortTokens) + map[route.Cause]string{
		route.Promised:    "a request in flight had promised them (promised; nobody is charged)",
		route.Residency:   "they left the cache after the decision, or news of it was lost (residency; the worker is charged)",
		route.Render:      "nothing left the cache, so the prompt was not the one it was taken for (render; what told its tokens is charged)",
		route.Unwitnessed: "nobody saw what became of them (unwitnessed; nobody is charged)",
	}[a.Cause]
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
