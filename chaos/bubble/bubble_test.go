package bubble

import (
	"encoding/json"
	"os"
	"slices"
	"testing"

	"go.uber.org/goleak"

	"github.com/rhizome-router/rhizome/chaos"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The quick scenarios hold in a run of each; under the race detector the first
// does. The laboratory's command plays all of them five times.
func TestScenarios(t *testing.T) {
	for _, s := range chaos.Catalogue() {
		if !s.On(chaos.Bubble) || !s.Quick || raced && s.Name != "partition-rejoin" {
			continue
		}
		t.Run(s.Name, func(t *testing.T) {
			h := Play(t, &s, 1)
			if len(h.Samples) == 0 || len(h.Truths) != s.Workers {
				t.Errorf("%d samples, %d engines' truths", len(h.Samples), len(h.Truths))
			}
			for _, v := range chaos.Judge(&s, h) {
				t.Errorf("%v %s: %s", v.At, v.Checker, v.What)
			}
			plantLease(t, &s, h)
		})
	}
}

// plantLease has the last read that saw a lease have seen another one, which is to
// be found.
func plantLease(t *testing.T, s *chaos.Scenario, h *chaos.History) {
	t.Helper()
	kinds := make(map[chaos.LeaseKind]int)
	last := -1
	for i := range h.Leases {
		op := &h.Leases[i]
		if kinds[op.Kind]++; op.Kind == chaos.Read && op.OK {
			last = i
		}
	}
	for _, kind := range []chaos.LeaseKind{chaos.Acquire, chaos.Renew, chaos.Revoke, chaos.Read} {
		if kinds[kind] < 10 {
			t.Fatalf("%d times %s is no history of leases", kinds[kind], kind)
		}
	}
	h.Leases[last].Lease.Token.Index++
	if !slices.ContainsFunc(chaos.Judge(s, h), func(v chaos.Violation) bool { return v.Checker == "leases" }) {
		t.Errorf("%+v explains what was never so", h.Leases[last])
	}
}

// TestPlayed plays what the laboratory's ground asks for, and is nothing else.
func TestPlayed(t *testing.T) {
	ask := os.Getenv(askVariable)
	if ask == "" {
		return
	}
	text, err := os.ReadFile(ask)
	if err != nil {
		t.Fatal(err)
	}
	var q question
	if err := json.Unmarshal(text, &q); err != nil {
		t.Fatal(err)
	}
	h := Play(t, &q.Scenario, q.Seed)
	if text, err = json.Marshal(h); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(q.Answer, text, 0o600); err != nil {
		t.Fatal(err)
	}
}
