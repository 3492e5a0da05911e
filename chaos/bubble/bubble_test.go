package bubble

import (
	"encoding/json"
	"os"
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
			if len(h.Samples) == 0 {
				t.Error("no sample was taken")
			}
			for _, v := range chaos.Judge(&s, h) {
				t.Errorf("%v %s: %s", v.At, v.Checker, v.What)
			}
		})
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
