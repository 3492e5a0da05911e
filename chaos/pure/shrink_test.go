package pure

import (
	"path/filepath"
	"testing"

	"github.com/rhizome-router/rhizome/chaos"
)

// TestRegress plays what failed once: it must pass, or fail still where the file
// says that the bug is open.
func TestRegress(t *testing.T) {
	files, err := filepath.Glob("../testdata/regress/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no regress files: %v", err)
	}
	for _, path := range files {
		r, err := ReadRegress(path)
		if err != nil {
			t.Fatal(err)
		}
		v, err := failing(t.Context(), &r.Scenario, r.Seed)
		switch {
		case err != nil:
			t.Errorf("%s: %v", path, err)
		case v != nil && !r.Open:
			t.Errorf("%s fails again: %s: %s", path, v.Checker, v.What)
		case v == nil && r.Open:
			t.Errorf("%s passes now: say so in the file", path)
		}
	}
}

// TestShrink: a failing schedule loses what it fails without, and can be saved
// and read.
func TestShrink(t *testing.T) {
	s := small()
	s.Bounds.Regret = 0.01 // which nothing can meet
	r, err := Shrink(t.Context(), s, 3, 6)
	if err != nil {
		t.Fatal(err)
	}
	if r.Checker != "regret" || len(r.Scenario.Faults) >= len(s.Faults) || len(s.Faults) != len(small().Faults) {
		t.Errorf("%s fails in what has %d faults, of %d", r.Checker, len(r.Scenario.Faults), len(s.Faults))
	}
	path, err := r.Save(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	back, err := ReadRegress(path)
	if err != nil || back.Seed != 3 || back.Scenario.Name != s.Name || len(back.Scenario.Faults) != len(r.Scenario.Faults) {
		t.Errorf("%+v, %v", back, err)
	}
	s.Bounds = chaos.Bounds{}
	if _, err := Shrink(t.Context(), s, 3, 1); err == nil {
		t.Error("a scenario that passes was shrunk")
	}
}
