package decidebench

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"
)

func TestBenchFillsEveryKey(t *testing.T) {
	last := 0.0
	r, err := Bench(t.Context(), Config{Progress: func(share float64) { last = share },
		points: []point{{40, mainTokens / 64}, {8, mainTokens / 64}}, budget: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := json.NewEncoder(&out).Encode(r); err != nil {
		t.Fatal(err)
	}
	var all map[string]any
	if err := json.Unmarshal(out.Bytes(), &all); err != nil {
		t.Fatal(err)
	}
	if rows, ok := all["rows"].([]any); !ok || len(rows) != 2 {
		t.Fatalf("rows are %v", all["rows"])
	}
	all["row"] = all["rows"].([]any)[0]
	for _, name := range []string{"row", "hashing", "text", "concurrent", "paced"} {
		row := all[name].(map[string]any)
		for _, key := range []string{"workers", "prompt_tokens", "decide_p50_us", "decide_p99_us"} {
			if v, ok := row[key].(float64); !ok || v <= 0 {
				t.Errorf("%s: %s is %v", name, key, row[key])
			}
		}
		if _, ok := row["allocs_per_op"].(float64); !ok {
			t.Errorf("%s: no allocs_per_op", name)
		}
	}
	if last != 1 || r.CalibrationReadNanos <= 0 {
		t.Errorf("%+v, progress %v", r, last)
	}
	out.Reset()
	if err := r.WriteTable(&out); err != nil || !strings.Contains(out.String(), "allocations") {
		t.Errorf("%v in\n%s", err, out.String())
	}
}

// Each curve has its points and no others, from left to right.
func TestChart(t *testing.T) {
	r := Report{Rows: []Row{{mainWorkers, mainTokens, 10, 50, 0, 9}, {mainWorkers, 1024, 5, 20, 0, 9}, {10_000, mainTokens, 40, 90, 0, 9}, {8, 1024, 1, 2, 0, 9}}}
	var out bytes.Buffer
	if err := r.WriteChart(&out); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(out.String(), "<polyline"); n != 4 {
		t.Errorf("%d curves in\n%s", n, out.String())
	}
	if !strings.Contains(out.String(), `points="70.0,`) || strings.Contains(out.String(), "NaN") {
		t.Errorf("curves do not begin at the left:\n%s", out.String())
	}
}
