package engine

import (
	"slices"

	dto "github.com/prometheus/client_model/go"

	"github.com/rhizome-router/rhizome/kv"
)

// quantity is a number of RankTelemetry and where engines show it: the series
// from the newest name to the oldest, and what to do with several samples of
// one rank.
type quantity struct {
	of     func(*RankTelemetry) *Value
	fold   func([]float64) float64
	series []series
}

// series names samples; where label isn't empty, just those whose label has a
// value that want takes.
// count takes a histogram's number of samples and not their sum.
type series struct {
	name, label string
	want        func(value string) bool
	count       bool
}

func (x series) matches(s *dto.Metric) bool { return x.label == "" || x.want(label(s, x.label)) }

// named returns series by name alone.
func named(names ...string) []series {
	var list []series
	for _, name := range names {
		list = append(list, series{name: name})
	}
	return list
}

// counters returns counters as named in old releases of the Prometheus client
// too, which left out "_total".
func counters(names ...string) []series {
	var list []series
	for _, name := range names {
		list = append(list, series{name: name + "_total"}, series{name: name})
	}
	return list
}

// samples returns a histogram by name, of which the number of samples counts.
func samples(name string) []series { return []series{{name: name, count: true}} }

func only(x series, label string, want func(string) bool) series {
	x.label, x.want = label, want
	return x
}

func is(values ...string) func(string) bool {
	return func(v string) bool { return slices.Contains(values, v) }
}

// cpu returns a number of the transfers to and from CPU memory.
func cpu(of func(*TierTelemetry) *Value) func(*RankTelemetry) *Value {
	return func(r *RankTelemetry) *Value { return of(&r.Tiers[kv.CPU]) }
}

// sum is for a sample per model, or per process with a share of its own.
func sum(values []float64) (total float64) {
	for _, v := range values {
		total += v
	}
	return total
}

func mean(values []float64) float64 { return sum(values) / float64(len(values)) }

// greatest is for SGLang's gauges, which may come from each process of a rank,
// and per priority beside the total.
func greatest(values []float64) float64 { return slices.Max(values) }

// quantities lists what is read of a worker's metrics. An engine shows its own
// names only, so that both engines' can stand side by side.
func quantities() []quantity {
	return append(vllmQuantities(), sglangQuantities()...)
}

func vllmQuantities() []quantity {
	// offload returns one direction of the offload connector's counters: from
	// 0.24 on the direction is in the name, before in a label.
	offload := func(what, direction, transfer string) []series {
		list := counters("vllm:kv_offload_" + direction + "_" + what)
		for _, old := range counters("vllm:kv_offload_total_" + what) {
			list = append(list, only(old, "transfer_type", is(transfer)))
		}
		return list
	}
	return []quantity{
		{func(r *RankTelemetry) *Value { return &r.Running }, sum, named("vllm:num_requests_running")},
		{func(r *RankTelemetry) *Value { return &r.Waiting }, sum, named("vllm:num_requests_waiting")},
		{func(r *RankTelemetry) *Value { return &r.KVUsage }, mean, named("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")},
		{func(r *RankTelemetry) *Value { return &r.PrefixQueriesTokens }, sum,
			counters("vllm:prefix_cache_queries", "vllm:gpu_prefix_cache_queries")},
		{func(r *RankTelemetry) *Value { return &r.PrefixHitsTokens }, sum, counters("vllm:prefix_cache_hits", "vllm:gpu_prefix_cache_hits")},
		{func(r *RankTelemetry) *Value { return &r.ExternalQueriesTokens }, sum, counters("vllm:external_prefix_cache_queries")},
		{func(r *RankTelemetry) *Value { return &r.ExternalHitsTokens }, sum, counters("vllm:external_prefix_cache_hits")},
		{func(r *RankTelemetry) *Value { return &r.InterTokens }, sum, samples("vllm:inter_token_latency_seconds")},
		{func(r *RankTelemetry) *Value { return &r.InterTokenSeconds }, sum, named("vllm:inter_token_latency_seconds")},
		{func(r *RankTelemetry) *Value { return &r.Prefills }, sum, samples("vllm:request_prefill_time_seconds")},
		{func(r *RankTelemetry) *Value { return &r.PrefillSeconds }, sum, named("vllm:request_prefill_time_seconds")},
		{func(r *RankTelemetry) *Value { return &r.PrefilledTokens }, sum,
			[]series{only(series{name: "vllm:prompt_tokens_by_source_total"}, "source", is("local_compute")), {name: "vllm:request_prefill_kv_computed_tokens"}}},
		{cpu(func(t *TierTelemetry) *Value { return &t.LoadBytes }), sum, offload("bytes", "load", "CPU_to_GPU")},
		{cpu(func(t *TierTelemetry) *Value { return &t.LoadSeconds }), mean, offload("time", "load", "CPU_to_GPU")},
		{cpu(func(t *TierTelemetry) *Value { return &t.StoreBytes }), sum, offload("bytes", "store", "GPU_to_CPU")},
		{cpu(func(t *TierTelemetry) *Value { return &t.StoreSeconds }), mean, offload("time", "store", "GPU_to_CPU")},
	}
}

func sglangQuantities() []quantity {
	cached := series{name: "sglang:cached_tokens_total"}
	source := func(want func(string) bool) series { return only(cached, "cache_source", want) }
	return []quantity{
		{func(r *RankTelemetry) *Value { return &r.Running }, greatest, named("sglang:num_running_reqs")},
		{func(r *RankTelemetry) *Value { return &r.Waiting }, greatest, named("sglang:num_queue_reqs")},
		{func(r *RankTelemetry) *Value { return &r.KVUsage }, greatest, named("sglang:token_usage")},
		{func(r *RankTelemetry) *Value { return &r.BlockTokens }, greatest, named("sglang:page_size")},
		{func(r *RankTelemetry) *Value { return &r.HBMTokens }, greatest, named("sglang:max_total_num_tokens")},
		{func(r *RankTelemetry) *Value { return &r.PrefixQueriesTokens }, sum, counters("sglang:prompt_tokens")},
		// Older releases don't say from where.
		{func(r *RankTelemetry) *Value { return &r.PrefixHitsTokens }, sum,
			[]series{source(is("device")), source(is("")), source(is("total"))}},
		{func(r *RankTelemetry) *Value { return &r.ExternalHitsTokens }, sum,
			[]series{source(func(v string) bool { return !is("", "device", "total")(v) })}},
		{func(r *RankTelemetry) *Value { return &r.InterTokens }, sum, samples("sglang:inter_token_latency_seconds")},
		{func(r *RankTelemetry) *Value { return &r.InterTokenSeconds }, sum, named("sglang:inter_token_latency_seconds")},
		{func(r *RankTelemetry) *Value { return &r.PrefilledTokens }, sum, named("sglang:uncached_prompt_tokens_histogram")},
		{cpu(func(t *TierTelemetry) *Value { return &t.LoadBytes }), sum, counters("sglang:load_back_bytes")},
		{cpu(func(t *TierTelemetry) *Value { return &t.LoadSeconds }), mean, named("sglang:load_back_duration_seconds")},
		{cpu(func(t *TierTelemetry) *Value { return &t.StoreBytes }), sum, counters("sglang:hicache_backup_bytes")},
		{cpu(func(t *TierTelemetry) *Value { return &t.StoreSeconds }), mean, named("sglang:hicache_backup_duration_seconds")},
	}
}
