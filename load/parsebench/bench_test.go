package parsebench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

func TestBenchFillsEveryKey(t *testing.T) {
	last := 0.0
	r, err := Bench(t.Context(), Config{Progress: func(share float64) { last = share }, bytes: 96 << 10, rounds: 3})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Rows) != len(Bodies(1000)) || last != 1 || r.OfSkip <= 0 || r.CalibrationReadNanos <= 0 || r.DurationSeconds <= 0 {
		t.Fatalf("%+v, progress %v", r, last)
	}
	for _, row := range r.Rows {
		if row.Bytes < 96<<10 || row.ParseMicros <= 0 || row.SkipMicros <= 0 || row.OfSkip <= 0 || row.LastPieceMicros <= 0 || row.OfSkip > r.OfSkip {
			t.Errorf("%+v", row)
		}
	}
	var out bytes.Buffer
	if err := r.WriteTable(&out); err != nil || !strings.Contains(out.String(), "token ids") {
		t.Errorf("%v in\n%s", err, out.String())
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Bench(ctx, Config{bytes: 1000, rounds: 1}); !errors.Is(err, context.Canceled) {
		t.Errorf("a bench that was called off gave %v", err)
	}
}

// What is measured is what a request holds: JSON, and keys that differ.
func TestBodies(t *testing.T) {
	for _, b := range Bodies(32 << 10) {
		if !json.Valid(b.JSON) || NewSkipper().Skip(b.JSON) != nil {
			t.Errorf("%s is no JSON", b.Name)
		}
		var k Keys
		if err := k.Read(b, 1000, nil); err != nil {
			t.Fatalf("%s: %v", b.Name, err)
		}
		if n := len(k.request.Chunks()) + len(k.request.Tokens); n < 20 || k.request.Model == "" {
			t.Errorf("%s: %d chunks and tokens, model %q", b.Name, n, k.request.Model)
		}
	}
}

// Once its memory has grown, reading allocates nothing.
func TestReadingAllocatesNothing(t *testing.T) {
	for _, b := range Bodies(96 << 10) {
		var k Keys
		if n := testing.AllocsPerRun(20, func() {
			if err := k.Read(b, pieceBytes, nil); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations", b.Name, n)
		}
	}
}
