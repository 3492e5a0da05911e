package pure

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/rhizome-router/rhizome/chaos"
)

// Regress is a schedule that failed once, as small as it could be made.
type Regress struct {
	Scenario chaos.Scenario `json:"scenario"`
	Seed     uint64         `json:"seed"`
	// Checker is which of them failed, Why what was wrong and what was done.
	Checker string `json:"checker"`
	Why     string `json:"why"`
	// Open says that it still fails.
	Open bool `json:"open,omitempty"`
}

// Shrink makes a failing scenario smaller as long as the same checker fails: it
// drops faults, shortens them, and takes away work and workers. tries bounds the
// runs. It returns an error if the scenario doesn't fail.
func Shrink(ctx context.Context, s chaos.Scenario, seed uint64, tries int) (*Regress, error) {
	first, err := failing(ctx, &s, seed)
	if err != nil {
		return nil, err
	}
	if first == nil {
		return nil, fmt.Errorf("chaos: scenario %s passes with seed %d: nothing to shrink", s.Name, seed)
	}
	r := &Regress{Scenario: s, Seed: seed, Checker: first.Checker, Why: first.What, Open: true}
	for again := true; again; {
		again = false
		for _, smaller := range smallerOnes(&r.Scenario) {
			if tries--; tries < 0 {
				return r, nil
			}
			v, err := failing(ctx, &smaller, seed)
			if ctx.Err() != nil {
				return r, ctx.Err()
			}
			if err == nil && v != nil && v.Checker == r.Checker {
				r.Scenario, r.Why, again = smaller, v.What, true
				break
			}
		}
	}
	return r, nil
}

// failing returns the first thing that is wrong with a run; nil for nothing.
func failing(ctx context.Context, s *chaos.Scenario, seed uint64) (*chaos.Violation, error) {
	h, err := Ground{}.Run(ctx, s, seed)
	if err != nil {
		return nil, err
	}
	if all := chaos.Judge(s, h); len(all) > 0 {
		return &all[0], nil
	}
	return nil, nil
}

// smallerOnes are the next steps down from a scenario, the largest first.
func smallerOnes(s *chaos.Scenario) []chaos.Scenario {
	var all []chaos.Scenario
	add := func(do func(n *chaos.Scenario)) {
		n := *s
		n.Faults = slices.Clone(s.Faults)
		if do(&n); n.Validate() == nil {
			all = append(all, n)
		}
	}
	for i := range s.Faults {
		add(func(n *chaos.Scenario) { n.Faults = slices.Delete(n.Faults, i, i+1) })
	}
	if s.Load.Sessions > 1 {
		add(func(n *chaos.Scenario) { n.Load.Sessions /= 2 })
	}
	if s.Workers > 1 {
		add(func(n *chaos.Scenario) { n.Workers-- })
	}
	if s.Replicas > 2 {
		add(func(n *chaos.Scenario) { n.Replicas-- })
	}
	add(func(n *chaos.Scenario) { n.Duration = n.Duration * 3 / 4 })
	for i := range s.Faults {
		if s.Faults[i].For >= time.Second {
			add(func(n *chaos.Scenario) { n.Faults[i].For /= 2 })
		}
		if len(s.Faults[i].A) > 1 {
			add(func(n *chaos.Scenario) { n.Faults[i].A = n.Faults[i].A[1:] })
		}
	}
	return all
}

// Save writes a regress file into a directory, which it makes, and returns its
// path.
func (r *Regress) Save(dir string) (string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("chaos: save a failing schedule: %w", err)
	}
	b, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return "", fmt.Errorf("chaos: save a failing schedule: %w", err)
	}
	path := filepath.Join(dir, fmt.Sprintf("%s-%s-%d.json", r.Scenario.Name, r.Checker, r.Seed))
	if err := os.WriteFile(path, append(b, '\n'), 0o644); err != nil {
		return "", fmt.Errorf("chaos: save a failing schedule: %w", err)
	}
	return path, nil
}

// ReadRegress reads a regress file.
func ReadRegress(path string) (*Regress, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("chaos: read a regress file: %w", err)
	}
	r := new(Regress)
	if err := json.Unmarshal(b, r); err != nil {
		return nil, fmt.Errorf("chaos: read the regress file %s: %w", path, err)
	}
	return r, nil
}
