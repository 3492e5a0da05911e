package crdt

import (
	"errors"
	"fmt"
	"math"

	"github.com/rhizome-router/rhizome/crdt/wire"
)

// A delta on the wire is a msgpack array:
//
//	whole, from version, from deleted, to version, to deleted,
//	gone    array: key, version, …
//	items   array: key, value, version, age in ms, remaining in ms (-1: no end), …
//
// Ages are rounded up and what remains down, so that a value never gets younger
// or lives longer by being passed on.
const deltaFields = 7

// MaxKeyBytes and MaxValueBytes bound what a page's copies take from the wire.
const (
	MaxKeyBytes   = 1 << 10
	MaxValueBytes = 1 << 20
)

// ErrDelta says that bytes aren't a delta of a page.
var ErrDelta = errors.New("not a delta")

const (
	nanosPerMilli = int64(1e6)
	maxMillis     = math.MaxInt64 / nanosPerMilli
)

// Append appends the wire form of a delta to dst.
func (d *Delta) Append(dst []byte) []byte {
	w := wire.NewWriter(dst)
	w.Array(deltaFields)
	w.Bool(d.Whole)
	for _, v := range [...]uint64{d.From.Version, d.From.Deleted, d.To.Version, d.To.Deleted} {
		w.Uint(v)
	}
	w.Array(2 * len(d.Gone))
	for _, g := range d.Gone {
		w.String(g.Key)
		w.Uint(g.Version)
	}
	w.Array(5 * len(d.Items))
	for i := range d.Items {
		it := &d.Items[i]
		w.String(it.Key)
		w.Data(it.Value)
		w.Uint(it.Version)
		w.Int(it.Age/nanosPerMilli + min(1, it.Age%nanosPerMilli))
		if it.Remaining < 0 {
			w.Int(-1)
		} else {
			w.Int(it.Remaining / nanosPerMilli)
		}
	}
	return w.Bytes()
}

// ReadDelta reads what Append wrote, all of b. It keeps b's memory. The error is
// [ErrDelta].
func ReadDelta(b []byte) (Delta, error) {
	r := wire.NewReader(b)
	d := readDelta(r)
	if err := r.End(); err != nil {
		return Delta{}, fmt.Errorf("%w: %d of %d bytes from the end: %w", ErrDelta, r.Left(), len(b), err)
	}
	return d, nil
}

func readDelta(r *wire.Reader) (d Delta) {
	if n := r.Array(1); n != deltaFields {
		r.Fail(fmt.Errorf("%d fields, want %d", n, deltaFields))
	}
	d.Whole = r.Bool()
	for _, v := range [...]*uint64{&d.From.Version, &d.From.Deleted, &d.To.Version, &d.To.Deleted} {
		*v = r.Uint(math.MaxUint64 - 1)
	}
	if d.From.Version > d.From.Deleted || d.To.Version > d.To.Deleted || d.From.Version > d.To.Version ||
		d.From.Deleted > d.To.Deleted || d.Whole && d.From != (Position{}) {
		r.Fail(errOrder)
	}
	last := d.From.Deleted
	for range r.Array(2) {
		g := GoneKey{r.String(MaxKeyBytes), r.Uint(d.To.Deleted)}
		if g.Version <= last {
			r.Fail(fmt.Errorf("deletions: %w", errOrder))
			break
		}
		last = g.Version
		d.Gone = append(d.Gone, g)
	}
	last = d.From.Version
	for range r.Array(5) {
		it := DeltaItem{
			Key: r.String(MaxKeyBytes), Value: r.Data(MaxValueBytes), Version: r.Uint(d.To.Version),
			Age: nanosPerMilli * r.Int(0, maxMillis), Remaining: r.Int(-1, maxMillis),
		}
		if it.Remaining > 0 {
			it.Remaining *= nanosPerMilli
		}
		if it.Version <= last {
			r.Fail(fmt.Errorf("values: %w", errOrder))
			break
		}
		last = it.Version
		d.Items = append(d.Items, it)
	}
	return d
}
