package crdt

import (
	"encoding/binary"
	"slices"

	"github.com/zeebo/xxh3"
)

// Mark is what a base was at one position of its log. Two replicas compare the
// last one they have in common: equal W and Skips and another Digest means
// that one of the bases is corrupt.
type Mark struct {
	W      uint64 // the last number applied or skipped
	Skips  uint64 // hash of the ranges skipped up to W; 0 if there are none
	Digest uint64
}

const (
	markEvery = 256
	maxMarks  = 64
)

// markNo counts the marks due before next: one at each multiple of markEvery,
// or behind it where a skip jumps over it.
func markNo(next uint64) uint64 {
	return next/markEvery + min(next%markEvery, 1)
}

// Mark records the present state as a mark, besides those that are recorded at
// every multiple of 256. Nothing is recorded before the first batch, nor while
// the stream is truncated.
func (s *Stream) Mark() {
	if s.next == 0 || s.base.truncated != 0 || len(s.marks) > 0 && s.marks[len(s.marks)-1].W == s.next-1 {
		return
	}
	if len(s.marks) == maxMarks {
		s.marks = slices.Delete(s.marks, 0, 1)
	}
	s.marks = append(s.marks, Mark{W: s.next - 1, Skips: hashRanges(s.skips), Digest: s.Digest()})
}

// Marks returns the last 64 marks, oldest first. They are valid until the next
// call that changes the stream.
func (s *Stream) Marks() []Mark { return s.marks }

// SkipsHash is a hash of what was skipped, 0 if nothing was, as marks have it.
func (s *Stream) SkipsHash() uint64 { return hashRanges(s.skips) }

func hashRanges(rs []Range) uint64 {
	if len(rs) == 0 {
		return 0
	}
	b := make([]byte, 0, 16*len(rs))
	for _, r := range rs {
		b = binary.LittleEndian.AppendUint64(b, r.From)
		b = binary.LittleEndian.AppendUint64(b, r.To)
	}
	return xxh3.Hash(b)
}
