package emulator

import (
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// sglangRoutes are what SGLang's server has besides the routes of all.
func sglangRoutes(w *Worker, mux *http.ServeMux) {
	mux.HandleFunc("POST /flush_cache", w.clearCache)
	mux.HandleFunc("POST /tokenize", w.tokenize)
	mux.HandleFunc("POST /v1/tokenize", w.tokenize)
	mux.HandleFunc("POST /detokenize", w.detokenize("text"))
	mux.HandleFunc("POST /v1/detokenize", w.detokenize("text"))
	mux.HandleFunc("GET /health_generate", w.healthGenerate)
	mux.HandleFunc("GET /server_info", w.serverInfo)
	mux.HandleFunc("GET /get_server_info", w.serverInfo)
	mux.HandleFunc("GET /model_info", w.modelInfo)
	mux.HandleFunc("GET /get_model_info", w.modelInfo)
	mux.HandleFunc("GET /v1/loads", w.loads)
}

// healthGenerate runs one token through the engine.
func (w *Worker) healthGenerate(rw http.ResponseWriter, r *http.Request) {
	if !w.door.enter() {
		w.refused(rw)
		return
	}
	defer w.door.leave()
	s := newSequence(w.life.Load().name, []uint32{0}, extras{}, false, 0, 1, 1)
	c := newCall([]*sequence{s}, 1, false, w.owner.now())
	if err := w.tell(func(o *owner) { o.submit(c) }); err != nil {
		w.writeError(rw, http.StatusServiceUnavailable, "ServiceUnavailableError", err.Error())
		return
	}
	select {
	case <-c.wake:
	case <-w.done:
	case <-r.Context().Done():
		w.withdraw(c)
	}
}

// serverInfo says among much else where the KV events are.
func (w *Worker) serverInfo(rw http.ResponseWriter, _ *http.Request) {
	host, port, _ := net.SplitHostPort(w.feed.eventsAddr) // as bound: it has both
	base, _ := strconv.Atoi(port)
	type kvEvents struct {
		Publisher        string `json:"publisher"`
		EndpointHost     string `json:"endpoint_host"`
		EndpointPortBase int    `json:"endpoint_port_base"`
		Topic            string `json:"topic"`
		BlockSize        int    `json:"block_size"`
		DPSize           int    `json:"dp_size"`
	}
	cfg := w.modelConfig
	writeJSON(rw, struct {
		ModelPath            string           `json:"model_path"`
		ServedModelName      string           `json:"served_model_name"`
		Version              string           `json:"version"`
		PageSize             int              `json:"page_size"`
		DPSize               int              `json:"dp_size"`
		ContextLength        int              `json:"context_length"`
		MaxTotalNumTokens    int              `json:"max_total_num_tokens"`
		MaxRunningRequests   int              `json:"max_running_requests"`
		ChunkedPrefillSize   int              `json:"chunked_prefill_size"`
		SpeculativeAlgorithm *string          `json:"speculative_algorithm"`
		KVEvents             kvEvents         `json:"kv_events"`
		InternalStates       []map[string]any `json:"internal_states"`
	}{
		w.cfg.Model, w.cfg.Model, w.cfg.Version, cfg.BlockTokens, 1, w.cfg.MaxModelLen, cfg.PoolTokens, cfg.MaxSeqs, cfg.BudgetTokens, nil,
		kvEvents{"zmq", host, base, w.cfg.Topic, cfg.BlockTokens, 1}, []map[string]any{{}},
	})
}

func (w *Worker) modelInfo(rw http.ResponseWriter, _ *http.Request) {
	writeJSON(rw, map[string]any{"model_path": w.cfg.Model, "tokenizer_path": w.cfg.Model, "is_generation": true})
}

// load is an entry of /v1/loads, one for each data-parallel rank. It lacks
// decode_moments and the optional objects.
type load struct {
	Timestamp                  float64 `json:"timestamp"`
	DPRank                     int     `json:"dp_rank"`
	NumRunningReqs             int     `json:"num_running_reqs"`
	NumWaitingReqs             int     `json:"num_waiting_reqs"`
	NumWaitingUncachedTokens   int     `json:"num_waiting_uncached_tokens"`
	NumUsedTokens              int     `json:"num_used_tokens"`
	NumTotalTokens             int     `json:"num_total_tokens"`
	NumActiveTokens            int     `json:"num_active_tokens"`
	MaxTotalNumTokens          int     `json:"max_total_num_tokens"`
	MaxRunningRequests         int     `json:"max_running_requests"`
	TokenUsage                 float64 `json:"token_usage"`
	GenThroughput              float64 `json:"gen_throughput"`
	CacheHitRate               float64 `json:"cache_hit_rate"`
	Utilization                float64 `json:"utilization"`
	TotalPrefillUncachedTokens int64   `json:"total_prefill_uncached_tokens"`
	TotalPrefillBusyMicros     float64 `json:"total_prefill_busy_us"`
}

// loads answers /v1/loads?dp_rank=n. Rates are means over the worker's life.
func (w *Worker) loads(rw http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	if f := q.Get("format"); f != "" && f != "json" {
		w.writeError(rw, http.StatusBadRequest, "BadRequestError", "format: only json is emulated")
		return
	}
	t, err := w.totals()
	if err != nil {
		w.writeError(rw, http.StatusServiceUnavailable, "ServiceUnavailableError", err.Error())
		return
	}
	cfg := w.modelConfig
	used := t.HBM.UsedBlocks * cfg.BlockTokens
	now := time.Now()
	entries := []load{{
		Timestamp: float64(now.UnixMicro()) / 1e6, NumRunningReqs: t.Running, NumWaitingReqs: t.Waiting, NumWaitingUncachedTokens: t.waitingTokens,
		NumUsedTokens: used, NumTotalTokens: used + t.waitingTokens, NumActiveTokens: used,
		MaxTotalNumTokens: cfg.PoolTokens, MaxRunningRequests: cfg.MaxSeqs, TokenUsage: t.usage(),
		GenThroughput: t.genThroughput(), CacheHitRate: t.hitRate(), Utilization: float64(t.Running) / float64(cfg.MaxSeqs),
		TotalPrefillUncachedTokens: t.ComputedTokens, TotalPrefillBusyMicros: t.wallSeconds(t.PrefillMicros) * 1e6,
	}}
	if rank := q.Get("dp_rank"); rank != "" && rank != "0" {
		entries = []load{}
	}
	writeJSON(rw, struct {
		Timestamp       string `json:"timestamp"`
		Version         string `json:"version"`
		Accelerator     string `json:"accelerator"`
		NumAccelerators int    `json:"num_accelerators"`
		Loads           []load `json:"loads"`
	}{now.UTC().Format(time.RFC3339Nano), w.cfg.Version, "emulated", 1, entries})
}

// usage returns the share of the pool in use, 0 to 1.
func (t *totals) usage() float64 { return float64(t.HBM.UsedBlocks) / float64(t.HBM.CapacityBlocks) }

// hitRate returns the share of prompt tokens that were cached.
func (t *totals) hitRate() float64 {
	return float64(t.hbmTokens+t.tierTokens) / float64(max(t.prefillTokens, 1))
}

// genThroughput returns tokens per wall second of work.
func (t *totals) genThroughput() float64 {
	return float64(t.GeneratedTokens) / max(t.wallSeconds(t.BusyMicros), 1e-6)
}

// sglangSeries are what a scraper of SGLang needs. There is no
// process_start_time_seconds: SGLang's registry gathers several processes.
func sglangSeries(s *series) {
	cfg := s.w.modelConfig
	used := float64(s.HBM.UsedBlocks * cfg.BlockTokens)
	s.gauge("num_running_reqs", "Requests in the batch.", float64(s.Running))
	s.gauge("num_queue_reqs", "Requests waiting.", float64(s.Waiting))
	s.gauge("num_retracted_reqs", "Requests that were retracted and wait.", 0)
	s.gauge("token_usage", "Share of the KV pool in use, 0 to 1.", s.usage())
	s.gauge("num_used_tokens", "Tokens of KV in use.", used)
	s.gauge("kv_used_tokens", "Tokens of KV in use.", used)
	s.gauge("kv_evictable_tokens", "Tokens of KV cached and not in use.", float64(s.HBM.IdleBlocks*cfg.BlockTokens))
	s.gauge("kv_available_tokens", "Tokens of KV free.", float64((s.HBM.CapacityBlocks-s.HBM.UsedBlocks-s.HBM.IdleBlocks)*cfg.BlockTokens))
	s.gauge("max_total_num_tokens", "Tokens in the KV pool.", float64(cfg.PoolTokens))
	s.gauge("page_size", "Tokens in a page.", float64(cfg.BlockTokens))
	s.gauge("cache_hit_rate", "Share of prompt tokens found in the cache.", s.hitRate())
	s.gauge("gen_throughput", "Tokens generated per second.", s.genThroughput())
	s.gauge("utilization", "Share of the request slots in use.", float64(s.Running)/float64(cfg.MaxSeqs))
	s.counter("prompt_tokens_total", "Prompt tokens processed.", float64(s.prefillTokens))
	s.counter("generation_tokens_total", "Tokens generated.", float64(s.GeneratedTokens))
	const cachedTokens, help = "cached_tokens_total", "Prompt tokens found in the cache."
	s.counter(cachedTokens, help, float64(s.hbmTokens), "cache_source", "device")
	s.counter(cachedTokens, help, float64(s.tierTokens), "cache_source", "host")
	s.counter(cachedTokens, help, float64(s.hbmTokens+s.tierTokens), "cache_source", "total")
	s.counter("num_requests_total", "Requests.", float64(s.Requests))
	s.counter("num_aborted_requests_total", "Aborted requests.", float64(s.aborted))
	s.counter("num_retracted_requests_total", "Retractions.", float64(s.Preemptions))
	s.counter("evicted_tokens_total", "Tokens evicted from HBM.", float64(s.Evictions)*float64(cfg.BlockTokens))
	for _, l := range s.Lower { // the host's memory, or none
		s.gauge("hicache_host_used_tokens", "Tokens of KV in host memory.", float64(l.UsedBlocks*cfg.BlockTokens))
		s.gauge("hicache_host_total_tokens", "Tokens of KV that host memory holds.", float64(l.CapacityBlocks*cfg.BlockTokens))
		s.counter("load_back_bytes_total", "Bytes loaded from host memory.", float64(l.LoadedBytes))
		name := s.w.dialect.metrics.prefix + "load_back_duration_seconds"
		s.out <- prometheus.MustNewConstHistogram(prometheus.NewDesc(name, "Time of loads from host memory.", nil, s.labels),
			uint64(l.Loads), s.wallSeconds(l.LoadedMicros), nil)
	}
}
