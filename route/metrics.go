package route

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rhizome-router/rhizome/cost"
)

// Collector returns the router's metrics.
func (r *Router) Collector() prometheus.Collector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("rhizome_route_"+name, help, labels, nil)
	}
	return &collector{
		router: r, audit: newAuditDescs(),
		decisions: desc("decisions_total", "Requests placed."),
		keyed:     desc("prompts_total", "Requests placed, by what named the parts of their prompts: token ids, learned tokens, tokens asked for (tokenize), bytes, or the session's last worker alone.", "keys"),
		ended:     desc("ended_total", "Requests ended, by result.", "result"),
		constants: desc("fit_constant_micros", "Constants of a class as fitted, by name: a time per request, prompt token, step, sequence, KV token, pair, and per KV byte of a link.", "model", "engine", "preset", "constant"),
		samples:   desc("fit_samples_total", "Samples that a class's constants rest on.", "model", "engine", "preset"),
		alarms:    desc("fit_alarms_total", "Times that a class, or a worker of it, became much slower or faster.", "model", "engine", "preset"),
		residuals: desc("ttft_error_ratio", "|log(predicted/actual)| of times to first token: quantiles of the last thousand.", "model", "engine", "preset", "quantile"),
		sketches:  desc("output_sketches", "Sketches of output lengths kept."),
		queue:     newQueueMetrics(desc),
		peers:     desc("peers_dropped_total", "What other replicas said, or were to be told, and was dropped: refused, for want of room, or unread, as it made no sense.", "why"),
		cached:    desc("cached_tokens_total", "Prompt tokens from cache, of responses that told: predicted, actual, and the sum of their differences.", "kind"),
	}
}

type collector struct {
	router *Router
	audit  auditDescs
	queue  queueMetrics

	decisions, keyed, ended, cached, constants, samples, alarms, residuals, sketches, peers *prometheus.Desc
}

func (c *collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.decisions, c.keyed, c.ended, c.cached, c.constants, c.samples, c.alarms, c.residuals, c.sketches, c.peers} {
		out <- d
	}
	c.audit.describe(out)
	c.queue.describe(out)
}

func (c *collector) Collect(out chan<- prometheus.Metric) {
	c.audit.collect(c.router, out)
	c.queue.collect(c.router.QueueStats(), out)
	s := c.router.Stats()
	count := func(d *prometheus.Desc, v uint64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	count(c.decisions, s.Requests)
	if p := c.router.peering; p != nil {
		count(c.peers, p.refused.Load(), "refused")
		count(c.peers, p.bad.Load(), "unread")
	}
	for k, n := range s.Keyed {
		count(c.keyed, n, Keyed(k).String())
	}
	for result, n := range s.Ended {
		count(c.ended, n, Result(result).String())
	}
	count(c.cached, s.CachedPredicted, "predicted")
	count(c.cached, s.CachedActual, "actual")
	count(c.cached, s.CachedAbsError, "error")
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	classes, sketches := c.router.classStates()
	gauge(c.sketches, float64(sketches))
	for i := range classes {
		x := &classes[i]
		class := []string{x.key.Model, x.key.Engine, x.key.Preset}
		with := func(label string) []string { return append(class[:3:3], label) }
		// order-free: every constant becomes one series
		for name, micros := range x.state.Micros {
			gauge(c.constants, micros, with(name)...)
		}
		count(c.samples, uint64(x.state.Samples), class...)
		count(c.alarms, uint64(x.alarms), class...)
		for j, q := range errorQuantiles {
			gauge(c.residuals, x.errors[j], with(strconv.FormatFloat(q, 'g', -1, 64))...)
		}
	}
}

// errorQuantiles are those shown of how far predictions were off.
var errorQuantiles = [...]float64{0.5, 0.9, 0.99}

// classState is a class as metrics show it.
type classState struct {
	key    ClassKey
	state  cost.FitState
	alarms int // of the class and of its present workers
	errors [len(errorQuantiles)]float64
}

// classStates returns the classes that have workers, and the number of sketches
// of output lengths. A class nobody belongs to any more leaves no series behind.
func (r *Router) classStates() (states []classState, sketches int) {
	members := r.deps.Fleet.View().Members
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.byKey() {
		s := classState{key: c.key, alarms: c.fit.Alarms()}
		workers := 0
		for _, m := range members {
			if m.ClassFit == c.fit {
				workers++
				s.alarms += m.Fit.Alarms()
			}
		}
		if workers == 0 {
			continue
		}
		s.state = c.fit.State(c.base)
		for i, q := range errorQuantiles {
			s.errors[i] = c.residuals.Quantile(q)
		}
		states = append(states, s)
	}
	return states, r.output.Sketches()
}
