package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestChaos(t *testing.T) {
	page := filepath.Join(t.TempDir(), "page.html")
	code, out, errs := lab(t, "chaos", "--ground", "pure", "--scenario", "partition-rejoin", "--json", "--report", page)
	if code != 0 {
		t.Fatalf("exit %d: %s", code, errs)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	var sum struct {
		Scenarios, Passed int
		Failed            []string
	}
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &sum); err != nil || sum.Scenarios != 1 || sum.Passed != 1 || sum.Failed == nil || len(lines) != 2 {
		t.Errorf("%v, printed %s", err, out)
	}
	if b, err := os.ReadFile(page); err != nil || !strings.Contains(string(b), "partition-rejoin") {
		t.Errorf("no page: %v", err)
	}
}

// A ground that can't be played on has not been passed.
func TestChaosPassesNothingUnplayed(t *testing.T) {
	for _, args := range [][]string{
		{"--scenario", "disk-full"}, {"--scenario", "none"}, {"--suite", "none"}, {"--ground", "moon"}, {"--seeds", "-1"},
		{"--real", "--scenario", "disk-full", "--rhizome", "none"}, {"--ground", "bubble", "--bubble", "none"},
	} {
		if code, out, _ := lab(t, append([]string{"chaos", "--json"}, args...)...); code == 0 {
			t.Errorf("%v: exit 0, printed %s", args, out)
		}
	}
	code, out, errs := lab(t, "chaos", "--list", "--suite", "standard", "--ground", "all")
	if code != 0 || !strings.Contains(out, "disk-full") || !strings.Contains(out, "pure,bubble,real") {
		t.Errorf("exit %d, printed %s%s", code, out, errs)
	}
}
