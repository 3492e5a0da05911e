package engine

import (
	"net/http"
	"os"
	"slices"
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
		{
			Running: told(3), Waiting: told(0), KVUsage: told(0.25), BlockTokens: told(16), HBMTokens: told(16 * 27000),
			PrefixQueriesTokens: told(1000), PrefixHitsTokens: told(400), ExternalQueriesTokens: told(600), ExternalHitsTokens: told(150),
			InterTokens: told(400), InterTokenSeconds: told(3.5), Prefills: told(7), PrefillSeconds: told(0.5), PrefilledTokens: told(450),
			Tiers: cpuTier(TierTelemetry{told(19660800), told(0.001), told(78643200), told(0.004)}),
		}, {
			Running: told(5), Waiting: told(2), KVUsage: told(0.75), BlockTokens: told(16), HBMTokens: told(16 * 26000),
			PrefixQueriesTokens: told(3e6), PrefixHitsTokens: told(2e6), ExternalQueriesTokens: told(1e6), ExternalHitsTokens: told(250000),
			Tiers: cpuTier(TierTelemetry{told(32768e6), told(1.5), told(65536e6), told(3.25)}),
		},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	all := RankTelemetry{
		Running: told(8), Waiting: told(2), KVUsage: told(0.5), BlockTokens: told(16), HBMTokens: told(16 * 53000),
		PrefixQueriesTokens: told(3001000), PrefixHitsTokens: told(2000400), ExternalQueriesTokens: told(1000600), ExternalHitsTokens: told(250150),
		InterTokens: told(400), InterTokenSeconds: told(3.5), Prefills: told(7), PrefillSeconds: told(0.5), PrefilledTokens: told(450),
		Tiers: cpuTier(TierTelemetry{told(32768e6 + 19660800), told(1.501 / 2), told(65536e6 + 78643200), told(3.254 / 2)}),
	}
	if diff := cmp.Diff(all, got.Rank(kv.NoRank)); diff != "" {
		t.Errorf("all ranks: -want +got:\n%s", diff)
	}
	if a, b, c := got.CapacityTokens(1), got.CapacityTokens(kv.NoRank), got.CapacityTokens(2); a != 16*26000 || b != 16*53000 || c != 0 {
		t.Errorf("capacities %d, %d, %d", a, b, c)
	}
}

// cpuTier returns the tiers' telemetry where only CPU memory has any.
func cpuTier(t TierTelemetry) (tiers [kv.NumTiers]TierTelemetry) {
	tiers[kv.CPU] = t
	return tiers
}

func parseFile(t testing.TB, name string) Telemetry {
	t.Helper()
	raw, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	got, err := parseTelemetry(raw)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestScrapeOldNames(t *testing.T) {
	got := parseFile(t, "metrics_old.txt")
	want := Telemetry{Ranks: []RankTelemetry{{
		Running: told(4), PrefixQueriesTokens: told(10), PrefixHitsTokens: told(4), BlockTokens: told(16),
	}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if got.CapacityTokens(kv.NoRank) != 0 || got.Rank(kv.NoRank).KVUsage.Known {
		t.Error("something is known that wasn't told")
	}

	got = parseFile(t, "metrics_offload_old.txt")
	want = Telemetry{ProcessStartSeconds: told(1770120000), Ranks: []RankTelemetry{{
		Running: told(1), Waiting: told(0), Tiers: cpuTier(TierTelemetry{told(262144e3), told(0.015625), told(524288e3), told(0.03125)}),
	}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// sglangMetrics is what metrics_sglang.txt shows. The processes of a rank show
// one and the same gauge, and copy their own shares.
var sglangMetrics = Telemetry{Ranks: []RankTelemetry{
	{
		Running: told(7), Waiting: told(2), KVUsage: told(0.5), BlockTokens: told(16), HBMTokens: told(436736),
		PrefixQueriesTokens: told(128000), PrefixHitsTokens: told(40000), ExternalHitsTokens: told(10000),
		Tiers: cpuTier(TierTelemetry{told(6e9), told(0.5), told(6e9), told(0.5)}),
	},
	{Running: told(4), Waiting: told(0), KVUsage: told(0.25), BlockTokens: told(16), HBMTokens: told(430000)},
}}

func TestScrapeSGLang(t *testing.T) {
	got := parseFile(t, "metrics_sglang.txt")
	if diff := cmp.Diff(sglangMetrics, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	for _, c := range []struct {
		text       string
		hits, host Value
	}{
		{"sglang:cached_tokens_total{model_name=\"m\"} 5\n", told(5), Value{}},
		{"sglang:cached_tokens_total{cache_source=\"total\"} 5\n", told(5), Value{}},
		{"sglang:cached_tokens_total{cache_source=\"total\"} 5\nsglang:cached_tokens_total{cache_source=\"device\"} 5\n", told(5), Value{}},
		{"sglang:cached_tokens_total{cache_source=\"host\"} 5\n", Value{}, told(5)},
	} {
		got, err := parseTelemetry([]byte(c.text))
		if r := got.Rank(0); err != nil || r.PrefixHitsTokens != c.hits || r.ExternalHitsTokens != c.host {
			t.Errorf("%s: %+v, %v", c.text, r, err)
		}
	}
}

// /v1/loads outranks the metrics, and either will do.
func TestScrapeSGLangLoads(t *testing.T) {
	loaded := Telemetry{Ranks: slices.Clone(sglangMetrics.Ranks)}
	loaded.Ranks[0].Running, loaded.Ranks[0].Waiting, loaded.Ranks[0].WaitingTokens, loaded.Ranks[0].MaxSeqs = told(9), told(3), told(5120), told(256)
	loaded.Ranks[1].WaitingTokens, loaded.Ranks[1].MaxSeqs = told(0), told(256)
	bare := Telemetry{Ranks: []RankTelemetry{
		{Running: told(9), Waiting: told(3), WaitingTokens: told(5120), MaxSeqs: told(256), KVUsage: told(0.5), HBMTokens: told(436736)},
		{Running: told(4), Waiting: told(0), WaitingTokens: told(0), MaxSeqs: told(256), KVUsage: told(0.25), HBMTokens: told(430000)},
	}}
	for name, c := range map[string]struct {
		metrics, loads bool
		want           Telemetry
	}{"both": {true, true, loaded}, "metrics": {true, false, sglangMetrics}, "loads": {false, true, bare}, "neither": {}} {
		serve := http.NewServeMux()
		if c.metrics {
			serve.HandleFunc("/metrics", func(rw http.ResponseWriter, r *http.Request) { http.ServeFile(rw, r, "testdata/metrics_sglang.txt") })
		}
		if c.loads {
			serve.HandleFunc("/v1/loads", func(rw http.ResponseWriter, r *http.Request) { http.ServeFile(rw, r, "testdata/sglang_loads.json") })
		}
		w := newWorker(t, serve.ServeHTTP)
		w.Spec.Engine = SGLang
		got, err := w.Scrape(t.Context())
		if (err != nil) != (name == "neither") {
			t.Fatalf("%s: %v", name, err)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
	}
}

func TestOddLoads(t *testing.T) {
	for _, bad := range []string{"", "[]", `{"loads":{}}`, `{"loads":[{"dp_rank":-1}]}`, `{"loads":[{"dp_rank":1e9}]}`, `{"loads":[{"num_running_reqs":"x"}]}`} {
		if err := new(Telemetry).addLoads([]byte(bad)); err == nil {
			t.Errorf("%s: no error", bad)
		}
	}
	for _, odd := range []string{"{}", `{"loads":null}`, `{"loads":[]}`} {
		if got := (Telemetry{}); got.addLoads([]byte(odd)) != nil || len(got.Ranks) > 0 {
			t.Errorf("%s: %+v", odd, got)
		}
	}
	got := Telemetry{}
	if err := got.addLoads([]byte(`{"loads":[{"dp_rank":1,"num_running_reqs":null,"novel":{}}]}`)); err != nil || len(got.Ranks) != 2 || got.Ranks[1] != (RankTelemetry{}) {
		t.Errorf("%+v, %v", got, err)
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
	for _, name := range []string{"metrics_new.txt", "metrics_old.txt", "metrics_offload_old.txt", "metrics_sglang.txt"} {
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
