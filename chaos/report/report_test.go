package report

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/rhizome-router/rhizome/chaos"
)

// played is two runs, one of which went wrong, with a hostile name in it.
func played() ([]chaos.Scenario, []chaos.Result) {
	s := chaos.Catalogue()[0]
	s.Name = "cut <b>"
	h := &chaos.History{End: 20 * time.Second, IdealTTFT: time.Second}
	for at := range 20 {
		for i := range 2 {
			x := chaos.Sample{At: time.Duration(at) * time.Second, Replica: i, Live: at != 10, Members: []string{"a", "b"}, Leader: i}
			x.Streams = []chaos.Stream{{Worker: 0, Boot: 1, Next: uint64(at), Digest: 5}}
			h.Samples = append(h.Samples, x)
		}
	}
	h.Requests = []chaos.Request{{At: time.Second, First: 2 * time.Second, End: 3 * time.Second, Outcome: chaos.Answered, PromptTokens: 10, CachedTokens: 5}}
	bad := []chaos.Violation{{Checker: "digests", At: time.Second, What: "they <i>differ</i>"}}
	return []chaos.Scenario{s}, []chaos.Result{
		{Scenario: s.Name, Place: chaos.Pure, Seed: 1, Requests: 1, Regret: 1.5, History: h},
		{Scenario: s.Name, Place: chaos.Pure, Seed: 2, Requests: 1, Regret: 1.25, Violations: bad, History: h},
		{Scenario: s.Name, Place: chaos.Real, Seed: 1, Err: "no rights"},
	}
}

func TestPageNeedsNothingElse(t *testing.T) {
	scenarios, results := played()
	var b bytes.Buffer
	if err := HTML(&b, scenarios, results, Meta{Command: "lab --x <y>"}); err != nil {
		t.Fatal(err)
	}
	page := b.String()
	for _, want := range []string{"0 of 1 scenarios passed", "1.25 to 1.50", "cut &lt;b&gt;", "they &lt;i&gt;differ", "lab --x &lt;y&gt;", "Leader", "<svg"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	for _, not := range []string{"<i>differ", "http://", "https://", "<script", "NaN", "ZgotmplZ"} {
		if strings.Contains(page, not) {
			t.Errorf("the page has %q", not)
		}
	}
}

func TestTextSaysWhatWentWrong(t *testing.T) {
	_, results := played()
	var b bytes.Buffer
	Text(&b, results)
	for _, want := range []string{"passed", "FAILED", "digests: they", "no rights"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not in %s", want, b.String())
		}
	}
}

func TestLagCountsFromTheFurthest(t *testing.T) {
	h := &chaos.History{End: time.Second}
	for i, next := range []uint64{10, 7} {
		h.Samples = append(h.Samples, chaos.Sample{Replica: i, Live: true, Streams: []chaos.Stream{{Worker: 3, Boot: 1, Next: next, Digest: next}}})
	}
	if all := lag(h); all[0].points[0].value != 0 || all[1].points[0].value != 3 {
		t.Errorf("%+v", all)
	}
	if all := agreement(h); all[0].points[0].value != 1 || all[1].points[0].value != 0 {
		t.Errorf("%+v", all)
	}
}
