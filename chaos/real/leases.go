//go:build linux

package real

import (
	"hash/fnv"
	"io"
	"sync"
	"time"

	"github.com/rhizome-router/rhizome/chaos"
	"github.com/rhizome-router/rhizome/mesh/lease"
)

// seenLeases gathers what replicas' tables of leases show, what is new of it.
type seenLeases struct {
	mu      sync.Mutex
	clients map[string]int // a number for each life of a replica
	last    map[seenKey]chaos.Token
	ops     []chaos.LeaseOp
}

// seenKey is a workflow in one life's table, in one cluster.
type seenKey struct {
	client  int
	cluster uint64
	key     string
}

func newSeenLeases() *seenLeases {
	return &seenLeases{clients: make(map[string]int), last: make(map[seenKey]chaos.Token)}
}

// maxSeenLeases bounds what is gathered in a run, which is some thousands.
const maxSeenLeases = 100_000

// note takes what a replica's life tells. Tables that are not of the leader's
// cluster, or lag, are hints, and tell of none.
func (s *seenLeases) note(at time.Duration, replica string, d *lease.Description) {
	if !d.Fresh {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	client, known := s.clients[replica]
	if !known {
		client = len(s.clients)
		s.clients[replica] = client
	}
	cluster := number(d.Cluster)
	for _, l := range d.Held {
		key, token := seenKey{client, cluster, l.Key}, chaos.Token{Gen: l.Gen, Index: l.Index}
		if s.last[key] == token || len(s.ops) >= maxSeenLeases {
			continue
		}
		s.last[key] = token
		s.ops = append(s.ops, chaos.LeaseOp{Client: client, Key: l.Key, Kind: chaos.Seen, Call: at, Return: at, OK: true, Lease: chaos.Lease{Holder: holder(l.Target, l.Boot), Token: token}, Cluster: cluster})
	}
}

// holder is a place as a number.
func holder(target, boot string) uint64 {
	h := fnv.New64a()
	io.WriteString(h, target+" "+boot)
	return h.Sum64()
}
