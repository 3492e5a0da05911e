package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/rhizome-router/rhizome/cost"
	"github.com/rhizome-router/rhizome/fleet"
	"github.com/rhizome-router/rhizome/route"
)

// Every candidate is printed with every term that is not 0, what it is known by
// and how old that is.
func TestExplanationShowsEveryCandidate(t *testing.T) {
	e := route.Explanation{
		ID: "x", AtSeconds: 10, Policy: route.Rhizome, Worker: "http://a:1", Why: "near tie of 2",
		NearTie: &route.NearTie{BandMicros: 600, Inside: 2, Rule: route.ByHit},
		Candidates: []route.Candidate{
			{Worker: "http://b:1", Rank: -1, Terms: cost.Terms{PrefillMicros: 1000}, CostMicros: 1000, InBand: true,
				Signals: fleet.Signals{Running: fleet.Signal{Value: 3, Source: fleet.Scraped, At: 8e9}}},
			{Worker: "http://a:1", Rank: -1, Terms: cost.Terms{QueueMicros: 500, LoadMicros: 200, PrefillMicros: 600, QueueExternalityMicros: 77},
				CostMicros: 1177, InBand: true, Chosen: true, Tier: "cpu", LowerTokens: 64, BreakEvenBytesPerMicro: 5000},
		},
	}
	var out bytes.Buffer
	if err := writeExplanation(&out, &e); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"near-tie band: 600.0 µs above the least cost, 2 inside: the one inside that holds most of the prompt has it",
		"b:1 1000.0 µs  (in the band)\n    prefill                    1000.0  " + strings.Repeat("█", barWidth) + "\n",
		"a:1 1177.0 µs  < chosen\n    queue                       500.0  ████████████\n",
		"queue externality            77.0  ██\n",
		"admission and load pass while it queues",
		"loading from cpu breaks even with computing at 5.00 GB/s",
		"signals: running 3 (scraped, 2.0 s old)",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in\n%s", want, out.String())
		}
	}
}
