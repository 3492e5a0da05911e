package indexbench

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/rhizome-router/rhizome/crdt"
	"github.com/rhizome-router/rhizome/index"
	"github.com/rhizome-router/rhizome/workload"
)

func TestBenchFillsEveryKey(t *testing.T) {
	trace, err := workload.Excerpt(40)
	if err != nil {
		t.Fatal(err)
	}
	last := 0.0
	r, err := Bench(t.Context(), Config{Trace: trace, TraceName: workload.ExcerptName, Progress: func(share float64) { last = share },
		sizes: sizes{copies: 2, workers: 21, held: 500, runs: 1, entries: 60_000, calibration: 1 << 20}})
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
	for _, key := range []string{"block_ops_per_s_per_core", "queries_per_s_per_core", "lookup_p50_us", "lookup_p99_us", "lookup_overload_p99_us",
		"apply_lag_p99_us", "removal_block_p99_us", "bytes_per_entry_core", "bytes_per_entry_all", "gc_pause_p99_us", "calibration_read_ns"} {
		if v, ok := keys[key].(float64); !ok || v <= 0 {
			t.Errorf("%s is %v", key, keys[key])
		}
	}
	if last != 1 || r.Queries != 80 || r.BlockOps == 0 || r.QueryBlocksReached < 1 || r.QueryBlocksReached > r.QueryBlocks {
		t.Errorf("%+v, progress %v", r, last)
	}
	for i, m := range r.Mixes {
		if want := 60_000 / (chainBlocks * m.Sharers) * chainBlocks * m.Sharers; m.Entries != want || m.DropReaderMaxMicros <= 0 || m.RemovalBlockP99Micros > m.RemovalBlockMaxMicros {
			t.Errorf("mix %d: %+v, want %d entries", i, m, want)
		}
	}
	out.Reset()
	if err := r.WriteTable(&out); err != nil || !strings.Contains(out.String(), "block-ops") {
		t.Errorf("%v in\n%s", err, out.String())
	}
}

// What is played is what the workers' caches would do: after it each worker
// holds what its cache does, in its log and in the index, and no more than fits.
func TestScheduleIsCachesAtWork(t *testing.T) {
	trace, err := workload.Excerpt(60)
	if err != nil {
		t.Fatal(err)
	}
	const held = 300
	s := newSchedule(trace, 3, 5, held, 7)
	g := newGround(s.workers, index.Config{}, crdt.LogConfig{})
	ops, full := 0, 0
	var changes []index.Change
	for _, b := range s.batches {
		changes = g.apply(b.worker, b.seq, b.ops, changes)
		ops += len(changes)
	}
	for w, st := range g.streams {
		blocks := st.Stats().Blocks
		if blocks > held || st.Stats().Unkeyed > 0 {
			t.Errorf("worker %d: %+v", w, st.Stats())
		}
		if blocks == held {
			full++
		}
	}
	if full == 0 || ops == 0 || s.blockOps < ops {
		t.Errorf("%d caches are full; %d changes of %d block-ops", full, ops, s.blockOps)
	}
}
