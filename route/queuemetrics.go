package route

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// QueueStats counts what became of requests that waited in the router. All that
// Entered are placed, or in one of the other counts, or waiting still.
type QueueStats struct {
	Waiting  int    // now
	Entered  uint64 // got a place in the queue
	Placed   uint64 // got a worker
	Full     uint64 // were refused because the queue was full; these never entered
	TimedOut uint64 // were refused after waiting as long as one may
	Left     uint64 // were given up by their clients
	Closed   uint64 // were there when the queue was closed
	Failed   uint64 // had no worker left that might serve them
	// WaitSeconds sums how long those placed had waited; Waits counts them by
	// the first of waitBounds that was no less.
	WaitSeconds float64
	Waits       [len(waitBounds) + 1]uint64
}

// waitBounds are the buckets of waiting times, in seconds.
var waitBounds = [...]float64{0.01, 0.05, 0.1, 0.25, 0.5, 1, 2, 4, 7, 10, 30}

// place counts one that got a worker.
func (s *QueueStats) place(waited time.Duration) {
	s.Placed++
	s.WaitSeconds += waited.Seconds()
	i := 0
	for i < len(waitBounds) && waited.Seconds() > waitBounds[i] {
		i++
	}
	s.Waits[i]++
}

// QueueStats returns the counts so far.
func (r *Router) QueueStats() QueueStats {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.queue.stats
	s.Waiting = r.queue.size
	return s
}

// queueMetrics are the descriptions of what is told of the queue.
type queueMetrics struct{ depth, wait, refused, left *prometheus.Desc }

func newQueueMetrics(desc func(name, help string, labels ...string) *prometheus.Desc) queueMetrics {
	return queueMetrics{
		depth:   desc("queue_requests", "Requests that wait in the router for a worker now."),
		wait:    desc("queue_wait_seconds", "How long requests waited in the router that then got a worker."),
		refused: desc("queue_refused_total", "Requests refused with 429, by reason: full (as many waited as may) or wait (it waited as long as one may).", "reason"),
		left:    desc("queue_left_total", "Requests that left the queue otherwise, by reason: cancelled (by the client), closed (the router ends), or no_worker (none is left that might serve it).", "reason"),
	}
}

func (m *queueMetrics) describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.depth, m.wait, m.refused, m.left} {
		out <- d
	}
}

func (m *queueMetrics) collect(s QueueStats, out chan<- prometheus.Metric) {
	out <- prometheus.MustNewConstMetric(m.depth, prometheus.GaugeValue, float64(s.Waiting))
	buckets, sum := make(map[float64]uint64), uint64(0)
	for i, bound := range waitBounds {
		sum += s.Waits[i]
		buckets[bound] = sum
	}
	out <- prometheus.MustNewConstHistogram(m.wait, s.Placed, s.WaitSeconds, buckets)
	for _, c := range []struct {
		desc   *prometheus.Desc
		n      uint64
		reason string
	}{{m.refused, s.Full, "full"}, {m.refused, s.TimedOut, "wait"}, {m.left, s.Left, "cancelled"}, {m.left, s.Closed, "closed"}, {m.left, s.Failed, "no_worker"}} {
		out <- prometheus.MustNewConstMetric(c.desc, prometheus.CounterValue, float64(c.n), c.reason)
	}
}
