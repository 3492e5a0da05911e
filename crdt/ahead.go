package crdt

import (
	"maps"
	"math"
	"slices"

	"github.com/rhizome-router/rhizome/kv"
)

// Range is the numbers From … To, both included.
type Range struct{ From, To uint64 }

const (
	endOfLog = math.MaxUint64 // no batch has this number
	maxSkips = 1024           // ranges a stream holds
)

// ahead is what came before its turn.
type ahead struct {
	maxBytes int
	bytes    int
	shared   *gauge // bytes of all streams
	batches  map[uint64][]kv.Op
	skips    []Range // no batch of them is in batches
}

func (a *ahead) keep(seq uint64, ops []kv.Op) Outcome {
	if _, held := a.batches[seq]; held || inRanges(a.skips, seq) {
		return Duplicate
	}
	n := opBytes(ops)
	if a.bytes+n > a.maxBytes || seq == endOfLog {
		return Overflow
	}
	if a.shared.used+n > a.shared.max {
		a.shared.refused++
		return Overflow
	}
	if a.batches == nil {
		a.batches = map[uint64][]kv.Op{}
	}
	a.batches[seq] = ops
	a.charge(n)
	return Pending
}

func (a *ahead) take(seq uint64) ([]kv.Op, bool) {
	ops, ok := a.batches[seq]
	if ok {
		delete(a.batches, seq)
		a.charge(-opBytes(ops))
	}
	return ops, ok
}

func (a *ahead) charge(bytes int) {
	a.bytes += bytes
	a.shared.used += bytes
}

// discard forgets the batches from … to.
func (a *ahead) discard(r Range) {
	maps.DeleteFunc(a.batches, func(seq uint64, ops []kv.Op) bool {
		if seq < r.From || seq > r.To {
			return false
		}
		a.charge(-opBytes(ops))
		return true
	})
}

func (a *ahead) skip(r Range) {
	a.discard(r)
	a.skips = addRange(a.skips, r)
}

// startAt forgets what would come before number next.
func (a *ahead) startAt(next uint64) {
	if next > 0 {
		a.discard(Range{0, next - 1})
		a.skips = slices.DeleteFunc(a.skips, func(r Range) bool { return r.To < next })
	}
}

// takeSkip returns the end of the skip that begins at or before seq.
func (a *ahead) takeSkip(seq uint64) (to uint64, ok bool) {
	if len(a.skips) == 0 || a.skips[0].From > seq {
		return 0, false
	}
	to = a.skips[0].To
	a.skips = slices.Delete(a.skips, 0, 1)
	return to, true
}

// opBytes estimates the memory of a batch that waits.
func opBytes(ops []kv.Op) int {
	n := 64
	for i := range ops {
		n += 128 + 16*len(ops[i].Blocks) + 8*len(ops[i].Hashes)
	}
	return n
}

// addRange adds r to sorted ranges, merging those that touch.
func addRange(rs []Range, r Range) []Range {
	i := 0
	for i < len(rs) && rs[i].To+1 < r.From {
		i++
	}
	j := i
	for ; j < len(rs) && rs[j].From <= r.To+1; j++ {
		r.From, r.To = min(r.From, rs[j].From), max(r.To, rs[j].To)
	}
	return slices.Replace(rs, i, j, r)
}

func inRanges(rs []Range, seq uint64) bool {
	return slices.ContainsFunc(rs, func(r Range) bool { return r.From <= seq && seq <= r.To })
}
