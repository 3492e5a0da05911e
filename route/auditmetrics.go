package route

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rhizome-router/rhizome/fleet"
	"github.com/rhizome-router/rhizome/kv"
)

// auditDescs are the metrics of predictions and what came of them, by worker.
type auditDescs struct{ causes, short, cached, ttft, windows, precision, resyncs, clock *prometheus.Desc }

func newAuditDescs() auditDescs {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("rhizome_audit_"+name, help, append([]string{"worker", "rank"}, labels...), nil)
	}
	return auditDescs{
		causes:    desc("requests_total", "Responses that told their cached tokens, by what made them differ from the prediction.", "cause"),
		short:     desc("short_tokens_total", "Prompt tokens that were predicted to be cached and were not, by cause.", "cause"),
		cached:    desc("cached_share", "Cached tokens, actual less predicted, by those of the prompt."),
		ttft:      desc("ttft_ratio", "Times to first token, actual by predicted, of streams."),
		windows:   desc("window_tokens_total", "Cached tokens as predicted and as the worker counted, where responses don't tell.", "kind"),
		precision: desc("precision", "How much of what the index says of the worker's cache is there."),
		resyncs:   desc("resyncs_total", "Times its KV events were followed anew for a low precision."),
		clock:     desc("clock_seconds", "How long the prefills booked on it should still take, by the virtual clock."),
	}
}

func (d *auditDescs) describe(out chan<- *prometheus.Desc) {
	for _, x := range []*prometheus.Desc{d.causes, d.short, d.cached, d.ttft, d.windows, d.precision, d.resyncs, d.clock} {
		out <- x
	}
}

// collect tells of the workers in the fleet, and forgets the others.
func (d *auditDescs) collect(r *Router, out chan<- prometheus.Metric) {
	members := r.deps.Fleet.View().Members
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.deps.Clock.Now()
	r.judgeDue(now)
	r.audits.keep(members)
	for _, m := range members {
		labels := []string{m.Worker.Spec.URL, ""}
		if m.Target.Rank != kv.NoRank {
			labels[1] = strconv.Itoa(int(m.Target.Rank))
		}
		send := func(desc *prometheus.Desc, kind prometheus.ValueType, v float64, more ...string) {
			out <- prometheus.MustNewConstMetric(desc, kind, v, append(labels[:2:2], more...)...)
		}
		send(d.precision, prometheus.GaugeValue, m.Precision())
		send(d.resyncs, prometheus.CounterValue, float64(m.Resyncs()))
		send(d.clock, prometheus.GaugeValue, m.Ledger.ClockMicros(now)/1e6)
		w := r.audits.workers[m.Target]
		if w == nil {
			continue
		}
		for c := range numCauses {
			send(d.causes, prometheus.CounterValue, float64(w.causes[c].requests), c.String())
			if c > Under {
				send(d.short, prometheus.CounterValue, float64(w.causes[c].shortTokens), c.String())
			}
		}
		send(d.windows, prometheus.CounterValue, w.windowPredicted, "predicted")
		send(d.windows, prometheus.CounterValue, w.windowActual, "actual")
		out <- prometheus.MustNewConstHistogram(d.cached, w.cached.n, w.cached.sum, w.cached.buckets(), labels...)
		out <- prometheus.MustNewConstHistogram(d.ttft, w.ttft.n, w.ttft.sum, w.ttft.buckets(), labels...)
	}
}

// keep drops the results of all but the given members.
func (a *audits) keep(members []*fleet.Member) {
	in := make(map[kv.Target]bool, len(members))
	for _, m := range members {
		in[m.Target] = true
	}
	for t := range a.workers { // order-free: each by itself
		if !in[t] {
			delete(a.workers, t)
		}
	}
}
