package load

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"
)

func TestReportCombinesSeeds(t *testing.T) {
	one := func(ttft, hit Figure, errors int) Measures {
		m := Measures{Requests: 10, Errors: errors, TTFTMeanMillis: ttft, TTFTP99Millis: 2 * ttft, HitShare: hit, Utilisation: unknown}
		if errors > 0 {
			m.ErrorKinds = map[string]int{KindConnect: errors}
		}
		return m
	}
	r := Report{Trace: "t", Seeds: []uint64{1, 2}, Speed: 2, PerSeed: []SeedReport{
		{Seed: 1, Ours: one(100, 0.2, 0), Against: map[string]Measures{"peer": one(200, 0.1, 1)}},
		{Seed: 2, Ours: one(300, 0.4, 0), Against: map[string]Measures{"peer": one(300, unknown, 2)}},
	}}
	for i := range r.PerSeed {
		r.PerSeed[i].TTFTRatio = ttftRatios(r.PerSeed[i].Ours, r.PerSeed[i].Against)
	}
	r.combine()
	near(t, "our TTFT", r.Ours.TTFTMeanMillis, 200)
	near(t, "our p99", r.Ours.TTFTP99Millis, 400)
	near(t, "our hit share", r.Ours.HitShare, 0.3)
	near(t, "ratio of means", r.TTFTRatio["peer"], 0.8)
	near(t, "hit share of the seed that told", r.Against["peer"].HitShare, 0.1)
	if p := r.Against["peer"]; p.Requests != 20 || p.Errors != 3 || p.ErrorKinds[KindConnect] != 3 {
		t.Errorf("peer: %+v", p)
	}

	var out bytes.Buffer
	if err := r.WriteJSON(&out); err != nil {
		t.Fatal(err)
	}
	var back map[string]any
	if err := json.Unmarshal(out.Bytes(), &back); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"ours", "against", "ttft_ratio", "infinite_cache_share", "seeds", "speed", "per_seed"} {
		if _, ok := back[key]; !ok {
			t.Errorf("no %q in %s", key, out.String())
		}
	}
	ours := back["ours"].(map[string]any)
	for _, key := range []string{"requests", "errors", "ttft_mean_ms", "ttft_p99_ms", "hit_share", "utilisation"} {
		if _, ok := ours[key]; !ok {
			t.Errorf("no %q in ours", key)
		}
	}
	if ours["utilisation"] != nil || ours["ttft_mean_ms"] != 200.0 {
		t.Errorf("ours: %v", ours)
	}

	out.Reset()
	if err := r.WriteTable(&out); err != nil {
		t.Fatal(err)
	}
	containsAll(t, out.String(), "ours", "peer", "0.800", "ratio to peer by seed:  0.500  1.000", "30.0%")
	for line := range strings.Lines(out.String()) {
		if len(line) > 101 {
			t.Errorf("%d columns: %s", len(line)-1, line)
		}
	}
}

func TestFigureJSON(t *testing.T) {
	for f, want := range map[Figure]string{0.1234567: "0.123457", 0: "0", 1e7: "10000000", Figure(math.Inf(1)): "null"} {
		got, err := json.Marshal(f)
		if err != nil || string(got) != want {
			t.Errorf("%v: %s, %v", float64(f), got, err)
		}
		var back Figure
		if err := json.Unmarshal(got, &back); err != nil || back.Known() != f.Known() {
			t.Errorf("%s reads as %v, %v", got, back, err)
		}
	}
	if m := mean(nil); m.Known() {
		t.Errorf("a mean of nothing: %v", m)
	}
}

func TestBarLeavesNothingRunning(t *testing.T) {
	var out bytes.Buffer
	update, done := Bar(&out)
	update(Progress{1, 4})
	update(Progress{4, 4})
	done()
	if IsTerminal(&out) {
		t.Error("a buffer is no terminal")
	}
}
