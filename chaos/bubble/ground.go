package bubble

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/rhizome-router/rhizome/chaos"
)

// askVariable names the file with the question that TestPlayed answers.
const askVariable = "RHIZOME_TEST_BUBBLE"

// question is what the test is asked to play, and where its answer goes.
type question struct {
	Scenario chaos.Scenario
	Seed     uint64
	Answer   string
}

// Ground has the package's test, built as a program, play scenarios.
type Ground struct {
	// Binary is that program: `make chaos-build` makes one.
	Binary string
}

// Place implements [chaos.Ground].
func (*Ground) Place() chaos.Place { return chaos.Bubble }

// Ready implements [chaos.Ground].
func (g *Ground) Ready() error {
	if _, err := os.Stat(g.Binary); err != nil {
		return fmt.Errorf("the bubble ground can't be used here: its test isn't built, make chaos-build does it: %w", err)
	}
	return nil
}

// Run implements [chaos.Ground].
func (g *Ground) Run(ctx context.Context, s *chaos.Scenario, seed uint64) (*chaos.History, error) {
	dir, err := os.MkdirTemp("", "rhizome-bubble-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	q := question{*s, seed, filepath.Join(dir, "answer")}
	text, err := json.Marshal(&q)
	if err != nil {
		return nil, err
	}
	ask := filepath.Join(dir, "question")
	if err := os.WriteFile(ask, text, 0o600); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, g.Binary, "-test.run", "^TestPlayed$", "-test.count", "1")
	cmd.Env, cmd.Dir = append(os.Environ(), askVariable+"="+ask), dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("scenario %s in a bubble: %w: %s", s.Name, err, out)
	}
	if text, err = os.ReadFile(q.Answer); err != nil {
		return nil, fmt.Errorf("scenario %s in a bubble: %w; is %s the test of chaos/bubble?", s.Name, err, g.Binary)
	}
	h := new(chaos.History)
	if err := json.Unmarshal(text, h); err != nil {
		return nil, fmt.Errorf("scenario %s in a bubble: %w", s.Name, err)
	}
	return h, nil
}
