package lease_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/rhizome-router/rhizome/mesh/lease"
)

// Replicas on real sockets agree, and go on when the leader crashes.
func TestBench(t *testing.T) {
	t.Parallel()
	last := 0.0
	r, err := lease.Bench(t.Context(), lease.BenchConfig{Grants: 2 * time.Second, Idle: 100 * time.Millisecond, Failovers: 1, Progress: func(share float64) { last = share }})
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
	for _, key := range []string{"grants_per_s", "commit_p99_ms", "failover_p99_ms"} {
		if v, ok := keys[key].(float64); !ok || v <= 0 {
			t.Errorf("%s is %v", key, keys[key])
		}
	}
	if _, ok := keys["spurious_elections"]; !ok || last != 1 {
		t.Errorf("%v, progress %v", keys, last)
	}
	out.Reset()
	if err := r.WriteTable(&out); err != nil || !strings.Contains(out.String(), "leases granted a second") {
		t.Errorf("%v in\n%s", err, out.String())
	}
}
