package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// lab runs the command and returns what it printed.
func lab(t *testing.T, args ...string) (code int, out, errs string) {
	t.Helper()
	var o, e bytes.Buffer
	code = run(t.Context(), args, &o, &e)
	return code, o.String(), e.String()
}

func TestAblate(t *testing.T) {
	code, out, errs := lab(t, "sim", "--trace", trace(t), "--ablate", "--seeds", "1")
	if code != 0 || !strings.Contains(out, "minus-queue") || !strings.Contains(out, "plus-eviction") {
		t.Errorf("exit %d, printed %s%s", code, out, errs)
	}
	if code, _, errs := lab(t, "sim", "--ablate", "--policies", "sticky"); code == 0 || !strings.Contains(errs, "--policies") {
		t.Errorf("exit %d, said %s", code, errs)
	}
}

// trace writes a small trace of three conversations.
func trace(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "trace.jsonl")
	lines := []string{
		`{"timestamp": 0, "input_length": 1500, "output_length": 20, "hash_ids": [1, 2, 3]}`,
		`{"timestamp": 100, "input_length": 900, "output_length": 10, "hash_ids": [4, 5]}`,
		`{"timestamp": 3000, "input_length": 2100, "output_length": 30, "hash_ids": [1, 2, 6, 7, 8]}`,
		`{"timestamp": 6000, "input_length": 600, "output_length": 5, "hash_ids": [4, 9]}`,
	}
	if err := os.WriteFile(name, []byte(strings.Join(lines, "\n")), 0o644); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestSimPrintsWhatWasAskedFor(t *testing.T) {
	dir := t.TempDir()
	csv, page := filepath.Join(dir, "rows.csv"), filepath.Join(dir, "page.html")
	code, out, errs := lab(t, "sim", "--trace", trace(t), "--workers", "2", "--speed", "2", "--seeds", "2", "--policies", "rhizome,lmetric",
		"--json", "--csv", csv, "--report", page)
	if code != 0 {
		t.Fatalf("exit %d: %s", code, errs)
	}
	var got struct {
		Column   string
		Policies map[string]map[string]any
		Bound    map[string]float64
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	if got.Column != "learned" || len(got.Policies) != 2 || got.Bound["ttft_mean_s"] <= 0 {
		t.Errorf("column %q, policies %v, bound %v", got.Column, got.Policies, got.Bound)
	}
	for name, row := range got.Policies {
		for _, key := range []string{"ttft_mean_s", "ttft_p50_s", "ttft_p90_s", "ttft_p99_s", "tpot_mean_s", "e2e_mean_s", "goodput", "hit_hbm", "hit_tier",
			"followup_cached", "load_cov", "load_max_mean"} {
			if _, ok := row[key].(float64); !ok {
				t.Errorf("%s: %s is %v", name, key, row[key])
			}
		}
		if ci, ok := row["ci95"].(map[string]any); !ok || ci["ttft_mean_s"] == nil {
			t.Errorf("%s: no interval in %v", name, row["ci95"])
		}
	}
	for _, file := range []string{csv, page} {
		raw, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(raw), "lmetric") {
			t.Errorf("%s: %v, %d bytes without lmetric", file, err, len(raw))
		}
	}
}

func TestSimPlaysAgentsAndReplicas(t *testing.T) {
	code, out, errs := lab(t, "sim", "--sessions", "2", "--workers", "2", "--replicas", "2", "--seeds", "1", "--limit", "40", "--policies", "rhizome,dynamo")
	if code != 0 || !strings.Contains(out, "agents-2") || !strings.Contains(out, "1 seed") {
		t.Errorf("exit %d: %s\n%s", code, errs, out)
	}
}

func TestSimSearchesCapacity(t *testing.T) {
	code, out, errs := lab(t, "sim", "--trace", trace(t), "--workers", "1", "--seeds", "1", "--policies", "round-robin", "--capacity", "--json")
	if code != 0 || !strings.Contains(out, "capacity_speed") {
		t.Errorf("exit %d: %s\n%s", code, errs, out)
	}
}

func TestSimListsWhatThereIs(t *testing.T) {
	code, out, _ := lab(t, "sim", "--list")
	for _, want := range []string{"conversation-1.5", "agents-64", "rhizome", "llm-d-precise-fitted", "dynamo-mocker"} {
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("exit %d: no %s in\n%s", code, want, out)
		}
	}
}

func TestSimExplainsWhatItCannotDo(t *testing.T) {
	for _, args := range [][]string{
		{"sim", "--policies", "nobody"}, {"sim", "--scenario", "nowhere"}, {"sim", "--suite", "huge"}, {"sim", "--column", "guessed"},
		{"sim", "--suite", "quick", "--scenario", "hybrid"}, {"sim", "--workers", "-1"}, {"sim", "--seeds", "-1"}, {"sim", "--preset", "none"},
		{"sim", "--sessions", "4", "--capacity"}, {"tune", "--policy", "sticky"}, {"tune", "--budget", "1"},
	} {
		code, out, errs := lab(t, args...)
		if code == 0 || len(errs) < 30 || out != "" {
			t.Errorf("%v: exit %d, stdout %q, stderr %q", args, code, out, errs)
		}
	}
}

func TestTuneFindsNothingWorseThanTheDefaults(t *testing.T) {
	code, out, errs := lab(t, "tune", "--policy", "lmetric", "--trace", trace(t), "--scenario", "conversation", "--budget", "4", "--json")
	if code != 0 {
		t.Fatalf("exit %d: %s", code, errs)
	}
	var got struct {
		Params        []string
		Default, Best []float64
		BestLoss      float64 `json:"best_loss"`
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	if len(got.Params) == 0 || len(got.Best) != len(got.Params) || len(got.Default) != len(got.Params) || got.BestLoss > 0 {
		t.Errorf("%+v", got)
	}
}
