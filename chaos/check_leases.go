package chaos

import (
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// leasesLinear: what callers saw of the leases is what one register for each key
// would have shown them, its tokens grow, and none ends before it was idle for its
// time. What replicas' tables show is no other lease than was granted.
func leasesLinear() Checker {
	const name = "leases"
	return Checker{name, "the history of each lease is linearizable, its tokens grow, and tables show what was granted", func(s *Scenario, h *History) []Violation {
		f := findings{name: name}
		clusters, done := byCluster(h.Leases)
		for _, c := range clusters {
			i := slices.IndexFunc(h.Clusters, func(x LeaseCluster) bool { return x.Cluster == c && len(x.Past) > 0 })
			if i < 0 {
				f.add(h.End, "%d operations on leases were done in cluster %x, and nobody knows where it comes from", done[c], c)
				continue
			}
			line := leaseLine(h.Leases, &h.Clusters[i])
			switch porcupine.CheckOperationsTimeout(leaseModel(), line, leaseCheckTime) {
			case porcupine.Illegal:
				f.add(h.End, "no order of the %d operations on leases of cluster %x explains what their callers saw", len(line), c)
			case porcupine.Unknown:
				f.add(h.End, "the %d operations on leases of cluster %x could not be judged in %v", len(line), c, leaseCheckTime)
			}
		}
		f.compareSeen(h)
		for i := range s.Faults {
			if x := &s.Faults[i]; x.Keep {
				f.compareKept(h, x)
			}
		}
		if len(h.Leases) == 0 && h.Place != Pure { // which has no agreement
			f.add(h.End, "no lease was seen")
		}
		return f.all
	}}
}

const leaseCheckTime = 20 * time.Second

// compareSeen looks at what tables showed: one grant is one lease, wherever it is
// seen, and a workflow's grants are seen in order.
func (f *findings) compareSeen(h *History) {
	type grant struct {
		cluster uint64
		token   Token
		key     string
	}
	type place struct {
		client  int
		cluster uint64
		key     string
	}
	granted, latest := make(map[grant]Lease), make(map[place]Token)
	for i := range h.Leases {
		op := &h.Leases[i]
		if op.Kind != Seen {
			continue
		}
		g, p := grant{op.Cluster, op.Lease.Token, op.Key}, place{op.Client, op.Cluster, op.Key}
		if was, known := granted[g]; known && was != op.Lease {
			f.add(op.Return, "workflow %s has lease %v with holder %x in one table and %x in another", op.Key, op.Lease.Token, was.Holder, op.Lease.Holder)
		}
		if op.Lease.Token.Less(latest[p]) {
			f.add(op.Return, "workflow %s has lease %v in a table that had %v", op.Key, op.Lease.Token, latest[p])
		}
		granted[g], latest[p] = op.Lease, op.Lease.Token
	}
}

// compareKept looks whether what replicas saved before they all crashed is known
// after: a lease is seen again, or a cluster comes from one of before.
func (f *findings) compareKept(h *History, x *Fault) {
	type known struct {
		key   string
		lease Lease
	}
	former, leases := make(map[uint64]bool), make(map[known]bool)
	for i := range h.Leases {
		if op := &h.Leases[i]; op.Return < x.At && !op.Unknown {
			former[op.Cluster], leases[known{op.Key, op.Lease}] = true, true
		}
	}
	for i := range h.Leases {
		op := &h.Leases[i]
		if op.Call >= x.End() && op.Kind == Seen && leases[known{op.Key, op.Lease}] {
			return
		}
	}
	for _, c := range h.Clusters {
		if !former[c.Cluster] && slices.ContainsFunc(c.Past, func(b LeaseBegin) bool { return former[b.Cluster] }) {
			return
		}
	}
	f.add(x.End(), "nothing is known of the leases that were saved before the crash")
}
