package fleet

import "github.com/prometheus/client_golang/prometheus"

// Collector returns the metrics of the sources, whose number the configuration
// bounds.
func (r *Registry) Collector() prometheus.Collector {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("rhizome_discovery_"+name, help, []string{"source"}, nil)
	}
	return &registryCollector{
		registry: r,
		workers:  desc("workers", "Workers that the source told of last."),
		refused:  desc("refused_workers", "Workers of that list that can't be used."),
		age:      desc("age_seconds", "Age of the source's last list; -1 before the first."),
		sees:     desc("up", "Whether the source sees: 0 since its last look failed."),
		failures: desc("failures_total", "Looks of the source that failed."),
	}
}

type registryCollector struct {
	registry *Registry

	workers, refused, age, sees, failures *prometheus.Desc
}

func (c *registryCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.workers, c.refused, c.age, c.sees, c.failures} {
		out <- d
	}
}

func (c *registryCollector) Collect(out chan<- prometheus.Metric) {
	for _, s := range c.registry.Describe().Sources {
		gauge := func(d *prometheus.Desc, v float64) {
			out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, s.Name)
		}
		gauge(c.workers, float64(s.Workers))
		gauge(c.refused, float64(len(s.Refused)))
		gauge(c.age, s.AgeSeconds)
		gauge(c.sees, oneIf(s.Fault == ""))
		out <- prometheus.MustNewConstMetric(c.failures, prometheus.CounterValue, float64(s.Failures), s.Name)
	}
}
