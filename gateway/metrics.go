package gateway

import (
	"errors"
	"fmt"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// Values of the label model for requests that reached no known model, and for
// models beyond the bound.
const (
	modelNone  = "none"
	modelOther = "other"
)

// maxModelLabels bounds how many models have series of their own.
const maxModelLabels = 256

// maxModelLabelBytes is the longest model name that becomes a label.
const maxModelLabelBytes = 128

// metrics are what the front door tells about itself.
type metrics struct {
	requests       *prometheus.CounterVec // code, ending, model
	inFlight       prometheus.Gauge
	bufferedBytes  prometheus.Gauge
	ttftSeconds    *prometheus.HistogramVec // model
	requestSeconds *prometheus.HistogramVec // model
	retries        prometheus.Counter
	retriesDenied  prometheus.Counter
	upstream       *prometheus.CounterVec // kind
	bytes          *prometheus.CounterVec // direction
	tapSkipped     prometheus.Counter
	shadow         *prometheus.CounterVec // agreement
	reservations   prometheus.Gauge
	places         prometheus.Gauge
	unreserved     *prometheus.CounterVec // ending

	mu     sync.Mutex
	models map[string]bool // names that have series
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rhizome_gateway_" + name, Help: help}, labels)
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: "rhizome_gateway_" + name, Help: help})
	}
	seconds := func(name, help string, buckets []float64) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "rhizome_gateway_" + name, Help: help, Buckets: buckets}, []string{"model"})
	}
	m := &metrics{
		requests:      counter("requests_total", "Requests by class of status code, how they ended, and model.", "code", "ending", "model"),
		inFlight:      gauge("in_flight_requests", "Requests being served now."),
		bufferedBytes: gauge("buffered_body_bytes", "Request bodies held in memory now."),
		ttftSeconds: seconds("ttft_seconds", "Time from a streaming request's arrival to the first event of its answer.",
			[]float64{.005, .01, .02, .04, .06, .08, .1, .15, .25, .5, .75, 1, 2.5, 5, 10, 20, 40, 80, 160, 640}),
		requestSeconds: seconds("request_duration_seconds", "Time from a request's arrival to its end.",
			[]float64{.005, .025, .1, .25, .5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320, 640, 1280, 2560}),
		upstream:     counter("upstream_failures_total", "Attempts that a worker failed, by kind.", "kind"),
		bytes:        counter("body_bytes_total", "Body bytes, by direction: request (from clients) or response (to them).", "direction"),
		shadow:       counter("shadow_total", "Decisions compared with another router's, by agreement: same, other, failed, or skipped.", "agreement"),
		reservations: gauge("reservations", "Decisions booked by POST /v1/route of the admin API and not released yet."),
		places:       gauge("places", "Responses and conversations of which it is known which worker holds them."),
		unreserved:   counter("reservations_ended_total", "Reservations that ended, by how: released, expired, or closed with the process.", "ending"),
		models:       make(map[string]bool),
		retries:      prometheus.NewCounter(prometheus.CounterOpts{Name: "rhizome_gateway_retries_total", Help: "Attempts after a request's first."}),
		tapSkipped:   prometheus.NewCounter(prometheus.CounterOpts{Name: "rhizome_gateway_tap_skipped_total", Help: "Responses whose usage and end could not be read because of their Content-Encoding."}),
		retriesDenied: prometheus.NewCounter(prometheus.CounterOpts{Name: "rhizome_gateway_retries_denied_total",
			Help: "Retries that did not happen because the retry budget was empty."}),
	}
	var errs []error
	for _, c := range []prometheus.Collector{m.requests, m.inFlight, m.bufferedBytes, m.ttftSeconds, m.requestSeconds,
		m.retries, m.retriesDenied, m.upstream, m.bytes, m.tapSkipped, m.shadow, m.reservations, m.unreserved, m.places} {
		errs = append(errs, reg.Register(c))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("register the gateway's metrics: %w", err)
	}
	return m, nil
}

// model returns the label of a model that some worker serves.
func (m *metrics) model(name string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.models[name] {
		return name
	}
	if len(m.models) >= maxModelLabels || len(name) > maxModelLabelBytes {
		return modelOther
	}
	m.models[name] = true
	return name
}

// codeClass is the label of a status code.
func codeClass(status int) string {
	switch status / 100 {
	case 2:
		return "2xx"
	case 3:
		return "3xx"
	case 4:
		return "4xx"
	case 5:
		return "5xx"
	}
	return "none" // nothing was answered
}
