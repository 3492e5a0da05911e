package chaos

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"
)

// stub plays whatever it is told to.
type stub struct {
	place Place
	ready error
	run   func(s *Scenario, seed uint64) (*History, error)
}

func (g stub) Place() Place { return g.place }
func (g stub) Ready() error { return g.ready }
func (g stub) Run(_ context.Context, s *Scenario, seed uint64) (*History, error) {
	return g.run(s, seed)
}

func TestPlaySumsUp(t *testing.T) {
	a, h := fine()
	b, c, d := *a, *a, *a
	a.Name, b.Name, c.Name, d.Name = "a", "b", "c", "d"
	c.Grounds, d.Grounds = []Place{Real}, []Place{Bubble}
	all := []Scenario{*a, b, c, d}
	pure := stub{place: Pure, run: func(s *Scenario, seed uint64) (*History, error) {
		if s.Name == "b" && seed == 2 {
			return &History{}, nil // no request was made
		}
		return h, nil
	}}
	real := stub{place: Real, ready: errors.New("no rights"), run: nil}
	seen := 0
	results, err := Play(t.Context(), all, []Ground{pure, real}, Options{Seeds: 2, Progress: func(string) { seen++ }})
	if err != nil {
		t.Fatal(err)
	}
	if len(results) != 5 || seen != 5 || Runs(all, []Ground{pure, real}, Options{Seeds: 2}) != 5 {
		t.Errorf("%d results, progress of %d", len(results), seen)
	}
	sum := Sum(all, results)
	if sum.Scenarios != 4 || sum.Passed != 1 || !slices.Equal(sum.Failed, []string{"b", "c", "d"}) {
		t.Errorf("%+v; a ground that is not ready and a scenario that nobody played have not passed", sum)
	}
	if n := len(Playable(all, []Place{Pure, Real})); n != 3 {
		t.Errorf("%d scenarios can be played on pure and real", n)
	}
}

// What failed on a machine that had no time is played again, three times at
// most; what failed on one that had time is not, nor what passed.
func TestPlayAgainAfterAStall(t *testing.T) {
	s, good := fine()
	s.Grounds = []Place{Real}
	for _, c := range []struct {
		stalled time.Duration
		goodAt  int // the run that is good
		runs    int
		passed  bool
	}{{time.Second, 2, 2, true}, {time.Second, 9, 3, false}, {0, 2, 1, false}, {time.Second, 1, 1, true}} {
		runs := 0
		real := stub{place: Real, run: func(*Scenario, uint64) (*History, error) {
			if runs++; runs == c.goodAt {
				return good, nil
			}
			return &History{Stalled: c.stalled}, nil // no request was made
		}}
		results, err := Play(t.Context(), []Scenario{*s}, []Ground{real}, Options{})
		if err != nil || runs != c.runs || results[0].Passed() != c.passed {
			t.Errorf("%+v: %d runs, passed %v, %v", c, runs, results[0].Passed(), err)
		}
	}
}

// A stretched scenario does as much as before, at its pace: none of its steps is
// left behind its fault's end.
func TestStretchedKeepsItsProportions(t *testing.T) {
	for _, s := range Catalogue() {
		x := s.Stretched(0.5)
		for i := range s.Faults {
			if was, is := &s.Faults[i], &x.Faults[i]; 2*is.At != was.At || 2*is.For != was.For || 2*is.Period != was.Period {
				t.Errorf("%s: %v became %v", s.Name, *was, *is)
			}
		}
	}
}
