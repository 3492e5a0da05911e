package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/rhizome-router/rhizome/engine/emulator"
	"github.com/rhizome-router/rhizome/engine/model"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// workers starts n lone workers: each is as good a base URL as a router.
func workers(t *testing.T, n int) []string {
	t.Helper()
	preset, err := model.PresetByName("llama3-8b-h100")
	if err != nil {
		t.Fatal(err)
	}
	g, err := emulator.StartGroup(t.Context(), emulator.GroupConfig{Workers: n, AnyPorts: true,
		Config: emulator.Config{Model: "m", Preset: preset, Speedup: 100}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Close() })
	var urls []string
	for _, w := range g.Workers() {
		urls = append(urls, w.URL())
	}
	return urls
}

func TestLoadCompares(t *testing.T) {
	urls := workers(t, 2)
	var out, errs bytes.Buffer
	chart := filepath.Join(t.TempDir(), "chart.svg")
	code := run(t.Context(), []string{"load", "--chart", chart, "--url", urls[0], "--against", "peer=" + urls[1], "--speed", "100",
		"--limit", "30", "--max-output", "4", "--json"}, &out, &errs)
	if code != 0 {
		t.Fatalf("exit %d: %s", code, errs.String())
	}
	var r struct {
		Ours      map[string]any
		Against   map[string]map[string]any
		TTFTRatio map[string]float64 `json:"ttft_ratio"`
		Bound     *float64           `json:"infinite_cache_share"`
	}
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		t.Fatalf("%v in %s", err, out.String())
	}
	for _, m := range []map[string]any{r.Ours, r.Against["peer"]} {
		for _, key := range []string{"requests", "errors", "ttft_mean_ms", "ttft_p99_ms", "hit_share", "utilisation"} {
			if _, ok := m[key].(float64); !ok {
				t.Errorf("%s is %v", key, m[key])
			}
		}
		if m["requests"] != 30.0 || m["errors"] != 0.0 {
			t.Errorf("counts: %v", m)
		}
	}
	if svg, err := os.ReadFile(chart); err != nil || !bytes.Contains(svg, []byte("peer</text>")) {
		t.Errorf("chart: %v", err)
	}
	if r.TTFTRatio["peer"] <= 0 || r.Bound == nil {
		t.Errorf("ratio %v, bound %v", r.TTFTRatio, r.Bound)
	}
}

func TestLoadReadsATraceAndPrintsATable(t *testing.T) {
	urls := workers(t, 1)
	trace := filepath.Join(t.TempDir(), "trace.jsonl")
	line := `{"timestamp": 0, "input_length": 600, "output_length": 2, "hash_ids": [1, 2]}` + "\n"
	if err := os.WriteFile(trace, []byte(line+line), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	if code := run(t.Context(), []string{"load", "--url", urls[0], "--trace", trace, "--speed", "100"}, &out, &errs); code != 0 {
		t.Fatalf("exit %d: %s", code, errs.String())
	}
	if !strings.Contains(out.String(), "ours") || !strings.Contains(out.String(), "TTFT") {
		t.Errorf("table:\n%s", out.String())
	}
}

func TestBadCommandLines(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.jsonl")
	if err := os.WriteFile(bad, []byte("{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"load", "--url", "http://127.0.0.1:1"}, 1, "127.0.0.1:1"},
		{[]string{"load", "--against", "http://h"}, 1, "NAME=URL"},
		{[]string{"load", "--seeds", "0"}, 1, "at least 1"},
		{[]string{"load", "--trace", "/nowhere"}, 2, "/nowhere"},
		{[]string{"load", "--trace", bad}, 1, "line 1"},
		{[]string{"dance"}, 2, "rhizome-lab --help"},
		{[]string{"version"}, 0, ""},
	} {
		var out, errs bytes.Buffer
		code := run(t.Context(), c.args, &out, &errs)
		if code != c.code || !strings.Contains(errs.String(), c.want) {
			t.Errorf("%v: exit %d, want %d with %q: %s", c.args, code, c.code, c.want, errs.String())
		}
	}
}
