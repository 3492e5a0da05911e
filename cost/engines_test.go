package cost

import "testing"

func TestParseEngineWays(t *testing.T) {
	for i, name := range admissionNames {
		if got, err := ParseAdmission(name); err != nil || got != Admission(i) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	for _, c := range []struct {
		text  string
		want  LoadPolicy
		least float64
		ok    bool
	}{
		{"always", LoadAlways, 0, true}, {"min", LoadMin, 0, true}, {"threshold:4096", LoadThreshold, 4096, true},
		{"threshold:", 0, 0, false}, {"threshold:-1", 0, 0, false}, {"4096", 0, 0, false}, {"", 0, 0, false},
	} {
		got, least, err := ParseLoadPolicy(c.text)
		if (err == nil) != c.ok || c.ok && (got != c.want || least != c.least) {
			t.Errorf("%q: %v, %v, %v", c.text, got, least, err)
		}
	}
	if _, err := ParseAdmission("never"); err == nil {
		t.Error("an admission of any name")
	}
}
