package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/rhizome-router/rhizome/route"
)

type explainCommand struct {
	ID    string `arg:"" help:"The request's id, as the response header x-request-id says."`
	Admin string `help:"Admin address of the replica that routed it." default:"http://127.0.0.1:8081" env:"RHIZOME_ADMIN"`
	Token string `help:"Admin token, where the replica wants one." env:"RHIZOME_ADMIN_TOKEN"`
	JSON  bool   `help:"Print the JSON as served."`
}

// maxExplainBytes bounds what is read of an answer.
const maxExplainBytes = 4 << 20

func (c *explainCommand) Run(sh *shell) error {
	base, err := url.Parse(c.Admin)
	if err != nil || base.Host == "" {
		return fmt.Errorf("--admin %q is not a URL such as http://127.0.0.1:8081", c.Admin)
	}
	request, err := http.NewRequestWithContext(sh.ctx, http.MethodGet, base.JoinPath("explain", c.ID).String(), nil)
	if err != nil {
		return err
	}
	if c.Token != "" {
		request.Header.Set("Authorization", "Bearer "+c.Token)
	}
	client := http.Client{Timeout: 10 * time.Second}
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("ask the replica at %s: %w", c.Admin, err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxExplainBytes))
	if err != nil {
		return fmt.Errorf("read the answer of %s: %w", c.Admin, err)
	}
	switch response.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound:
		return fmt.Errorf("%s knows no request %q: only its last decisions are kept, and only on the replica that made them", c.Admin, c.ID)
	default:
		return fmt.Errorf("%s answered %s: %s", c.Admin, response.Status, strings.TrimSpace(string(body)))
	}
	if c.JSON {
		_, err := fmt.Fprintf(sh.stdout, "%s\n", strings.TrimSpace(string(body)))
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
		others := c.Terms.OwnDecodeMicros + c.Terms.PrefillExternalityMicros + c.Terms.KVExternalityMicros
		fmt.Fprintf(t, "%s\t%d\t%d\t%s\t%s\t%d\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t %s%s\t\n", strings.TrimPrefix(c.Worker, "http://"),
			c.HBMTokens, c.LowerTokens, orDash(c.Tier), orDash(c.Source), c.QueuedTokens, c.InFlight, ms(c.Terms.QueueMicros),
			ms(c.Terms.AdmissionMicros), ms(c.Terms.LoadMicros), ms(c.Terms.PrefillMicros), ms(others), ms(c.CostMicros),
			bar(c.CostMicros, most), mark)
	}
	if err := t.Flush(); err != nil {
		return err
	}
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
