package mesh

import "github.com/prometheus/client_golang/prometheus"

// Collector returns the metrics of the node. Their labels are few and fixed: no
// replica and no worker is one.
func (n *Node) Collector() prometheus.Collector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("rhizome_mesh_"+name, help, labels, nil)
	}
	return &collector{
		node:      n,
		members:   desc("members", "Other replicas, by state: up (a connection stands), alive (a member without one) or gone (for a minute at most).", "state"),
		sentBytes: desc("sent_bytes_total", "Bytes of frames for all peers, by class: live or sync (what a peer lacked).", "class"),
		pageBytes: desc("sent_page_bytes_total", "Bytes of these that replicas say of themselves, by kind.", "kind"),
		values:    desc("page_values", "Values known that replicas, this one included, say of themselves, by kind.", "kind"),
		rows:      desc("table_rows", "Rows of the tables that all replicas write, by table.", "table"),
		gauges: []figure{
			{desc("warm", "Whether this replica has caught up with a peer, or found none."), func(s *State) float64 {
				if s.Warm {
					return 1
				}
				return 0
			}},
			{desc("queue_bytes", "Bytes that wait to be sent."), func(s *State) float64 { return float64(s.QueuedBytes) }},
			{desc("streams", "Logs of engines' KV events that are held."), func(s *State) float64 { return float64(s.Streams.Held) }},
			{desc("streams_behind", "Logs of which a peer has more."), func(s *State) float64 { return float64(s.Streams.Behind) }},
			{desc("lag_batches", "Batches that peers are ahead, of all logs together."), func(s *State) float64 { return float64(s.Streams.LagBatches) }},
			{desc("pending_bytes", "Bytes of batches that wait for one before them."), func(s *State) float64 { return float64(s.Streams.PendingBytes) }},
			{desc("ring_bytes", "Bytes of batches that are kept for peers to catch up."), func(s *State) float64 { return float64(s.Streams.RingBytes) }},
			{desc("base_bytes", "Bytes of what logs of KV events lead to."), func(s *State) float64 { return float64(s.Streams.BaseBytes) }},
			{desc("truncated_streams", "Logs of which a tier was let go for want of memory."), func(s *State) float64 { return float64(s.Streams.Truncated) }},
			{desc("wants", "Things that peers asked for and were not sent yet."), func(s *State) float64 { return float64(s.Wants) }},
			{desc("assembling_bytes", "Bytes of snapshots of which not all has come."), func(s *State) float64 { return float64(s.AssemblingBytes) }},
			{desc("addresses", "Addresses where replicas are, were or may be."), func(s *State) float64 { return float64(s.Addresses) }},
			{desc("unkeyed_blocks", "Blocks whose parent is unknown."), func(s *State) float64 { return float64(s.Streams.Unkeyed) }},
		},
		counters: []figure{
			{desc("applied_blocks_total", "Blocks in batches that came from peers."), func(s *State) float64 { return float64(s.AppliedBlocks) }},
			{desc("duplicate_batches_total", "Batches from peers that were here already."), func(s *State) float64 { return float64(s.DuplicateBatches) }},
			{desc("resyncs_total", "Times that a peer was asked for what was missing."), func(s *State) float64 { return float64(s.Resyncs) }},
			{desc("snapshots_sent_total", "Snapshots sent to peers."), func(s *State) float64 { return float64(s.SnapshotsSent) }},
			{desc("snapshots_used_total", "Snapshots taken from peers."), func(s *State) float64 { return float64(s.SnapshotsUsed) }},
			{desc("corruption_total", "Equal logs that led to different contents. It must stay 0."), func(s *State) float64 { return float64(s.Corruption) }},
			{desc("diverged_total", "Agreed marks of streams that the streams here contradict. It must stay 0."), func(s *State) float64 { return float64(s.Diverged) }},
			{desc("incomplete_total", "Comparisons of logs that lost different batches."), func(s *State) float64 { return float64(s.Incomplete) }},
			{desc("lost_ops_total", "Batches given up for a peer's log."), func(s *State) float64 { return float64(s.LostOps) }},
			{desc("refused_total", "What came from peers, or was to be told to them, and was over a bound."), func(s *State) float64 { return float64(s.Refused) }},
			{desc("dropped_frames_total", "Frames for which the queue to a peer had no room; the peer asks for what was in them."), func(s *State) float64 { return float64(s.DroppedFrames) }},
		},
	}
}

// figure is a number of the node's state.
type figure struct {
	desc *prometheus.Desc
	of   func(*State) float64
}

type collector struct {
	node                          *Node
	members, sentBytes, pageBytes *prometheus.Desc
	values, rows                  *prometheus.Desc
	gauges, counters              []figure
}

// Describe is part of prometheus.Collector.
func (c *collector) Describe(out chan<- *prometheus.Desc) {
	out <- c.members
	out <- c.sentBytes
	out <- c.pageBytes
	out <- c.values
	out <- c.rows
	for _, f := range c.gauges {
		out <- f.desc
	}
	for _, f := range c.counters {
		out <- f.desc
	}
}

// Collect is part of prometheus.Collector.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	s := c.node.State()
	members := map[string]int{"up": 0, "alive": 0, "gone": 0}
	for _, m := range s.Members {
		switch {
		case m.Up:
			members["up"]++
		case m.Alive:
			members["alive"]++
		default:
			members["gone"]++
		}
	}
	send := func(d *prometheus.Desc, kind prometheus.ValueType, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, kind, v, labels...)
	}
	for state, n := range members {
		send(c.members, prometheus.GaugeValue, float64(n), state)
	}
	for class, bytes := range s.SentBytes {
		send(c.sentBytes, prometheus.CounterValue, float64(bytes), class)
	}
	for kind, bytes := range s.SentPageBytes {
		send(c.pageBytes, prometheus.CounterValue, float64(bytes), kind)
	}
	for kind, n := range s.Pages {
		send(c.values, prometheus.GaugeValue, float64(n), kind)
	}
	for table, n := range s.TableRows {
		send(c.rows, prometheus.GaugeValue, float64(n), table)
	}
	for _, f := range c.gauges {
		send(f.desc, prometheus.GaugeValue, f.of(&s))
	}
	for _, f := range c.counters {
		send(f.desc, prometheus.CounterValue, f.of(&s))
	}
}
