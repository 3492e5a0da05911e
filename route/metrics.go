package route

import (
	"github.com/prometheus/client_golang/prometheus"
)

// Collector returns the router's metrics.
func (r *Router) Collector() prometheus.Collector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("rhizome_route_"+name, help, labels, nil)
	}
	return &collector{
		router:    r,
		decisions: desc("decisions_total", "Requests placed."),
		ended:     desc("ended_total", "Requests ended, by result.", "result"),
		cached:    desc("cached_tokens_total", "Prompt tokens from cache, of responses that told: predicted, actual, and the sum of their differences.", "kind"),
	}
}

type collector struct {
	router *Router

	decisions, ended, cached *prometheus.Desc
}

func (c *collector) Describe(out chan<- *prometheus.Desc) {
	out <- c.decisions
	out <- c.ended
	out <- c.cached
}

func (c *collector) Collect(out chan<- prometheus.Metric) {
	s := c.router.Stats()
	count := func(d *prometheus.Desc, v uint64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	count(c.decisions, s.Requests)
	for result, n := range s.Ended {
		count(c.ended, n, Result(result).String())
	}
	count(c.cached, s.CachedPredicted, "predicted")
	count(c.cached, s.CachedActual, "actual")
	count(c.cached, s.CachedAbsError, "error")
}
