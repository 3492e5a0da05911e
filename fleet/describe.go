package fleet

import (
	"errors"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rhizome-router/rhizome/engine"
	"github.com/rhizome-router/rhizome/index"
	"github.com/rhizome-router/rhizome/kv"
)

// Ready says why a replica on this fleet should get no traffic yet: nil once
// some worker answers and every answering worker that has KV events is being
// followed, or has had the time to warm up. After that only the lack of any worker counts: one that joins, or
// whose events are lost for a while, is no reason to take the replica out.
func (f *Fleet) Ready() error {
	any, late := false, f.deps.Clock.Now().Sub(f.began) > f.cfg.WarmUp
	for _, m := range f.View().Members {
		if !m.Healthy() {
			continue
		}
		any = true
		if f.warm.Load() {
			return nil
		}
		switch c := m.Cache(); {
		case late:
		case c.Known == Unknown:
			return errors.New("still asking " + m.Worker.Spec.URL + " what it is")
		case c.Known == ByEvents && !c.Live:
			return errors.New("still connecting to the KV events of " + m.Worker.Spec.URL)
		}
	}
	if !any {
		return errors.New("no worker answers")
	}
	f.warm.Store(true)
	return nil
}

// Description is one member as the admin API shows it under /workers.
type Description struct {
	Worker  string   `json:"worker"` // its URL
	ID      string   `json:"id"`
	Rank    int16    `json:"rank"` // -1: the worker as a whole
	Class   string   `json:"class"`
	Models  []string `json:"models"`
	Healthy bool     `json:"healthy"`
	Grade   string   `json:"grade"`                 // how welcome new requests are: fit, busy, suspect or draining
	Why     string   `json:"draining_by,omitempty"` // who says that it drains, or why
	Sources []string `json:"sources"`               // who found it
	SameAs  string   `json:"same_as,omitempty"`     // the URL of the worker that this one is under another name
	Engine  string   `json:"engine,omitempty"`      // once it was asked
	Version string   `json:"version,omitempty"`
	Events  string   `json:"events,omitempty"`
	// WithoutEvents is why its KV events are not followed.
	WithoutEvents string         `json:"without_events,omitempty"`
	Signals       Signals        `json:"signals"`
	HeldTokens    map[string]int `json:"held_tokens"` // by tier
}

// Describe returns every member.
func (f *Fleet) Describe() []Description {
	out := []Description{}
	now := f.deps.Clock.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, w := range f.crew.workers {
		models := make([]string, 0, len(w.models))
		for _, m := range w.models {
			models = append(models, m.ID)
		}
		for _, m := range w.members {
			c := m.Cache()
			id, _ := w.Identity()
			if c.Known != ByEvents {
				id.Events = "" // found perhaps, but not followed
			}
			d := Description{
				Worker: w.Spec.URL, ID: w.ID.String(), Rank: m.Target.Rank, Class: m.Class.Name, Models: models,
				Healthy: m.Healthy(), Grade: m.Grade(now).String(), Engine: id.Engine, Version: id.Version, Events: id.Events, WithoutEvents: id.ApproximateReason,
				Signals: m.Signals(), HeldTokens: heldByTier(&c), Sources: append([]string{}, w.want.Sources...),
			}
			if w.want.Draining {
				d.Why = w.want.Why
			}
			if w.twin != nil {
				d.SameAs = w.twin.Spec.URL
			}
			out = append(out, d)
		}
	}
	return out
}

func heldByTier(c *Cache) map[string]int {
	held := make(map[string]int)
	for t := kv.HBM; t < kv.NumTiers; t++ {
		if c.HeldTokens[t] > 0 {
			held[t.String()] = c.HeldTokens[t]
		}
	}
	return held
}

// IndexState is what the index holds and how each member's part is known, as
// the admin API shows it under /index.
type IndexState struct {
	Index  index.Stats       `json:"index"`
	Sent   index.ApproxStats `json:"sent"`
	Caches []CacheState      `json:"caches"`
}

// CacheState is how one member's cache is known.
type CacheState struct {
	Worker      string         `json:"worker"`
	Rank        int16          `json:"rank"`
	Source      string         `json:"source"` // "events", "sent" where there are none, or "unknown"
	Live        bool           `json:"live"`
	Stalled     bool           `json:"stalled"`
	Truncated   []string       `json:"truncated_tiers"` // no longer indexed, for want of memory
	BlockTokens int            `json:"block_tokens"`
	HeldTokens  map[string]int `json:"held_tokens"`
	Next        uint64         `json:"next_batch"`
	// SinceBatchSeconds is the age of the last batch, -1 before the first.
	SinceBatchSeconds float64 `json:"since_batch_seconds"`
	Blocks            int     `json:"log_blocks"`
	LogBytes          int64   `json:"log_bytes"`
	Unkeyed           int     `json:"unkeyed_blocks"`
	Refused           uint64  `json:"refused_blocks"`
	BadEvents         uint64  `json:"bad_events"`
	Resets            uint64  `json:"resets"`

	// Reads says that this replica reads the events itself, not a peer of it.
	Reads bool             `json:"reads"`
	Feed  engine.FeedStats `json:"feed"`
}

// DescribeIndex returns what is held of whom, and how it is known.
func (f *Fleet) DescribeIndex() IndexState {
	state := IndexState{Index: f.deps.Index.Stats(), Sent: f.deps.Approx.Stats(), Caches: []CacheState{}}
	now := f.deps.Clock.Now()
	for _, m := range f.View().Members {
		c := m.Cache()
		s := CacheState{
			Worker: m.Worker.Spec.URL, Rank: m.Target.Rank, Source: c.Known.String(), Live: c.Live, Stalled: m.Stalled(now),
			BlockTokens: c.BlockTokens, HeldTokens: heldByTier(&c), Next: c.Next, SinceBatchSeconds: -1,
			Blocks: c.Log.Blocks, LogBytes: c.Log.Bytes, Unkeyed: c.Log.Unkeyed, Refused: c.Log.Refused,
			BadEvents: c.BadEvents, Resets: c.Resets,
		}
		s.Truncated = []string{}
		for t := kv.HBM; t < kv.NumTiers; t++ {
			if c.Truncated.Has(t) {
				s.Truncated = append(s.Truncated, t.String())
			}
		}
		if feed := m.feed.Load(); feed != nil {
			s.Reads, s.Feed = true, feed.Stats()
		}
		if c.Batches > 0 {
			s.SinceBatchSeconds = now.Sub(c.LastBatch).Seconds()
		}
		state.Caches = append(state.Caches, s)
	}
	return state
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
		grade:     desc("grade", "How welcome new requests are: 0 fit, 1 busy, 2 suspect, 3 draining."),
		opened:    desc("circuit_opened_total", "Times its circuit opened."),
		inFlight:  desc("in_flight_requests", "Requests that this replica has on it."),
		live:      desc("events_live", "Whether its KV events arrive."),
		stalled:   desc("events_stalled", "Whether its KV events fell silent though requests computed blocks."),
		held:      desc("held_tokens", "Tokens its cache holds, by its events.", "tier"),
		batches:   desc("event_batches_total", "KV event batches applied."),
		badEvents: desc("bad_events_total", "KV events that could not be decoded."),
		resets:    desc("event_resets_total", "Times its cache had to be learned anew."),
		unkeyed:   desc("unkeyed_blocks", "Blocks whose parent was never announced."),
		refused:   desc("refused_blocks_total", "Blocks that found no room in the stream log."),
		truncated: desc("truncated", "Whether a tier is not indexed any more for want of memory.", "tier"),
		gaps:      desc("event_gaps_total", "Holes seen in the live stream of KV events."),
		replays:   desc("event_replay_rounds_total", "Requests for a replay of KV events."),
		silence:   desc("event_age_seconds", "Age of the last batch of KV events."),
		indexed:   prometheus.NewDesc("rhizome_index_blocks", "Blocks in the index: distinct ones, and (block, worker) pairs.", []string{"kind"}, nil),
		bytes:     prometheus.NewDesc("rhizome_index_bytes", "Memory of the index, and its limit.", []string{"kind"}, nil),
		dropped:   prometheus.NewDesc("rhizome_index_refused_total", "Blocks that found no room within the limit of the index.", nil, nil),
		promised:  prometheus.NewDesc("rhizome_index_promises", "Blocks promised by requests on their way.", nil, nil),
		unkept:    prometheus.NewDesc("rhizome_index_promises_refused_total", "Blocks that could not be promised for want of room.", nil, nil),
		sent:      prometheus.NewDesc("rhizome_index_approx_bytes", "Memory for what was sent where.", nil, nil),
		forgotten: prometheus.NewDesc("rhizome_index_approx_evicted_total", "Entries of what was sent where that gave way to others though they may still have counted.", nil, nil),
		unread:    prometheus.NewDesc("rhizome_fleet_unread_shares_total", "Loads of other replicas that could not be read.", nil, nil),
	}
}

type collector struct {
	fleet *Fleet

	healthy, grade, opened, inFlight, live, stalled, held, batches, badEvents, resets, unkeyed, refused, truncated, gaps, replays, silence, indexed, bytes, dropped, promised, unkept, sent, forgotten, unread *prometheus.Desc
}

func (c *collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.healthy, c.grade, c.opened, c.inFlight, c.live, c.stalled, c.held, c.batches, c.badEvents, c.resets, c.unkeyed,
		c.refused, c.truncated, c.gaps, c.replays, c.silence, c.indexed, c.bytes, c.dropped, c.promised, c.unkept, c.sent, c.forgotten, c.unread} {
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
		gauge(c.grade, float64(m.Grade(c.fleet.deps.Clock.Now())))
		count(c.opened, m.Circuit.Opened())
		gauge(c.inFlight, float64(m.Ledger.Booked()))
		gauge(c.live, oneIf(cache.Live))
		gauge(c.stalled, oneIf(m.Stalled(c.fleet.deps.Clock.Now())))
		for t := kv.HBM; t < kv.NumTiers; t++ {
			gauge(c.held, float64(cache.HeldTokens[t]), t.String())
			gauge(c.truncated, oneIf(cache.Truncated.Has(t)), t.String())
		}
		count(c.batches, cache.Batches)
		count(c.badEvents, cache.BadEvents)
		count(c.resets, cache.Resets)
		gauge(c.unkeyed, float64(cache.Log.Unkeyed))
		count(c.refused, cache.Log.Refused)
		if feed := m.feed.Load(); feed != nil {
			stats := feed.Stats()
			count(c.gaps, stats.Gaps)
			count(c.replays, stats.ReplayRounds)
		}
		if cache.Batches > 0 {
			gauge(c.silence, c.fleet.deps.Clock.Now().Sub(cache.LastBatch).Seconds())
		}
	}
	x := c.fleet.deps.Index.Stats()
	whole := func(d *prometheus.Desc, kind prometheus.ValueType, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, kind, v, labels...)
	}
	whole(c.indexed, prometheus.GaugeValue, float64(x.Keys), "distinct")
	whole(c.indexed, prometheus.GaugeValue, float64(x.Holders), "held")
	whole(c.bytes, prometheus.GaugeValue, float64(x.Bytes), "used")
	whole(c.bytes, prometheus.GaugeValue, float64(x.MaxBytes), "limit")
	whole(c.dropped, prometheus.CounterValue, float64(x.Refused))
	whole(c.promised, prometheus.GaugeValue, float64(x.Promises))
	whole(c.unkept, prometheus.CounterValue, float64(x.PromisesRefused))
	sent := c.fleet.deps.Approx.Stats()
	whole(c.sent, prometheus.GaugeValue, float64(sent.Bytes))
	whole(c.forgotten, prometheus.CounterValue, float64(sent.Evicted))
	whole(c.unread, prometheus.CounterValue, float64(c.fleet.shares.unread()))
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
