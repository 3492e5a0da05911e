package chaos

import (
	"testing"
	"time"
)

func TestCatalogueIsValid(t *testing.T) {
	seen := make(map[string]bool)
	for _, s := range Catalogue() {
		if err := s.Validate(); err != nil {
			t.Error(err)
		}
		if seen[s.Name] {
			t.Errorf("two scenarios are called %s", s.Name)
		}
		seen[s.Name] = true
		if s.Last() == 0 {
			t.Errorf("%s: nothing goes wrong", s.Name)
		}
		if s.Quick && !s.On(Pure) {
			t.Errorf("%s is quick and not played on the quickest ground", s.Name)
		}
	}
	for _, name := range []string{"quick", "standard"} {
		if all, err := Suite(name); err != nil || len(all) == 0 {
			t.Errorf("suite %s: %d scenarios, %v", name, len(all), err)
		}
	}
	if _, err := Suite("none"); err == nil {
		t.Error("a suite that does not exist was found")
	}
	if _, err := Find("partition-rejoin,none"); err == nil {
		t.Error("a scenario that does not exist was found")
	}
}

func TestValidateRefuses(t *testing.T) {
	for name, spoil := range map[string]func(*Scenario){
		"a replica that is not there": func(s *Scenario) { s.Faults[0].A = []int{3} },
		"a fault after the end":       func(s *Scenario) { s.Faults[0].At = time.Hour },
		"an unknown fault":            func(s *Scenario) { s.Faults[0].Kind = "quake" },
		"no ground":                   func(s *Scenario) { s.Grounds = nil },
		"a flap without a period":     func(s *Scenario) { s.Faults[0].Kind = Flap },
		"a share over 1":              func(s *Scenario) { s.Faults[0] = Fault{Kind: Loss, Amount: 2} },
	} {
		s := Catalogue()[0]
		if spoil(&s); s.Validate() == nil {
			t.Errorf("%s was taken", name)
		}
	}
}
