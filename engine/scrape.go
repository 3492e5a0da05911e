package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

const (
	maxMetricsBytes = 8 << 20
	maxLoadsBytes   = 4 << 20
)

// Scrape reads what the worker shows of its load: GET /metrics, under the names
// of releases old and new, and of an SGLang worker GET /v1/loads before all,
// which is fresher, and there without a flag.
func (w *Worker) Scrape(ctx context.Context) (Telemetry, error) {
	if w.engine() != SGLang {
		return w.metrics(ctx)
	}
	loads, loadsErr := w.get(ctx, "/v1/loads?include=core", maxLoadsBytes)
	t, err := w.metrics(ctx)
	if loadsErr == nil {
		if loadsErr = t.addLoads(loads); loadsErr != nil {
			loadsErr = fmt.Errorf("GET /v1/loads on worker %s: %w", w.Spec.URL, loadsErr)
		}
	}
	if err != nil && loadsErr != nil {
		return Telemetry{}, errors.Join(loadsErr, err)
	}
	if id := w.identity.Load(); id != nil && id.BlockTokens > 0 {
		for i := range t.Ranks {
			t.Ranks[i].BlockTokens = known(float64(id.BlockTokens))
		}
	}
	return t, nil
}

func (w *Worker) metrics(ctx context.Context) (Telemetry, error) {
	body, err := w.get(ctx, "/metrics", maxMetricsBytes)
	if err != nil {
		return Telemetry{}, err
	}
	t, err := parseTelemetry(body)
	if err != nil {
		return Telemetry{}, fmt.Errorf("GET /metrics on worker %s: %w: %w", w.Spec.URL, errBody, err)
	}
	return t, nil
}

// addLoads takes what SGLang's /v1/loads says over what is known from
// elsewhere.
func (t *Telemetry) addLoads(body []byte) error {
	var answer struct {
		Loads []struct {
			Rank          int      `json:"dp_rank"`
			Running       *float64 `json:"num_running_reqs"`
			Waiting       *float64 `json:"num_waiting_reqs"`
			WaitingTokens *float64 `json:"num_waiting_uncached_tokens"`
			MaxSeqs       *float64 `json:"max_running_requests"`
			KVUsage       *float64 `json:"token_usage"`
			HBMTokens     *float64 `json:"max_total_num_tokens"`
		} `json:"loads"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return err
	}
	for _, l := range answer.Loads {
		r := t.rank(l.Rank)
		if r == nil {
			return fmt.Errorf("data-parallel rank %d is out of range", l.Rank)
		}
		for _, x := range [...]struct {
			to   *Value
			from *float64
		}{
			{&r.Running, l.Running}, {&r.Waiting, l.Waiting}, {&r.WaitingTokens, l.WaitingTokens},
			{&r.MaxSeqs, l.MaxSeqs}, {&r.KVUsage, l.KVUsage}, {&r.HBMTokens, l.HBMTokens},
		} {
			if x.from != nil {
				*x.to = known(*x.from)
			}
		}
	}
	return nil
}

func parseTelemetry(body []byte) (Telemetry, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(body))
	if err != nil {
		return Telemetry{}, err
	}
	var t Telemetry
	for _, q := range quantities() {
		told := make(map[int][]float64) // by rank
		found, from := firstOf(families, q.series)
		for _, s := range found {
			if v, rank := valueOf(s, from.count), rankOf(s); v.Known && t.rank(rank) != nil {
				told[rank] = append(told[rank], v.Value)
			}
		}
		for rank, values := range told {
			*q.of(t.rank(rank)) = known(q.fold(values))
		}
	}
	configs, _ := firstOf(families, named("vllm:cache_config_info"))
	for _, s := range configs {
		if r := t.rank(rankOf(s)); r != nil {
			blocks := labelValue(s, "num_gpu_blocks")
			r.BlockTokens = labelValue(s, "block_size")
			if r.BlockTokens.Known && blocks.Known {
				r.HBMTokens = known(r.BlockTokens.Value * blocks.Value)
			}
		}
	}
	starts, _ := firstOf(families, named("process_start_time_seconds"))
	for _, s := range starts {
		t.ProcessStartSeconds = valueOf(s, false)
	}
	return t, nil
}

// firstOf returns the samples of the first series that has any, and which it
// is: where a release has several names for a thing, the newest counts.
func firstOf(families map[string]*dto.MetricFamily, names []series) ([]*dto.Metric, series) {
	for _, name := range names {
		found := slices.DeleteFunc(slices.Clone(families[name.name].GetMetric()), func(s *dto.Metric) bool { return !name.matches(s) })
		if len(found) > 0 {
			return found, name
		}
	}
	return nil, series{}
}

// rankOf returns the data-parallel rank of a sample: vLLM's label "engine",
// SGLang's "dp_rank"; without one there is rank 0 only. It is -1 for a label
// that is no rank.
func rankOf(s *dto.Metric) int {
	for _, l := range s.GetLabel() {
		if name := l.GetName(); name == "engine" || name == "dp_rank" && l.GetValue() != "" {
			n, err := strconv.Atoi(l.GetValue())
			if err != nil {
				return -1
			}
			return n
		}
	}
	return 0
}

// valueOf returns the number of a gauge, a counter or an untyped sample, and
// the sum of a histogram or, if count is set, the number of its samples.
func valueOf(s *dto.Metric, count bool) Value {
	switch {
	case s.Gauge != nil:
		return known(s.GetGauge().GetValue())
	case s.Counter != nil:
		return known(s.GetCounter().GetValue())
	case s.Untyped != nil:
		return known(s.GetUntyped().GetValue())
	case s.Histogram != nil && count:
		return known(float64(s.GetHistogram().GetSampleCount()))
	case s.Histogram != nil:
		return known(s.GetHistogram().GetSampleSum())
	}
	return Value{}
}

func labelValue(s *dto.Metric, name string) Value {
	if x, err := strconv.ParseFloat(label(s, name), 64); err == nil {
		return known(x)
	}
	return Value{}
}

// label returns a label's value, empty where there is none.
func label(s *dto.Metric, name string) string {
	for _, l := range s.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}
