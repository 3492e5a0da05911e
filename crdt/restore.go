package crdt

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/rhizome-router/rhizome/crdt/wire"
	"github.com/rhizome-router/rhizome/index"
	"github.com/rhizome-router/rhizome/kv"
)

// ErrSnapshot says that bytes aren't a snapshot that this stream can take.
var ErrSnapshot = errors.New("not a usable snapshot")

// Restore replaces the stream's base, position, skips and marks by those of a
// snapshot of the same stream, whichever of the two is ahead; the caller
// judges that. What waits here stays, and is applied if its turn has come. It
// reports no changes: the caller drops the index slot and fills another by
// Each. On an error, ErrSnapshot, the stream is as it was: the bytes don't
// follow the format, or their digest isn't that of what they hold, or that is
// more than the stream may hold.
func (s *Stream) Restore(snapshot []byte) error {
	d := restorer{counted: s.cfg.Counted, max: s.cfg.MaxBlocks}
	if err := d.envelope(snapshot); err != nil {
		return fmt.Errorf("restore a stream from %d bytes: %w: %w", len(snapshot), ErrSnapshot, err)
	}
	s.base, s.next, s.skips, s.marks = d.base, d.next, d.skips, d.marks
	s.moved()
	s.ahead.startAt(s.next)
	s.catchUp(func(index.Change) {})
	return nil
}

// restorer reads a snapshot.
type restorer struct {
	counted bool
	max     int

	base  base
	next  uint64
	skips []Range
	marks []Mark
	columns
}

var (
	errVersion  = errors.New("another version")
	errCounted  = errors.New("of a stream that counts otherwise")
	errTooMany  = errors.New("more entries than allowed")
	errDigest   = errors.New("digest doesn't match")
	errOrder    = errors.New("out of order or out of range")
	errLeftOver = errors.New("a column is too long")
)

func (d *restorer) envelope(snapshot []byte) error {
	r := wire.NewReader(snapshot)
	n := r.Array(1)
	version := r.Uint(math.MaxUint64)
	if err := r.Err(); err != nil {
		return fmt.Errorf("version: %w", err)
	}
	if version != snapshotVersion || n != snapshotFields {
		return fmt.Errorf("%w: %d with %d fields, want %d with %d", errVersion, version, n, snapshotVersion, snapshotFields)
	}
	counted, main, next := r.Bool(), r.Int(-1, math.MaxUint16), r.Uint(endOfLog-1)
	skips, marks, digest := r.Data(len(snapshot)), r.Data(len(snapshot)), r.Uint(math.MaxUint64)
	for _, c := range d.columns.all() {
		*c = r.Data(len(snapshot))
	}
	switch {
	case r.End() != nil:
		return r.End()
	case counted != d.counted:
		return errCounted
	case len(d.shapes) > d.max:
		return fmt.Errorf("%w: %d of %d", errTooMany, len(d.shapes), d.max)
	}
	d.next = next
	d.base = base{counted: counted, max: d.max, holes: true, rooted: main >= 0, main: uint16(max(0, main))}
	if err := errors.Join(d.readSkips(skips), d.readMarks(marks), d.readEntries()); err != nil {
		return err
	}
	if d.base.digest != digest {
		return errDigest
	}
	return nil
}

func (d *restorer) readSkips(b []byte) error {
	at := uint64(0)
	for len(b) > 0 {
		gap, err1 := uvarint(&b)
		length, err2 := uvarint(&b)
		r := Range{at + gap, at + gap + length}
		if err1 != nil || err2 != nil || r.From < at || r.To < r.From || r.To >= d.next ||
			gap == 0 && len(d.skips) > 0 || len(d.skips) > maxSkips {
			return fmt.Errorf("skips: %w", errOrder)
		}
		d.skips = append(d.skips, r)
		at = r.To + 1
	}
	return nil
}

func (d *restorer) readMarks(b []byte) error {
	w := uint64(0)
	for len(b) > 0 {
		gap, err := uvarint(&b)
		if w += gap; err != nil || len(b) < 16 || w < gap || w >= d.next || gap == 0 && len(d.marks) > 0 || len(d.marks) == maxMarks {
			return fmt.Errorf("marks: %w", errOrder)
		}
		d.marks = append(d.marks, Mark{w, take64(&b), take64(&b)})
	}
	return nil
}

func (d *restorer) readEntries() error {
	d.base.reserve(len(d.shapes))
	for last := -1; len(d.groups) > 0; {
		group, err1 := uvarint(&d.groups)
		n, err2 := uvarint(&d.groups)
		if err1 != nil || err2 != nil || int(min(group, math.MaxUint16+1)) <= last || group > math.MaxUint16 || n == 0 || n > uint64(len(d.shapes)) {
			return fmt.Errorf("groups: %w", errOrder)
		}
		last = int(group)
		hash := uint64(0)
		for i := range n {
			delta, err := uvarint(&d.hashes)
			if hash += delta; err != nil || i > 0 && delta == 0 || hash < delta {
				return fmt.Errorf("hashes of group %d: %w", group, errOrder)
			}
			if err := d.entry(node{uint16(group), kv.EngineHash(hash)}); err != nil {
				return fmt.Errorf("entry %x of group %d: %w", hash, group, err)
			}
		}
	}
	for _, c := range d.columns.all() {
		if len(*c) > 0 {
			return errLeftOver
		}
	}
	return nil
}

// entry reads the rest of an entry and puts it into the base.
func (d *restorer) entry(at node) error {
	shape := d.shapes[0]
	d.shapes = d.shapes[1:]
	e, o := entry{hash: at.hash, group: at.group, state: keyed}, orphan{parent: at}
	same := shape&shapeSame != 0
	if shape&shapeUnkeyed != 0 {
		e.state = unkeyed
	}
	switch {
	case same && at.group == 0:
		return errOrder
	case same && e.keyed():
		key, _, ok := d.base.keyOf(0, at.hash)
		if !ok {
			return errOrder
		}
		e.val = uint64(key)
	case same:
		o = orphan{parent: node{0, at.hash}, same: true}
	case len(d.values) < 8:
		return io.ErrUnexpectedEOF
	default:
		e.val = take64(&d.values)
		if e.state == unkeyed {
			if len(d.parents) < 8 {
				return io.ErrUnexpectedEOF
			}
			o.parent.hash = kv.EngineHash(take64(&d.parents))
		}
	}
	many := false
	for t := range kv.Tier(kv.NumTiers) {
		if shape&(1<<t) == 0 {
			continue
		}
		n := uint8(1)
		if shape&shapeCounts != 0 {
			if len(d.counts) == 0 || d.counts[0] == 0 {
				return errOrder
			}
			n = d.counts[0]
			d.counts = d.counts[1:]
			many = many || n > 1
		}
		e.copies = e.copies.with(t, n)
	}
	if e.empty() || many != (shape&shapeCounts != 0) || many && !d.counted {
		return errOrder
	}
	d.base.put(e, o)
	return nil
}

func uvarint(b *[]byte) (uint64, error) {
	v, n := binary.Uvarint(*b)
	if n <= 0 {
		return 0, io.ErrUnexpectedEOF
	}
	*b = (*b)[n:]
	return v, nil
}

func take64(b *[]byte) uint64 {
	v := binary.LittleEndian.Uint64(*b)
	*b = (*b)[8:]
	return v
}
