package crdt

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/zeebo/xxh3"
)

// Latest is a map of registers that anyone may write: of two values of a key
// the one with the larger (N, Tie, value) stays. It is for the few matters that
// belong to no single replica: the current boot of each target, and what
// operators decided of a worker. The larger of any two is the same whoever asks
// first, so replicas agree once each has seen all values, in whatever order.
type Latest struct {
	limit int
	at    map[string]Register
	sum   uint64
	full  uint64
}

// Register is a value with what orders it.
type Register struct {
	Key   string
	N     uint64 // a writer that replaces what it sees writes N + 1
	Tie   uint64 // between writers that did so at once: any number, such as a boot
	Value []byte
}

func (r Register) compare(o Register) int {
	return cmp.Or(cmp.Compare(r.N, o.N), cmp.Compare(r.Tie, o.Tie), bytes.Compare(r.Value, o.Value))
}

// NewLatest returns an empty map of at most limit keys; values of more are
// refused, and counted.
func NewLatest(limit int) *Latest {
	return &Latest{limit: limit, at: make(map[string]Register)}
}

// Merge takes a value and reports whether it replaced what was there.
func (l *Latest) Merge(r Register) bool {
	old, ok := l.at[r.Key]
	switch {
	case ok && r.compare(old) <= 0:
		return false
	case !ok && len(l.at) >= l.limit:
		l.full++
		return false
	case ok:
		l.sum -= old.digest()
	}
	l.at[r.Key] = r
	l.sum += r.digest()
	return true
}

// Get returns the value of a key.
func (l *Latest) Get(key string) (Register, bool) {
	r, ok := l.at[key]
	return r, ok
}

// Forget drops a key that nobody needs any more. Replicas forget by a rule that
// all of them follow, or the others bring it back.
func (l *Latest) Forget(key string) {
	if old, ok := l.at[key]; ok {
		l.sum -= old.digest()
		delete(l.at, key)
	}
}

// All returns the values by key.
func (l *Latest) All() []Register {
	all := make([]Register, 0, len(l.at))
	for _, r := range l.at { // order-free: sorted below
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b Register) int { return cmp.Compare(a.Key, b.Key) })
	return all
}

// Len returns the number of keys.
func (l *Latest) Len() int { return len(l.at) }

// Refused counts the values for which there was no room.
func (l *Latest) Refused() uint64 { return l.full }

// Digest sums up all values: maps that are equal have equal ones.
func (l *Latest) Digest() uint64 { return l.sum }

func (r Register) digest() uint64 {
	return xxh3.HashStringSeed(r.Key, r.N) ^ xxh3.HashSeed(r.Value, r.Tie+1)
}
