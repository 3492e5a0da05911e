package crdt

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/rhizome-router/rhizome/crdt/wire"
	"github.com/rhizome-router/rhizome/kv"
)

// ErrTruncated says that a stream can't be given away because its own copy is
// truncated (Log.Trim).
var ErrTruncated = errors.New("stream is truncated")

// A snapshot is a msgpack array of snapshotFields values:
//
//	version      1
//	counted      bool
//	main         the engine's number of main attention, -1 if not known yet
//	next         W + 1
//	skips        per range, uvarint: numbers between it and the one before, numbers in it - 1
//	marks        per mark: uvarint W less that of the one before, LE64 skips, LE64 digest
//	digest
//	groups       per group, in order, uvarint: its number (ours), its entries
//	hashes       per entry, by group and hash, uvarint: hash less the one before in its group
//	shapes       per entry, a byte: tiers and the bits below
//	values       LE64 key, or content of an entry without a key; none where shapeSame
//	parents      LE64, of entries without a key; none where shapeSame
//	counts       per tier of an entry with shapeCounts, a byte: its copies
//
// From skips on, all but digest are byte strings. Equal bases have equal ones.
const (
	snapshotVersion = 1
	snapshotFields  = 13

	// shapeUnkeyed: the entry has no key and waits for its parent.
	shapeUnkeyed = 1 << kv.NumTiers
	// shapeSame: its key is that of group 0's entry with this hash, or will be.
	shapeSame = shapeUnkeyed << 1
	// shapeCounts: on some tier it has more than one copy.
	shapeCounts = shapeSame << 1
)

// Snapshot returns the stream's base with its position, skips and marks, to be
// restored elsewhere; about 16 B a block. What waits is not in it. The error
// is ErrTruncated.
func (s *Stream) Snapshot() ([]byte, error) {
	if s.base.truncated != 0 {
		return nil, fmt.Errorf("take a snapshot at %d: %w", s.next, ErrTruncated)
	}
	var skips, marks []byte
	from := uint64(0)
	for _, r := range s.skips {
		skips = binary.AppendUvarint(skips, r.From-from)
		skips = binary.AppendUvarint(skips, r.To-r.From)
		from = r.To + 1
	}
	w := uint64(0)
	for _, m := range s.marks {
		marks = binary.AppendUvarint(marks, m.W-w)
		marks = binary.LittleEndian.AppendUint64(marks, m.Skips)
		marks = binary.LittleEndian.AppendUint64(marks, m.Digest)
		w = m.W
	}
	c := s.base.columns()
	main := -1
	if s.base.rooted {
		main = int(s.base.main)
	}
	out := wire.NewWriter(make([]byte, 0, 256+len(skips)+len(marks)+len(c.hashes)+len(c.shapes)+len(c.values)+len(c.parents)+len(c.counts)))
	out.Array(snapshotFields)
	out.Uint(snapshotVersion)
	out.Bool(s.cfg.Counted)
	out.Int(int64(main))
	out.Uint(s.next)
	out.Data(skips)
	out.Data(marks)
	out.Uint(s.Digest())
	for _, b := range c.all() {
		out.Data(*b)
	}
	return out.Bytes(), nil
}

// columns is a base's entries as a snapshot holds them.
type columns struct {
	groups, hashes, shapes, values, parents, counts []byte
}

func (c *columns) all() [6]*[]byte {
	return [6]*[]byte{&c.groups, &c.hashes, &c.shapes, &c.values, &c.parents, &c.counts}
}

func (b *base) columns() *columns {
	type place struct {
		hash  uint64
		i     uint32
		group uint16
	}
	order := make([]place, 0, b.blocks)
	for i := range b.unused {
		if p := b.at(i); p.state() != vacant {
			order = append(order, place{uint64(p.hash()), i, b.group(i, p)})
		}
	}
	slices.SortFunc(order, func(x, y place) int {
		if x.group != y.group {
			return cmp.Compare(x.group, y.group)
		}
		return cmp.Compare(x.hash, y.hash)
	})
	c := &columns{
		hashes: make([]byte, 0, 7*len(order)), shapes: make([]byte, 0, len(order)), values: make([]byte, 0, 8*len(order)),
	}
	for first := 0; first < len(order); {
		group, last, n := order[first].group, uint64(0), 0
		for ; first+n < len(order) && order[first+n].group == group; n++ {
			p := order[first+n]
			c.hashes = binary.AppendUvarint(c.hashes, p.hash-last)
			last = p.hash
			c.add(b, p.i)
		}
		c.groups = binary.AppendUvarint(c.groups, uint64(group))
		c.groups = binary.AppendUvarint(c.groups, uint64(n))
		first += n
	}
	return c
}

// add appends all of entry i but its hash.
func (c *columns) add(b *base, i uint32) {
	e := b.load(i)
	shape := byte(0)
	for t := range kv.Tier(kv.NumTiers) {
		n := e.copies.on(t)
		if n > 0 {
			shape |= 1 << t
		}
		if n > 1 {
			shape |= shapeCounts
		}
	}
	if e.keyed() {
		if main, _, ok := b.keyOf(0, e.hash); e.group != 0 && ok && uint64(main) == e.val {
			shape |= shapeSame
		}
	} else if shape |= shapeUnkeyed; b.orphans[i].same {
		shape |= shapeSame
	} else {
		c.parents = binary.LittleEndian.AppendUint64(c.parents, uint64(b.orphans[i].parent.hash))
	}
	if shape&shapeSame == 0 {
		c.values = binary.LittleEndian.AppendUint64(c.values, e.val)
	}
	if shape&shapeCounts != 0 {
		for t := range kv.Tier(kv.NumTiers) {
			if n := e.copies.on(t); n > 0 {
				c.counts = append(c.counts, n)
			}
		}
	}
	c.shapes = append(c.shapes, shape)
}
