package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

func TestBenchGateway(t *testing.T) {
	var out, errs bytes.Buffer
	if code := run(t.Context(), []string{"bench", "gateway", "--duration", "500ms", "--connections", "2", "--json"}, &out, &errs); code != 0 {
		t.Fatalf("exit %d: %s", code, errs.String())
	}
	var r map[string]any
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		t.Fatalf("%v in %s", err, out.String())
	}
	for _, key := range []string{"added_p50_us_4k", "added_p99_us_4k", "added_p50_us_64k", "added_p50_us_500k", "calibration_relay_p50_us_500k"} {
		if v, ok := r[key].(float64); !ok || v < 0 {
			t.Errorf("%s is %v", key, r[key])
		}
	}
	if code := run(t.Context(), []string{"bench", "gateway", "--connections", "0"}, &out, &errs); code != 1 || !strings.Contains(errs.String(), "--connections") {
		t.Errorf("exit %d: %s", code, errs.String())
	}
}

func TestBenchMeshChecksItsFlags(t *testing.T) {
	var out, errs bytes.Buffer
	if code := run(t.Context(), []string{"bench", "mesh", "--duration", "1ms"}, &out, &errs); code != 1 || !strings.Contains(errs.String(), "--duration") {
		t.Errorf("exit %d: %s", code, errs.String())
	}
}

func TestBenchIndexChecksItsTrace(t *testing.T) {
	var out, errs bytes.Buffer
	if code := run(t.Context(), []string{"bench", "index", "--trace", "/nonexistent"}, &out, &errs); code != 2 || !strings.Contains(errs.String(), "--trace") {
		t.Errorf("exit %d: %s", code, errs.String())
	}
}
