package lease

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/rhizome-router/rhizome/crdt/wire"
)

// A snapshot is a msgpack array: gen, index, leases (key, worker, rank, boot,
// owner, gen, index, used, …, longest idle first), origins (name, inc, last,
// heard, fenced, low, …, by name), past (gen, cluster, from, …), ended clusters
// (cluster, gen, index, …), births of leases that were brought (key, cluster, gen,
// index, …, longest idle first; versions before left them out). Equal states have
// equal bytes.
const (
	snapshotParts = 7
	leastParts    = 6
	leaseFields   = 8
	originFields  = 6
	beginFields   = 3
	endFields     = 3
	birthFields   = 4
)

// ErrSnapshot says that bytes aren't a snapshot of this version.
var ErrSnapshot = errors.New("not a snapshot of leases")

// Leases returns all leases, longest idle first.
func (s *State) Leases() []Lease {
	all := make([]Lease, 0, len(s.leases))
	for _, l := range s.leases { // order-free: sorted below
		all = append(all, *l)
	}
	slices.SortFunc(all, func(a, b Lease) int {
		return cmp.Or(cmp.Compare(a.Used, b.Used), slices.Compare(a.Key[:], b.Key[:]))
	})
	return all
}

// Append appends a snapshot of the state to dst.
func (s *State) Append(dst []byte) []byte {
	w := wire.NewWriter(dst)
	w.Array(snapshotParts)
	w.Uint(s.gen)
	w.Uint(s.index)
	w.Array(leaseFields * len(s.leases))
	leases, brought := s.Leases(), 0
	for _, l := range leases {
		l.put(w)
		if l.Born != (Birth{}) {
			brought++
		}
	}
	w.Array(originFields * len(s.origins))
	for _, id := range slices.SortedFunc(maps.Keys(s.origins), func(a, b Origin) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Inc, b.Inc))
	}) {
		o := s.origins[id]
		putOrigin(w, id)
		w.Uint(o.last)
		w.Uint(o.heard)
		w.Bool(o.fenced)
		w.Uint(o.low)
	}
	w.Array(beginFields * len(s.past))
	for _, b := range s.past {
		w.Uint(b.Gen)
		w.Uint(uint64(b.Cluster))
		w.Uint(b.From)
	}
	w.Array(endFields * len(s.ended))
	for _, e := range s.ended {
		w.Uint(uint64(e.Cluster))
		putToken(w, e.Known)
	}
	w.Array(birthFields * brought)
	for _, l := range leases {
		if l.Born != (Birth{}) {
			w.Data(l.Key[:])
			w.Uint(uint64(l.Born.Cluster))
			putToken(w, l.Born.Token)
		}
	}
	return w.Bytes()
}

func (l *Lease) put(w *wire.Writer) {
	w.Data(l.Key[:])
	putHolder(w, l.Holder)
	w.Uint(l.Owner)
	putToken(w, l.Token)
	w.Uint(l.Used)
}

func readLease(r *wire.Reader) Lease {
	return Lease{Key: readKey(r), Holder: readHolder(r), Owner: r.Uint(math.MaxUint64), Token: readToken(r), Used: r.Uint(math.MaxUint64)}
}

// settled returns the incarnations that are dead and the promises that are gone.
func (s *State) settled() (fenced []Origin, lows []Low) {
	for id, o := range s.origins { // order-free: each by itself
		if o.fenced {
			fenced = append(fenced, id)
		}
		if o.low > 0 {
			lows = append(lows, Low{id, o.low})
		}
	}
	return fenced, lows
}

// Restore returns the state that Append wrote. The error is [ErrSnapshot].
func Restore(b []byte) (*State, error) {
	s, r := NewState(), wire.NewReader(b)
	parts := r.Array(1)
	if parts < leastParts || parts > snapshotParts {
		r.Fail(fmt.Errorf("%d fields, want %d to %d", parts, leastParts, snapshotParts))
	}
	s.gen, s.index = r.Uint(math.MaxUint32), r.Uint(math.MaxUint64)
	for range r.Array(leaseFields) {
		l := readLease(r)
		if r.Err() != nil {
			break
		}
		if s.leases[l.Key] != nil || len(s.leases) >= maxLeases {
			r.Fail(errors.New("a workflow twice, or too many of them"))
			break
		}
		s.put(&l)
	}
	for range r.Array(originFields) {
		id := readOrigin(r)
		o := origin{last: r.Uint(math.MaxUint64), heard: r.Uint(math.MaxUint64), fenced: r.Bool(), low: r.Uint(math.MaxUint64)}
		if r.Err() != nil {
			break
		}
		if s.origins[id] != nil || len(s.origins) >= maxOrigins {
			r.Fail(errors.New("an incarnation twice, or too many of them"))
			break
		}
		s.origins[id] = &o
	}
	for range min(r.Array(beginFields), maxPast) {
		s.past = append(s.past, Begin{r.Uint(math.MaxUint32), Cluster(r.Uint(math.MaxUint64)), r.Uint(math.MaxUint64)})
	}
	for range min(r.Array(endFields), maxEnded) {
		s.ended = append(s.ended, End{Cluster(r.Uint(math.MaxUint64)), readToken(r)})
	}
	if parts > leastParts {
		s.readBirths(r)
	}
	if err := r.End(); err != nil {
		return nil, fmt.Errorf("%w: %d of %d bytes from the end: %w", ErrSnapshot, r.Left(), len(b), err)
	}
	return s, nil
}

// readBirths reads where leases were granted first that were brought.
func (s *State) readBirths(r *wire.Reader) {
	for range r.Array(birthFields) {
		k, born := readKey(r), Birth{Cluster(r.Uint(math.MaxUint64)), readToken(r)}
		if r.Err() != nil {
			return
		}
		l := s.leases[k]
		if l == nil || l.Born != (Birth{}) || born == (Birth{}) {
			r.Fail(errors.New("the birth of no lease, or twice"))
			return
		}
		l.Born = born
	}
}
