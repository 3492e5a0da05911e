package sim

import (
	"encoding/json"
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Equal seeds and code give equal results, however the runs are scheduled.
func TestTwoRunsAreEqual(t *testing.T) {
	sc := small()
	sc.Replicas = 2
	ps, err := ParsePolicies("rhizome,lmetric,dynamo,random,llm-d-approx")
	if err != nil {
		t.Fatal(err)
	}
	var got [2]string
	for i := range got {
		table, err := Play(t.Context(), sc, Options{Policies: ps, Column: Learned, Seeds: []uint64{1, 2}, Parallel: i + 1})
		if err != nil {
			t.Fatal(err)
		}
		raw, err := json.Marshal(table)
		if err != nil {
			t.Fatal(err)
		}
		got[i] = string(raw)
	}
	if diff := cmp.Diff(got[0], got[1]); diff != "" {
		t.Errorf("the same experiment twice (-first +second):\n%s", diff)
	}
}

// Policies must be playable in every scenario, here at a fraction of its
// length, and answer everything where nothing breaks. Each scenario gets ours
// and some of the others in turn; .ci/run plays all by all.
func TestPoliciesPlayEveryScenario(t *testing.T) {
	for i, sc := range Catalogue() {
		shorten(&sc)
		policies := slices.Clone(Policies()[:1])
		for j, p := range Policies()[1:] {
			if (i+j)%6 == 0 {
				policies = append(policies, p)
			}
		}
		t.Run(sc.Name, func(t *testing.T) {
			table, err := Play(t.Context(), sc, Options{Policies: policies, Column: Learned, Seeds: []uint64{1}})
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range table.Order {
				r := table.Policies[name]
				if r.Failed > 0 && !slices.ContainsFunc(sc.Faults, func(f Fault) bool { return f.Kind == Down }) {
					t.Errorf("%s: %v requests failed", name, r.Failed)
				}
				if r.Failed == 0 && r.TTFTMean < table.Bound.TTFTMean {
					t.Errorf("%s: mean TTFT %v is below the bound %v", name, r.TTFTMean, table.Bound.TTFTMean)
				}
				if cached := r.HitHBM + r.HitTier; r.Failed == 0 && cached > table.Bound.Cached+1e-9 {
					t.Errorf("%s: %v of the prompts were cached, the bound is %v", name, cached, table.Bound.Cached)
				}
				if r.Goodput < 0 || r.Goodput > 1 || math.IsNaN(r.TPOTMean) {
					t.Errorf("%s: %+v", name, r)
				}
			}
		})
	}
}

// shorten makes a scenario play in a fraction of a second.
func shorten(sc *Scenario) {
	sc.Workload.Limit, sc.Workload.Seconds = 20, min(sc.Workload.Seconds, 6)
	sc.Workload.Sessions = min(sc.Workload.Sessions, 3)
	if sc.Fleet.Workers > 8 {
		sc.Fleet.Workers = 8
	}
	for i := range sc.Faults {
		f := &sc.Faults[i]
		f.From, f.Until = f.From/20, f.Until/20
		f.Workers = slices.DeleteFunc(f.Workers, func(n int) bool { return n >= sc.Fleet.Workers/2 })
	}
}

// A figure of several seeds comes with the interval of Student's t.
func TestIntervals(t *testing.T) {
	mean, half := interval([]float64{1, 2, 3, 4})
	if mean != 2.5 || math.Abs(half-2.0542) > 1e-3 {
		t.Errorf("mean %v ± %v, want 2.5 ± 2.0542", mean, half)
	}
	if mean, half := interval([]float64{7}); mean != 7 || half != 0 {
		t.Errorf("of one value: %v ± %v", mean, half)
	}
}

func TestCapacityFindsTheEdge(t *testing.T) {
	for _, edge := range []float64{0.4, 1.7, 20} {
		play := func(speed float64) (float64, error) {
			if speed <= edge {
				return 0.99, nil
			}
			return 0.5, nil
		}
		at1, _ := play(1)
		got, curve, err := capacity(at1, 1, play)
		if err != nil || got > edge || got < 0.96*edge {
			t.Errorf("capacity %v, %v; want just below %v", got, err, edge)
		}
		if !slices.IsSortedFunc(curve, func(a, b trial) int { return int(math.Copysign(1, a.speed-b.speed)) }) {
			t.Errorf("the curve is not by speed: %v", curve)
		}
	}
}

func TestUnknownNamesAreExplained(t *testing.T) {
	for _, err := range []error{
		second(ParsePolicies("rhizome,nobody")), second(Find("nowhere")), second(FindSuite("huge")), second(ParseColumn("guessed")), second(FindTunable("sticky")),
	} {
		if err == nil || len(err.Error()) < 30 {
			t.Errorf("error %v does not help", err)
		}
	}
}

func second[T any](_ T, err error) error { return err }
