package engine

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/rhizome-router/rhizome/kv"
)

const maxMetricsBytes = 8 << 20

// Value is a number that a worker may or may not have told.
type Value struct {
	Value float64
	Known bool
}

// add sums known values: a series per model, or per rank.
func (v *Value) add(x Value) {
	if x.Known {
		v.Value, v.Known = v.Value+x.Value, true
	}
}

// Telemetry is what one look at a worker's metrics showed. An idle engine
// repeats its last gauges, so they may be old.
type Telemetry struct {
	// ProcessStartSeconds is when the server process started, Unix time.
	ProcessStartSeconds Value
	// Ranks has an entry for each data-parallel rank up to the highest seen.
	Ranks []RankTelemetry
}

// RankTelemetry is what one data-parallel rank shows.
type RankTelemetry struct {
	Running             Value // requests
	Waiting             Value // requests
	KVUsage             Value // share of KV memory in use by running requests, 0 to 1
	PrefixQueriesTokens Value // counter: tokens looked up in the prefix cache
	PrefixHitsTokens    Value // counter: tokens of them found
	BlockTokens         Value // tokens in a block
	HBMBlocks           Value // blocks of KV memory in HBM
}

// Rank returns one rank's telemetry, and for kv.NoRank that of all together:
// sums, and the mean usage.
func (t Telemetry) Rank(rank int) RankTelemetry {
	if rank != kv.NoRank {
		if rank < 0 || rank >= len(t.Ranks) {
			return RankTelemetry{}
		}
		return t.Ranks[rank]
	}
	var all RankTelemetry
	usages := 0.0
	for _, r := range t.Ranks {
		all.Running.add(r.Running)
		all.Waiting.add(r.Waiting)
		all.KVUsage.add(r.KVUsage)
		all.PrefixQueriesTokens.add(r.PrefixQueriesTokens)
		all.PrefixHitsTokens.add(r.PrefixHitsTokens)
		all.HBMBlocks.add(r.HBMBlocks)
		if r.BlockTokens.Known {
			all.BlockTokens = r.BlockTokens
		}
		if r.KVUsage.Known {
			usages++
		}
	}
	all.KVUsage.Value /= max(1, usages)
	return all
}

// CapacityTokens returns how many tokens the HBM of a rank, or with kv.NoRank
// of all ranks, can hold; 0 where the worker doesn't say.
func (t Telemetry) CapacityTokens(rank int) int {
	r := t.Rank(rank)
	tokens := r.BlockTokens.Value * r.HBMBlocks.Value
	if !r.BlockTokens.Known || !r.HBMBlocks.Known || !(tokens > 0 && tokens < 1<<53) {
		return 0
	}
	return int(tokens)
}

// Scrape reads GET /metrics, under the names of vLLM releases old and new.
func (w *Worker) Scrape(ctx context.Context) (Telemetry, error) {
	body, err := w.get(ctx, "/metrics", maxMetricsBytes)
	if err != nil {
		return Telemetry{}, err
	}
	t, err := parseTelemetry(body)
	if err != nil {
		return Telemetry{}, fmt.Errorf("GET /metrics on worker %s: %w", w.Spec.URL, err)
	}
	return t, nil
}

func parseTelemetry(body []byte) (Telemetry, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(body))
	if err != nil {
		return Telemetry{}, err
	}
	var t Telemetry
	// For each value the names that releases gave it, the newest first: where
	// a release has both, the first counts.
	for _, m := range [...]struct {
		names []string
		value func(*RankTelemetry) *Value
	}{
		{[]string{"vllm:num_requests_running"}, func(r *RankTelemetry) *Value { return &r.Running }},
		{[]string{"vllm:num_requests_waiting"}, func(r *RankTelemetry) *Value { return &r.Waiting }},
		{[]string{"vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"}, func(r *RankTelemetry) *Value { return &r.KVUsage }},
		{[]string{"vllm:prefix_cache_queries_total", "vllm:prefix_cache_queries", "vllm:gpu_prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries"},
			func(r *RankTelemetry) *Value { return &r.PrefixQueriesTokens }},
		{[]string{"vllm:prefix_cache_hits_total", "vllm:prefix_cache_hits", "vllm:gpu_prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits"},
			func(r *RankTelemetry) *Value { return &r.PrefixHitsTokens }},
	} {
		for _, s := range firstOf(families, m.names) {
			if r := t.rankOf(s); r != nil {
				m.value(r).add(valueOf(s))
			}
		}
	}
	for _, s := range firstOf(families, []string{"vllm:cache_config_info"}) {
		if r := t.rankOf(s); r != nil {
			r.BlockTokens, r.HBMBlocks = labelValue(s, "block_size"), labelValue(s, "num_gpu_blocks")
		}
	}
	for _, s := range firstOf(families, []string{"process_start_time_seconds"}) {
		t.ProcessStartSeconds = valueOf(s)
	}
	return t, nil
}

func firstOf(families map[string]*dto.MetricFamily, names []string) []*dto.Metric {
	for _, name := range names {
		if f := families[name]; f != nil && len(f.GetMetric()) > 0 {
			return f.GetMetric()
		}
	}
	return nil
}

// rankOf returns the entry of a series' rank, its label "engine"; releases
// without the label have rank 0 only. It is nil for a label that is no rank.
func (t *Telemetry) rankOf(s *dto.Metric) *RankTelemetry {
	rank := 0
	for _, l := range s.GetLabel() {
		if l.GetName() != "engine" {
			continue
		}
		n, err := strconv.Atoi(l.GetValue())
		if err != nil || n < 0 || n >= MaxRanks {
			return nil
		}
		rank = n
	}
	if missing := rank + 1 - len(t.Ranks); missing > 0 {
		t.Ranks = append(t.Ranks, slices.Repeat([]RankTelemetry{{}}, missing)...)
	}
	return &t.Ranks[rank]
}

// valueOf returns the number of a gauge, a counter or an untyped series; a NaN
// or an infinity is not known.
func valueOf(s *dto.Metric) Value {
	var x float64
	switch {
	case s.Gauge != nil:
		x = s.GetGauge().GetValue()
	case s.Counter != nil:
		x = s.GetCounter().GetValue()
	case s.Untyped != nil:
		x = s.GetUntyped().GetValue()
	default:
		return Value{}
	}
	return known(x)
}

func labelValue(s *dto.Metric, name string) Value {
	for _, l := range s.GetLabel() {
		if l.GetName() == name {
			if x, err := strconv.ParseFloat(l.GetValue(), 64); err == nil {
				return known(x)
			}
		}
	}
	return Value{}
}

func known(x float64) Value {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return Value{}
	}
	return Value{Value: x, Known: true}
}
