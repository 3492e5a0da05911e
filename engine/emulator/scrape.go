package emulator

import (
	"maps"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// scrape collects what is read from the model at the time of a scrape.
type scrape struct {
	w       *Worker
	labels  prometheus.Labels
	started time.Time
}

// totals are what a worker counts, at one instant.
type totals struct {
	Stats
	speedup                              float64
	waitingTokens                        int
	prefillTokens, hbmTokens, tierTokens int64
	stops, lengths, aborted              int64
}

// totals asks the owner; an error says that the worker is closed.
func (w *Worker) totals() (totals, error) {
	return ask(w, func(o *owner) totals {
		o.catchUp()
		m := o.metrics
		return totals{
			Stats: o.stats(), speedup: w.cfg.Speedup, waitingTokens: o.model.WaitingTokens(),
			prefillTokens: m.prefillTokens, hbmTokens: m.hbmTokens, tierTokens: m.tierTokens,
			stops: m.stops, lengths: m.lengths, aborted: m.aborted,
		}
	})
}

// wallSeconds returns modelled micros as wall seconds.
func (t *totals) wallSeconds(micros float64) float64 { return micros / 1e6 / t.speedup }

// Describe implements prometheus.Collector: as an unchecked one, since
// everything comes from Collect.
func (s *scrape) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (s *scrape) Collect(out chan<- prometheus.Metric) {
	t, err := s.w.totals()
	if err != nil {
		return
	}
	s.w.dialect.series(&series{totals: t, scrape: s, out: out})
}

// series writes the series of one scrape.
type series struct {
	totals
	*scrape
	out chan<- prometheus.Metric
}

// gauge writes name = v, with the labels of all series and further ones, given
// as name, value, ….
func (s *series) gauge(name, help string, v float64, more ...string) {
	s.send(prometheus.GaugeValue, name, help, v, more)
}

func (s *series) counter(name, help string, v float64, more ...string) {
	s.send(prometheus.CounterValue, name, help, v, more)
}

func (s *series) send(kind prometheus.ValueType, name, help string, v float64, more []string) {
	labels := s.labels
	if len(more) > 0 {
		labels = maps.Clone(labels)
		for i := 0; i < len(more); i += 2 {
			labels[more[i]] = more[i+1]
		}
	}
	s.out <- prometheus.MustNewConstMetric(prometheus.NewDesc(s.w.dialect.metrics.prefix+name, help, nil, labels), kind, v)
}

// vllmSeries are vLLM's, by their names of 0.24 and later.
func vllmSeries(s *series) {
	cfg := s.w.modelConfig
	s.out <- prometheus.MustNewConstMetric(prometheus.NewDesc("process_start_time_seconds", "When this worker started.", nil, nil),
		prometheus.GaugeValue, float64(s.started.UnixNano())/1e9)
	s.out <- prometheus.MustNewConstMetric(prometheus.NewDesc("vllm:cache_config_info", "KV cache configuration.", nil, prometheus.Labels{
		"engine": "0", "block_size": strconv.Itoa(cfg.BlockTokens), "num_gpu_blocks": strconv.Itoa(cfg.PoolTokens / cfg.BlockTokens),
		"cache_dtype": "auto", "enable_prefix_caching": "True", "prefix_caching_hash_algo": "sha256", "gpu_memory_utilization": "0.9",
	}), prometheus.GaugeValue, 1)
	s.gauge("num_requests_running", "Sequences in the batch.", float64(s.Running-s.Loading))
	s.gauge("num_requests_waiting", "Sequences waiting, for capacity or for a load.", float64(s.Waiting+s.Loading))
	s.gauge("kv_cache_usage_perc", "Share of the KV pool in use, 0 to 1.", float64(s.HBM.UsedBlocks)/float64(s.HBM.CapacityBlocks))
	s.counter("num_preemptions_total", "Preemptions.", float64(s.Preemptions))
	s.counter("prompt_tokens_total", "Prompt tokens processed.", float64(s.prefillTokens))
	s.counter("prompt_tokens_cached_total", "Prompt tokens that needed no computing.", float64(s.hbmTokens+s.tierTokens))
	s.counter("generation_tokens_total", "Tokens generated.", float64(s.GeneratedTokens))
	const bySource, help = "prompt_tokens_by_source_total", "Prompt tokens by where they came from."
	s.counter(bySource, help, float64(s.prefillTokens-s.hbmTokens-s.tierTokens), "source", "local_compute")
	s.counter(bySource, help, float64(s.hbmTokens), "source", "local_cache_hit")
	s.counter(bySource, help, float64(s.tierTokens), "source", "external_kv_transfer")
	s.counter("prefix_cache_queries_total", "Tokens looked up in HBM.", float64(s.prefillTokens))
	s.counter("prefix_cache_hits_total", "Tokens found in HBM.", float64(s.hbmTokens))
	s.counter("external_prefix_cache_queries_total", "Tokens looked up in lower tiers.", float64(s.prefillTokens-s.hbmTokens))
	s.counter("external_prefix_cache_hits_total", "Tokens loaded from lower tiers.", float64(s.tierTokens))
	s.counter("request_success_total", "Finished requests.", float64(s.stops), "finished_reason", "stop")
	s.counter("request_success_total", "Finished requests.", float64(s.lengths), "finished_reason", "length")
	s.counter("request_success_total", "Finished requests.", float64(s.aborted), "finished_reason", "abort")
	var loadedBytes, loadedMicros float64
	for _, l := range s.Lower {
		loadedBytes += float64(l.LoadedBytes)
		loadedMicros += l.LoadedMicros
	}
	s.counter("kv_offload_load_bytes_total", "Bytes loaded from lower tiers.", loadedBytes)
	s.counter("kv_offload_load_time_total", "Seconds in which the link was loading.", s.wallSeconds(loadedMicros))
}
