package crdt

import (
	"iter"
	"slices"

	"github.com/rhizome-router/rhizome/kv"
)

// Entry is one part of a log: a batch, with From and To both its number, or a
// skip of the numbers From … To.
type Entry struct {
	Range
	Skipped bool
	Ops     []kv.Op // of a batch; not to be changed
}

// ring is the last batches that a stream applied.
type ring struct {
	first   uint64 // everything from here on is in batches or skipped
	batches []kept // by number
	bytes   int    // estimate
}

type kept struct {
	seq uint64
	ops []kv.Op
}

func (r *ring) push(seq uint64, ops []kv.Op) {
	r.batches = append(r.batches, kept{seq, ops})
	r.bytes += opBytes(ops)
}

// drop forgets the oldest batch.
func (r *ring) drop() (bytes int) {
	k := r.batches[0]
	r.batches[0] = kept{}
	r.batches = r.batches[1:]
	r.first = k.seq + 1
	bytes = opBytes(k.ops)
	r.bytes -= bytes
	return bytes
}

// From returns the log from number seq up to W: what a copy that expects seq
// next needs to catch up. ok is false when the batches from seq on aren't all
// kept any more, or are yet to come; the copy then takes a snapshot. Batches
// are kept by streams of a Log only. A skip may begin before seq. The stream
// must not change while the entries are read.
func (s *Stream) From(seq uint64) (entries iter.Seq[Entry], ok bool) {
	if seq < s.ring.first || seq > s.next {
		return nil, false
	}
	return func(yield func(Entry) bool) {
		i, _ := slices.BinarySearchFunc(s.ring.batches, seq, func(k kept, seq uint64) int {
			if k.seq < seq {
				return -1
			}
			return 1
		})
		j := 0
		for n := seq; n < s.next; {
			for j < len(s.skips) && s.skips[j].To < n {
				j++
			}
			e := Entry{Range: Range{n, n}}
			if j < len(s.skips) && s.skips[j].From <= n {
				e.Range, e.Skipped = s.skips[j], true
			} else {
				e.Ops = s.ring.batches[i].ops
				i++
			}
			if !yield(e) {
				return
			}
			n = e.To + 1
		}
	}, true
}

// PieceBytes estimates what the log from number seq on takes on the wire.
func (s *Stream) PieceBytes(seq uint64) int {
	if n := len(s.ring.batches); n > 0 && seq < s.next {
		return int(float64(s.ring.bytes) / float64(n) * float64(min(uint64(n), s.next-seq)))
	}
	return 0
}
