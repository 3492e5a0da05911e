package sim

import (
	"reflect"
	"testing"

	"github.com/rhizome-router/rhizome/route"
)

// Every ablation changes something, no two the same, and all have names.
func TestAblationsDiffer(t *testing.T) {
	seen := []route.Config{with(route.Rhizome)}
	names := map[string]bool{Ours: true}
	for _, a := range ablations() {
		c := with(route.Rhizome)
		a.change(&c)
		for _, other := range seen {
			if reflect.DeepEqual(c, other) {
				t.Errorf("%s changes nothing, or what another one does", a.name)
			}
		}
		if names[a.name] || a.doc == "" {
			t.Errorf("%q is a second one, or says nothing", a.name)
		}
		if err := c.Validate(); err != nil {
			t.Errorf("%s: %v", a.name, err)
		}
		seen, names[a.name] = append(seen, c), true
		if ps, err := ParsePolicies("sticky," + a.name); err != nil || len(ps) != 2 || ps[1].Name != a.name {
			t.Errorf("%s can't be asked for: %v", a.name, err)
		}
	}
	if len(Ablations()) != len(names) {
		t.Errorf("%d policies of %d names", len(Ablations()), len(names))
	}
}

// The search starts at what ships.
func TestTuningStartsAtTheDefaults(t *testing.T) {
	ours, err := FindTunable(Ours)
	if err != nil {
		t.Fatal(err)
	}
	var x []float64
	for _, p := range ours.Params {
		x = append(x, p.Default)
	}
	if got := tunedConfig(x); !reflect.DeepEqual(got, with(route.Rhizome)) {
		t.Errorf("the search starts at %+v", got)
	}
	for i := range x { // each parameter sets something of its own
		y := append([]float64(nil), x...)
		y[i] += 0.1
		if reflect.DeepEqual(tunedConfig(y), tunedConfig(x)) {
			t.Errorf("%s sets nothing", ours.Params[i].Name)
		}
	}
}
