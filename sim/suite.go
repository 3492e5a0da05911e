package sim

import (
	"fmt"
	"slices"
)

// BestShipped is the best of all peers' rows, default or fitted, in the last
// full run (docs/laboratory.md), by the mean of log TTFT over its scenarios: what
// the standard suite measures us against.
const BestShipped = "lmetric-fitted"

// Suite is a list of scenarios with the policies and seeds to play them by.
type Suite struct {
	Name      string
	Scenarios []Scenario
	Policies  string // names
	Columns   []Column
	Seeds     int
}

// Suites returns the suites: quick for every change, standard for a change of
// the decision, full for publication.
func Suites() []Suite {
	few := "rhizome,lmetric,sticky,ttft-only,article," + BestShipped
	return []Suite{
		{Name: "quick", Scenarios: quickScenarios(), Policies: few, Columns: []Column{Learned}, Seeds: 1},
		{Name: "standard", Scenarios: OfSet("B"), Policies: few, Columns: []Column{Learned}, Seeds: 3},
		{Name: "full", Scenarios: fullScenarios(), Columns: columns, Seeds: 10},
	}
}

// FindSuite returns a suite by name.
func FindSuite(name string) (Suite, error) {
	all := Suites()
	i := slices.IndexFunc(all, func(s Suite) bool { return s.Name == name })
	if i < 0 {
		return Suite{}, fmt.Errorf("unknown suite %q: want quick, standard or full", name)
	}
	return all[i], nil
}

// OfSet returns the scenarios of one half of the data.
func OfSet(set string) []Scenario {
	var out []Scenario
	for _, s := range Catalogue() {
		if s.Set == set {
			out = append(out, s)
		}
	}
	return out
}

// quickScenarios are small forms of what the standard suite plays at length.
func quickScenarios() []Scenario {
	var out []Scenario
	for _, s := range Catalogue() {
		switch s.Name {
		case "conversation-1.5":
			s.Workload.Half, s.Workload.Limit = "", 400
		case "agents-64":
			s.Workload.Sessions, s.Fleet.Workers = 24, 3
		case "fleet":
			fleetOf(3, 12)(&s)
			s.Workload.Seconds = 30
		case "bursts":
			s.Workload.Seconds = 60
		default:
			continue
		}
		out = append(out, s)
	}
	return out
}

// fullScenarios are all of set B, the fleet at its published size.
func fullScenarios() []Scenario {
	out := OfSet("B")
	for i := range out {
		if out[i].Name == "fleet" {
			fleetOf(8, 240)(&out[i])
		}
	}
	return out
}
