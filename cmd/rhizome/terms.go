package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/cost"
	"github.com/rhizome-router/rhizome/fleet"
	"github.com/rhizome-router/rhizome/kv"
	"github.com/rhizome-router/rhizome/route"
)

// tieText says what the near-tie band did to a decision; nothing where the
// policy has none.
func tieText(t *route.NearTie) string {
	if t == nil {
		return ""
	}
	rule := map[route.TieRule]string{
		route.BySession:     "the session's last worker is inside, and keeps it",
		route.ByCost:        "the cheapest is alone there",
		route.ByHit:         "the one inside that holds most of the prompt has it",
		route.ByTemperature: "a temperature is set, the costs themselves are drawn by",
		route.ByDraw:        "drawn among those inside that hold most of the prompt",
	}[t.Rule]
	return fmt.Sprintf("near-tie band: %.1f µs above the least cost, %d inside: %s\n", t.BandMicros, t.Inside, rule)
}

// writeCandidates prints every candidate's terms, constants and signals.
func writeCandidates(w io.Writer, e *route.Explanation) {
	most := 0.0
	for i := range e.Candidates {
		for _, t := range termsOf(&e.Candidates[i]) {
			most = max(most, t.Micros)
		}
	}
	for i := range e.Candidates {
		c := &e.Candidates[i]
		mark := ""
		switch {
		case c.Chosen:
			mark = "  < chosen"
		case c.InBand:
			mark = "  (in the band)"
		}
		fmt.Fprintf(w, "\n%s %.1f µs%s\n", workerName(c.Name, c.Worker, c.Rank), c.CostMicros, mark)
		if c.Name != "" {
			fmt.Fprintf(w, "    at %s\n", c.Worker)
		}
		writeTerms(w, termsOf(c), most)
		if note := waitText(c); note != "" {
			fmt.Fprintf(w, "    %s\n", note)
		}
		if c.BreakEvenBytesPerMicro > 0 {
			fmt.Fprintf(w, "    loading from %s breaks even with computing at %.2f GB/s\n", c.Tier, c.BreakEvenBytesPerMicro/1e3)
		}
		if c.ClockMicros > 0 || c.TokensMicros > 0 {
			fmt.Fprintf(w, "    our own queue: %.1f µs by its tokens, %.1f by the clock\n", c.TokensMicros, c.ClockMicros)
		}
		writeWrapped(w, "    ", "constants: "+fitText(&c.Fit))
		if signals := signalText(e, &c.Signals); signals != "" {
			writeWrapped(w, "    ", "signals: "+signals)
		}
	}
}

// termsOf are the terms that make a candidate's cost.
func termsOf(c *route.Candidate) []cost.NamedTerm {
	if c.Article != nil {
		return c.Article.Named()
	}
	named := c.Terms.Named()
	if c.SlowStartMicros > 0 {
		named = append(named, cost.NamedTerm{Name: "slow start", Micros: c.SlowStartMicros})
	}
	return named
}

// waitText says which of two waits counts where there are both: they pass at
// the same time, so that the terms' sum is more than the cost.
func waitText(c *route.Candidate) string {
	queue, room := c.Terms.QueueMicros, c.Terms.AdmissionMicros+c.Terms.LoadMicros
	switch {
	case c.Article != nil || min(queue, room) == 0:
		return ""
	case queue >= room:
		return "admission and load pass while it queues: they add nothing"
	}
	return "the queue passes during admission and load: it adds nothing"
}

// signalText lists what is known of a worker, each with its source and age.
func signalText(e *route.Explanation, s *fleet.Signals) string {
	var all []string
	add := func(name string, v fleet.Signal) {
		if v.Source == fleet.Default {
			return
		}
		age := ""
		if old := v.Age(clock.Instant(e.AtSeconds * 1e9)); old > 0 {
			age = fmt.Sprintf(", %.1f s old", old.Seconds())
		}
		all = append(all, fmt.Sprintf("%s %.4g (%s%s)", name, v.Value, v.Source, age))
	}
	add("capacity", s.CapacityTokens)
	add("max seqs", s.MaxSeqs)
	add("KV usage", s.KVUsage)
	add("running", s.Running)
	add("waiting", s.Waiting)
	add("waiting tokens", s.WaitingTokens)
	add("foreign running", s.ForeignRunning)
	add("foreign waiting", s.ForeignWaiting)
	add("KV bytes", s.KVBytes)
	for t := kv.CPU; t < kv.NumTiers; t++ {
		add(t.String()+" ρ", s.Rho[t])
		add(t.String()+" B/µs", s.BytesPerMicro[t])
		add(t.String()+" gate", s.Gate[t])
	}
	return strings.Join(all, ", ")
}
