package engine

import (
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rhizome-router/rhizome/kv"
)

func told(x float64) Value { return Value{Value: x, Known: true} }

func TestScrapeNewNames(t *testing.T) {
	w := newWorker(t, func(rw http.ResponseWriter, r *http.Request) { http.ServeFile(rw, r, "testdata/metrics_new.txt") })
	got, err := w.Scrape(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := Telemetry{ProcessStartSeconds: told(1764215037.25), Ranks: []RankTelemetry{
		{told(3), told(0), told(0.25), told(1000), told(400), told(16), told(27000)},
		{told(5), told(2), told(0.75), told(3e6), told(2e6), told(16), told(26000)},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	all := RankTelemetry{told(8), told(2), told(0.5), told(3001000), told(2000400), told(16), told(53000)}
	if diff := cmp.Diff(all, got.Rank(kv.NoRank)); diff != "" {
		t.Errorf("all ranks: -want +got:\n%s", diff)
	}
	if a, b, c := got.CapacityTokens(1), got.CapacityTokens(kv.NoRank), got.CapacityTokens(2); a != 16*26000 || b != 16*53000 || c != 0 {
		t.Errorf("capacities %d, %d, %d", a, b, c)
	}
}

func TestScrapeOldNames(t *testing.T) {
	raw, err := os.ReadFile("testdata/metrics_old.txt")
	if err != nil {
		t.Fatal(err)
	}
	got, err := parseTelemetry(raw)
	if err != nil {
		t.Fatal(err)
	}
	want := Telemetry{Ranks: []RankTelemetry{{
		Running: told(4), PrefixQueriesTokens: told(10), PrefixHitsTokens: told(4), BlockTokens: told(16),
	}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if got.CapacityTokens(kv.NoRank) != 0 || got.Rank(kv.NoRank).KVUsage.Known {
		t.Error("something is known that wasn't told")
	}
}

func TestScrapeOddBodies(t *testing.T) {
	if got, err := parseTelemetry(nil); err != nil || len(got.Ranks) != 0 {
		t.Errorf("nothing: %+v, %v", got, err)
	}
	odd := "vllm:num_requests_running{engine=\"x\"} 1\nvllm:num_requests_running{engine=\"999999999\"} 1\nvllm:num_requests_running{engine=\"1\"} 2\n"
	got, err := parseTelemetry([]byte(odd))
	if err != nil || len(got.Ranks) != 2 || got.Ranks[0].Running.Known || got.Ranks[1].Running != told(2) {
		t.Errorf("odd labels: %+v, %v", got, err)
	}
	big := newWorker(t, func(rw http.ResponseWriter, r *http.Request) {
		rw.Write([]byte(strings.Repeat("# a comment\n", maxMetricsBytes/10)))
	})
	if _, err := big.Scrape(t.Context()); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("a huge body: %v", err)
	}
	bad := newWorker(t, func(rw http.ResponseWriter, r *http.Request) { rw.Write([]byte("<html>")) })
	if _, err := bad.Scrape(t.Context()); err == nil || !strings.Contains(err.Error(), "GET /metrics on worker "+bad.Spec.URL) {
		t.Errorf("no metrics: %v", err)
	}
}

func FuzzParseTelemetry(f *testing.F) {
	for _, name := range []string{"metrics_new.txt", "metrics_old.txt"} {
		raw, err := os.ReadFile("testdata/" + name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		got, err := parseTelemetry(body)
		if err == nil && (len(got.Ranks) > MaxRanks || got.CapacityTokens(kv.NoRank) < 0) {
			t.Fatalf("%d ranks, %d tokens", len(got.Ranks), got.CapacityTokens(kv.NoRank))
		}
	})
}
