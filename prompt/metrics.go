package prompt

import "github.com/prometheus/client_golang/prometheus"

// Collector returns the metrics of what is learned and of the learning.
func (l *Learner) Collector() prometheus.Collector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("rhizome_prompt_"+name, help, labels, nil)
	}
	return &collector{l,
		desc("learned_entries", "Boundaries of prompts in memory: trusted ones count, waiting ones need another prompt to agree, unusable ones are remembered as such.", "state"),
		desc("learned_bytes", "Memory of what was learned, about."),
		desc("learned_lookups_total", "Times that a text prompt was looked up: hit when some of its tokens were known.", "result"),
		desc("learned_total", "What became of boundaries: told once, trusted, evicted for want of room, and classes forgotten since they were wrong.", "event"),
		desc("learned_refused_total", "Boundaries that can't be used, by reason.", "reason"),
		desc("learning_questions_total", "Questions to workers: about prompts, and what class they are of.", "about"),
		desc("learning_skipped_total", "Prompts not learned of: no answer of use, an endpoint that does not mind all that makes them up, or too many waited.", "reason"),
		desc("learning_waiting", "Prompts that wait to be asked about."),
		desc("tokenize_total", "Prompts whose tokens were asked for before they were placed: told by a worker, told before, or not told in time.", "result"),
	}
}

type collector struct {
	learner                                                                          *Learner
	entries, bytes, lookups, events, refused, questions, skipped, waiting, tokenized *prometheus.Desc
}

func (c *collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.entries, c.bytes, c.lookups, c.events, c.refused, c.questions, c.skipped, c.waiting, c.tokenized} {
		out <- d
	}
}

func (c *collector) Collect(out chan<- prometheus.Metric) {
	s, l := c.learner.learned.Stats(), c.learner.Stats()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	count := func(d *prometheus.Desc, v uint64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	gauge(c.entries, float64(s.Trusted), "trusted")
	gauge(c.entries, float64(s.Unusable), "unusable")
	gauge(c.entries, float64(s.Entries-s.Trusted-s.Unusable), "waiting")
	gauge(c.bytes, float64(s.Bytes))
	count(c.lookups, s.Hits, "hit")
	count(c.lookups, s.Misses, "miss")
	count(c.events, s.Learned, "told")
	count(c.events, s.Trusts, "trusted")
	count(c.events, s.Evicted, "evicted")
	count(c.events, s.Bumped, "class_forgotten")
	for _, why := range Refusals {
		count(c.refused, s.Refused[why], why.String())
	}
	count(c.questions, l.Questions, "prompt")
	count(c.questions, l.Probes, "class")
	count(c.skipped, l.Failed, "failed")
	count(c.skipped, l.Inexact, "inexact")
	count(c.skipped, l.Dropped, "dropped")
	gauge(c.waiting, float64(l.Waiting))
	count(c.tokenized, l.Tokenized, "told")
	count(c.tokenized, l.TokenizedBefore, "known")
	count(c.tokenized, l.TokenizeFailed, "failed")
}
