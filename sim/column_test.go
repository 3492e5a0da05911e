package sim

import "testing"

// From a generic start, the online fit must do as well as the truth, over the
// first 500 requests and with the learning in them; and constants that are
// wrong by a factor of two, and stay so, must cost little. The load is one at
// which a good share of the requests misses its objectives.
func TestLearningAndBeingWrongCostLittle(t *testing.T) {
	sc := Default()
	sc.Workload.Speed = 1.7
	ps, err := ParsePolicies(Ours)
	if err != nil {
		t.Fatal(err)
	}
	goodput := make(map[Column]float64)
	for _, c := range columns {
		table, err := Play(t.Context(), sc, Options{Policies: ps, Column: c, Seeds: []uint64{1, 2}})
		if err != nil {
			t.Fatal(err)
		}
		goodput[c] = table.Policies[Ours].Goodput
	}
	t.Logf("goodput: %v", goodput)
	if goodput[Learned] < 0.95*goodput[Oracle] {
		t.Errorf("goodput %.3f with learned constants, want 95 %% of %.3f with true ones", goodput[Learned], goodput[Oracle])
	}
	if goodput[Misspecified] < 0.95*goodput[Learned] {
		t.Errorf("goodput %.3f with wrong constants, want 95 %% of %.3f with learned ones", goodput[Misspecified], goodput[Learned])
	}
}
