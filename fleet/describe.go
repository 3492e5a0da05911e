package fleet

import (
	"errors"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rhizome-router/rhizome/kv"
)

// Ready says why a replica on this fleet should get no traffic yet: nil once
// some worker answers and every answering worker that has KV events is being
// followed.
func (f *Fleet) Ready() error {
	any := false
	for _, m := range f.View().Members {
		if !m.Healthy() {
			continue
		}
		any = true
		if m.Worker.Spec.Events != "" && !m.Cache().Live {
			return errors.New("still connecting to the KV events of " + m.Worker.Spec.URL)
		}
	}
	if !any {
		return errors.New("no worker answers yet")
	}
	return nil
}

// Description is one member as the admin API shows it.
type Description struct {
	Worker     string            `json:"worker"` // its URL
	ID         string            `json:"id"`
	Rank       int16             `json:"rank"` // -1: the worker as a whole
	Class      string            `json:"class"`
	Models     []string          `json:"models"`
	Healthy    bool              `json:"healthy"`
	Events     string            `json:"events,omitempty"`
	EventsLive bool              `json:"events_live"`
	HeldTokens map[string]int    `json:"held_tokens"` // by tier
	Feed       map[string]uint64 `json:"feed"`
}

// Describe returns every member.
func (f *Fleet) Describe() []Description {
	out := []Description{}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, w := range f.workers {
		var models []string
		for _, m := range w.models {
			models = append(models, m.ID)
		}
		for _, m := range w.members {
			c := m.Cache()
			d := Description{
				Worker: w.Spec.URL, ID: w.ID.String(), Rank: m.Target.Rank, Class: m.Class.Name, Models: models, Healthy: m.Healthy(),
				Events: w.Spec.Events, EventsLive: c.Live, HeldTokens: make(map[string]int),
				Feed: map[string]uint64{"batches": c.Batches, "bad_events": c.BadEvents, "resets": c.Resets, "unkeyed_blocks": uint64(c.UnkeyedBlocks)},
			}
			for t := kv.HBM; t < kv.NumTiers; t++ {
				if c.HeldTokens[t] > 0 {
					d.HeldTokens[t.String()] = c.HeldTokens[t]
				}
			}
			out = append(out, d)
		}
	}
	return out
}

// Collector returns the fleet's metrics. They are read from the live view, so
// that a worker that left leaves no series behind.
func (f *Fleet) Collector() prometheus.Collector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("rhizome_worker_"+name, help, append([]string{"worker", "rank"}, labels...), nil)
	}
	return &collector{
		fleet:     f,
		healthy:   desc("healthy", "Whether the worker answered last."),
		live:      desc("events_live", "Whether its KV events arrive."),
		held:      desc("held_tokens", "Tokens its cache holds, by its events.", "tier"),
		batches:   desc("event_batches_total", "KV event batches applied."),
		badEvents: desc("bad_events_total", "KV events that could not be decoded."),
		resets:    desc("event_resets_total", "Times its cache had to be learned anew."),
		unkeyed:   desc("unkeyed_blocks", "Blocks whose parent was never announced."),
	}
}

type collector struct {
	fleet *Fleet

	healthy, live, held, batches, badEvents, resets, unkeyed *prometheus.Desc
}

func (c *collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.healthy, c.live, c.held, c.batches, c.badEvents, c.resets, c.unkeyed} {
		out <- d
	}
}

func (c *collector) Collect(out chan<- prometheus.Metric) {
	for _, m := range c.fleet.View().Members {
		cache := m.Cache()
		labels := []string{m.Worker.Spec.URL, rankLabel(m.Target.Rank)}
		gauge := func(d *prometheus.Desc, v float64, more ...string) {
			out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, append(labels[:2:2], more...)...)
		}
		count := func(d *prometheus.Desc, v uint64) {
			out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
		}
		gauge(c.healthy, oneIf(m.Healthy()))
		gauge(c.live, oneIf(cache.Live))
		for t := kv.HBM; t < kv.NumTiers; t++ {
			gauge(c.held, float64(cache.HeldTokens[t]), t.String())
		}
		count(c.batches, cache.Batches)
		count(c.badEvents, cache.BadEvents)
		count(c.resets, cache.Resets)
		gauge(c.unkeyed, float64(cache.UnkeyedBlocks))
	}
}

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func rankLabel(rank int16) string {
	if rank == kv.NoRank {
		return ""
	}
	return strconv.Itoa(int(rank))
}
