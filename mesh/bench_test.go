package mesh

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// Meshes converge, and what is told is within reason.
func TestBench(t *testing.T) {
	last := 0.0
	r, err := Bench(t.Context(), BenchConfig{Duration: 300 * time.Millisecond, Long: 300 * time.Millisecond, Progress: func(share float64) { last = share },
		sizes: benchSizes{meshes: [3]benchMesh{{whole: 2, held: 32}, {whole: 3, held: 32}, {whole: 2, light: 2, held: 32}},
			applyEngines: 1, applyTurns: 5, streams: 1}})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := json.NewEncoder(&out).Encode(r); err != nil {
		t.Fatal(err)
	}
	var keys map[string]any
	if err := json.Unmarshal(out.Bytes(), &keys); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"convergence_p99_ms_n3", "convergence_p99_ms_n16", "convergence_p99_ms_n64", "ops_per_s_per_core",
		"bytes_per_op", "bytes_per_op_native", "rejoin_bytes_ratio", "rss_mib"} {
		if v, ok := keys[key].(float64); !ok || v <= 0 {
			t.Errorf("%s is %v", key, keys[key])
		}
	}
	if r.RejoinBytesRatio < 1 || r.BytesPerOpNative >= r.BytesPerOp || r.Long.OpsPerS <= 0 || last != 1 {
		t.Errorf("%+v, progress %v", r, last)
	}
	out.Reset()
	if err := r.WriteTable(&out); err != nil || !strings.Contains(out.String(), "at the last of 64") {
		t.Errorf("%v in\n%s", err, out.String())
	}
}
