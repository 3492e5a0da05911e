package lease

import "github.com/prometheus/client_golang/prometheus"

// Collector returns the metrics of the group. None of their labels is a
// replica's or a workflow's name.
func (g *Group) Collector() prometheus.Collector { return collector{g} }

type collector struct{ g *Group }

func leaseDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("rhizome_leases_"+name, help, labels, nil)
}

var (
	descHeld      = leaseDesc("held", "Workflows that have a lease, as far as is known here.")
	descEvents    = leaseDesc("events_total", "What proposals came to, by kind.", "kind")
	descDropped   = leaseDesc("dropped_total", "Proposals that found no leader in time or no room, and words that had none.")
	descLimited   = leaseDesc("limited_total", "New leases refused here, as the leader, for their API key had too many a second.")
	descMalformed = leaseDesc("malformed_total", "Words of peers that could not be read.")
	descLag       = leaseDesc("lag_entries", "Entries of the log that the leader told of and that are missing here.")
	descFresh     = leaseDesc("fresh", "1 while leases are more than hints: all that the leader told within 2 s is here.")
	descGen       = leaseDesc("generation", "How often the cluster that agrees began anew.")
	descVoters    = leaseDesc("voters", "Replicas that vote, as the leader last told.")
	descLeads     = leaseDesc("leads", "1 on the replica that leads.")
	descLeaders   = leaseDesc("leader_changes_total", "Times that another replica was found to lead.")
	descSpurious  = leaseDesc("spurious_elections_total", "Elections that this replica won though the leader before was heard all the time.")
	descTerm      = leaseDesc("term", "Elections of the present cluster, on replicas that vote.")
)

// Describe is part of prometheus.Collector.
func (collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range [...]*prometheus.Desc{descHeld, descEvents, descDropped, descLimited, descMalformed, descLag, descFresh, descGen, descVoters, descLeads, descLeaders, descSpurious, descTerm} {
		ch <- d
	}
}

// Collect is part of prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	s := c.g.Status()
	gauge := func(d *prometheus.Desc, v float64) { ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v) }
	count := func(d *prometheus.Desc, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	yes := map[bool]float64{true: 1}
	voters := 0
	for _, x := range s.Servers {
		if x.Voter {
			voters++
		}
	}
	gauge(descHeld, float64(s.Leases))
	count(descEvents, s.Grants, "granted")
	count(descEvents, s.Renewals, "renewed")
	count(descEvents, s.Revocations, "revoked")
	count(descEvents, s.Conflicts, "conflict")
	count(descEvents, s.Fences, "fenced")
	count(descEvents, s.Checkpoints, "checkpoint")
	count(descDropped, s.Dropped)
	count(descLimited, s.Limited)
	count(descMalformed, c.g.counts.malformed.Load())
	gauge(descLag, float64(s.Lag))
	gauge(descFresh, yes[s.Fresh])
	gauge(descGen, float64(s.Gen))
	gauge(descVoters, float64(voters))
	gauge(descLeads, yes[s.Leads])
	count(descLeaders, s.LeaderChanges)
	count(descSpurious, s.SpuriousElections)
	gauge(descTerm, float64(s.Term))
}
