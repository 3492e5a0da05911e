package lease

import (
	"cmp"
	"encoding/binary"
	"slices"
	"sync"
	"sync/atomic"
)

// shards is into how many parts the leases are cut for those who read them.
const shards = 64

// table is the leases once more, for those who must not wait: decisions. What
// holds the state for long (a snapshot of many leases takes tens of
// milliseconds) does not hold it; a reader waits at most for one lease to be
// written in the same shard.
type table struct {
	index  atomic.Uint64 // of the state, once its leases are here
	shards [shards]struct {
		mu sync.RWMutex
		of map[Key]Lease
	}
}

// tableOf returns the table of a state.
func tableOf(s *State) *table {
	t := new(table)
	for i := range t.shards {
		t.shards[i].of = make(map[Key]Lease, len(s.leases)/shards)
	}
	for _, l := range s.leases { // order-free: each in its place
		t.put(*l)
	}
	t.index.Store(s.index)
	return t
}

// shard is where a key is; keys are hashes.
func shard(k *Key) int { return int(binary.LittleEndian.Uint16(k[:]) % shards) }

func (t *table) put(l Lease) {
	s := &t.shards[shard(&l.Key)]
	s.mu.Lock()
	s.of[l.Key] = l
	s.mu.Unlock()
}

// took brings the table up to what an entry came to.
func (t *table) took(s *State, events []Event) {
	for i := range events {
		switch e := &events[i]; e.Kind {
		case Granted, Renewed:
			t.put(e.Lease)
		case Revoked:
			s := &t.shards[shard(&e.Lease.Key)]
			s.mu.Lock()
			delete(s.of, e.Lease.Key)
			s.mu.Unlock()
		}
	}
	t.index.Store(s.index)
}

// lease returns a workflow's lease, and up to which place in the log all is
// here; the lease may be of a later one.
func (t *table) lease(k Key) (l Lease, found bool, index uint64) {
	index = t.index.Load()
	s := &t.shards[shard(&k)]
	s.mu.RLock()
	l, found = s.of[k]
	s.mu.RUnlock()
	return l, found, index
}

// latest orders leases by their last use, latest first.
func latest(a, b Lease) int {
	return cmp.Or(cmp.Compare(b.Used, a.Used), slices.Compare(a.Key[:], b.Key[:]))
}

// list returns the first of those leases that are wanted, n at most.
func (t *table) list(n int, wanted func(Key) bool, order func(a, b Lease) int) []Lease {
	var all []Lease
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.RLock()
		for k, l := range s.of { // order-free: sorted below
			if wanted(k) {
				all = append(all, l)
			}
		}
		s.mu.RUnlock()
	}
	slices.SortFunc(all, order)
	return slices.Clone(all[:min(n, len(all))])
}
