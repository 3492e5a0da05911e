package main

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/rhizome-router/rhizome/cost"
	"github.com/rhizome-router/rhizome/fleet"
	"github.com/rhizome-router/rhizome/route"
)

// However long names are and however much is known of a worker, an explanation
// fits a terminal.
func TestExplanationFitsATerminal(t *testing.T) {
	signal := fleet.Signal{Value: 123456.789, Source: fleet.Scraped, At: 1}
	e := route.Explanation{
		ID: "0190163d-8694-739b-aea5-966c26f8ad91", AtSeconds: 4000, Model: "meta-llama/Llama-3.1-405B-Instruct-FP8-some-long-name", Policy: route.Rhizome,
		PromptTokens: 123456, OutputTokens: 1234, Worker: "http://vllm-decode-7c9bd6f5b4-x2x7p.inference.svc.cluster.local:8000", Why: "near tie of 16",
		NearTie: &route.NearTie{BandMicros: 123456.7, Inside: 16, Rule: route.BySession}, ActualCachedTokens: 100_000, CachedTokens: 110_000,
		Result: "completed", Audit: &route.Audit{Cause: route.Render, ShortTokens: 10_000},
	}
	for i := range 16 {
		c := route.Candidate{
			Worker: e.Worker, Rank: int16(i), HBMTokens: 123456, LowerTokens: 123456, Tier: "remote", Source: "events", QueuedTokens: 1234567,
			InFlight: 1234, CostMicros: 123456789.1, SlowStartMicros: 1e7, ClockMicros: 1e8, TokensMicros: 1e8, InBand: true, Chosen: i == 3, BreakEvenBytesPerMicro: 5e3,
			Terms: cost.Terms{QueueMicros: 1e8, AdmissionMicros: 1e7, LoadMicros: 1e7, PrefillMicros: 1e7, OwnDecodeMicros: 1e6},
			Fit:   route.FitState{Constants: route.Constants{OverheadMicros: 12345.6, StepMicros: 12345, SeqMicros: 123.4, KVTokenMicros: 0.0491, TokenMicros: 22.3, PairMicros: 1.06e-3}, Samples: 12345, OfClass: 123456, Calibrated: true, MeanError: 0.1, Alarms: 12},
			Signals: fleet.Signals{CapacityTokens: signal, MaxSeqs: signal, KVUsage: signal, Running: signal, Waiting: signal, WaitingTokens: signal,
				ForeignRunning: signal, ForeignWaiting: signal, KVBytes: signal},
		}
		for tier := range c.Signals.Rho {
			c.Signals.Rho[tier], c.Signals.BytesPerMicro[tier], c.Signals.Gate[tier] = signal, signal, signal
		}
		if i%2 == 0 {
			c.Name = strings.Repeat("a-long-name-", 5)
		}
		e.Candidates = append(e.Candidates, c)
	}
	var out bytes.Buffer
	if err := writeExplanation(&out, &e); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(out.String()) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 120 {
			t.Errorf("%d wide: %s", n, line)
		}
	}
	for _, want := range []string{"…", "/15", "slow start", "by the clock", "audit: short by 10000 tokens: nothing left the cache"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing", want)
		}
	}
	if testing.Verbose() {
		t.Log("\n" + out.String()[:6000])
	}
}

func TestWrap(t *testing.T) {
	var out bytes.Buffer
	writeWrapped(&out, "  ", strings.Repeat("word ", 30)+strings.Repeat("x", 200)+" end")
	want := "  " + strings.TrimSuffix(strings.Repeat("word ", 23), " ") + "\n    " + strings.TrimSuffix(strings.Repeat("word ", 7), " ") +
		"\n    " + strings.Repeat("x", 200) + "\n    end\n"
	if out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}

func TestRecentDecisions(t *testing.T) {
	var out bytes.Buffer
	if err := writeRecent(&out, []route.Brief{
		{ID: "b", AgoSeconds: 3, Worker: "http://gpu:1", Name: "one", PromptTokens: 2000, CachedTokens: 1984, ActualCachedTokens: 1000, TTFTMillis: 10, ActualTTFTMillis: 11.5, Result: "completed", Cause: "residency"},
		{ID: "a", AgoSeconds: 70, Worker: "http://gpu:2", PromptTokens: 5, ActualCachedTokens: -1, TTFTMillis: 4},
	}); err != nil {
		t.Fatal(err)
	}
	want := `id  ago   worker  prompt  cached  actual  ttft ms  actual  result
b   3 s   one     2000    1984    1000    10.0     11.5    completed, residency
a   70 s  gpu:2   5       0       ?       4.0      ?       -
`
	if out.String() != want {
		t.Errorf("%s\nwant\n%s", out.String(), want)
	}
}
