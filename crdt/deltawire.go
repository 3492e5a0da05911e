package crdt

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/vmihailenco/msgpack/v5"
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

const nanosPerMilli = int64(1e6)

// Append appends the wire form of a delta to dst.
func (d *Delta) Append(dst []byte) []byte {
	buf := bytes.NewBuffer(dst)
	e := msgpack.GetEncoder()
	defer msgpack.PutEncoder(e)
	e.Reset(buf)
	e.UseCompactInts(true)
	// A bytes.Buffer doesn't fail.
	_ = e.EncodeArrayLen(deltaFields)
	_ = e.EncodeBool(d.Whole)
	for _, v := range [...]uint64{d.From.Version, d.From.Deleted, d.To.Version, d.To.Deleted} {
		_ = e.EncodeUint(v)
	}
	_ = e.EncodeArrayLen(2 * len(d.Gone))
	for _, g := range d.Gone {
		_ = e.EncodeString(g.Key)
		_ = e.EncodeUint(g.Version)
	}
	_ = e.EncodeArrayLen(5 * len(d.Items))
	for i := range d.Items {
		it := &d.Items[i]
		_ = e.EncodeString(it.Key)
		_ = e.EncodeBytesLen(len(it.Value))
		buf.Write(it.Value)
		_ = e.EncodeUint(it.Version)
		_ = e.EncodeInt(millisUp(it.Age))
		remaining := int64(-1)
		if it.Remaining >= 0 {
			remaining = it.Remaining / nanosPerMilli
		}
		_ = e.EncodeInt(remaining)
	}
	return buf.Bytes()
}

func millisUp(nanos int64) int64 { return nanos/nanosPerMilli + min(1, nanos%nanosPerMilli) }

// ReadDelta reads what Append wrote, all of b. It keeps b's memory. The error is
// [ErrDelta].
func ReadDelta(b []byte) (d Delta, err error) {
	r := deltaReader{bytes: bytes.NewReader(b), all: b}
	r.msgpack = msgpack.NewDecoder(r.bytes)
	d = r.delta()
	if r.err == nil && r.bytes.Len() > 0 {
		r.err = errLeftOver
	}
	if r.err != nil {
		return Delta{}, fmt.Errorf("%w: %d of %d bytes from the end: %w", ErrDelta, r.bytes.Len(), len(b), r.err)
	}
	return d, nil
}

// deltaReader reads zeros after an error.
type deltaReader struct {
	bytes   *bytes.Reader
	all     []byte
	msgpack *msgpack.Decoder
	err     error
}

func (r *deltaReader) delta() (d Delta) {
	if n := r.array(1); r.err == nil && n != deltaFields {
		r.err = fmt.Errorf("%d fields, want %d", n, deltaFields)
	}
	d.Whole = read(r, r.msgpack.DecodeBool)
	for _, v := range [...]*uint64{&d.From.Version, &d.From.Deleted, &d.To.Version, &d.To.Deleted} {
		*v = r.uint()
	}
	if d.From.Version > d.From.Deleted || d.To.Version > d.To.Deleted || d.From.Version > d.To.Version ||
		d.From.Deleted > d.To.Deleted || d.To.Deleted == math.MaxUint64 || d.Whole && d.From != (Position{}) {
		r.fail(errOrder)
	}
	last := d.From.Deleted
	for range r.array(2) / 2 {
		g := GoneKey{r.key(), r.uint()}
		if r.err == nil && (g.Version <= last || g.Version > d.To.Deleted) {
			r.fail(fmt.Errorf("deletions: %w", errOrder))
		}
		last = g.Version
		d.Gone = append(d.Gone, g)
	}
	last = d.From.Version
	for range r.array(5) / 5 {
		it := DeltaItem{Key: r.key(), Value: r.value(), Version: r.uint(), Age: r.millis(0), Remaining: r.millis(-1)}
		if r.err == nil && (it.Version <= last || it.Version > d.To.Version) {
			r.fail(fmt.Errorf("values: %w", errOrder))
		}
		last = it.Version
		d.Items = append(d.Items, it)
	}
	if r.err != nil {
		return Delta{}
	}
	return d
}

func (r *deltaReader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

func read[T any](r *deltaReader, decode func() (T, error)) (v T) {
	if r.err == nil {
		v, r.err = decode()
	}
	return v
}

// array reads the length of an array of at least one byte a value, of which
// there are each to a thing.
func (r *deltaReader) array(each int) int {
	n := read(r, r.msgpack.DecodeArrayLen)
	if r.err == nil && (n < 0 || n > r.bytes.Len() || n%each != 0) {
		r.fail(fmt.Errorf("an array of %d: %w", n, io.ErrUnexpectedEOF))
		return 0
	}
	return n
}

func (r *deltaReader) uint() uint64 {
	if code := read(r, r.msgpack.PeekCode); code == 0xc0 {
		r.fail(errors.New("nil for a number"))
	}
	return read(r, r.msgpack.DecodeUint64)
}

// millis reads milliseconds, at least that many, as nanoseconds; -1 stays -1.
func (r *deltaReader) millis(least int64) int64 {
	ms := read(r, r.msgpack.DecodeInt64)
	if ms < least || ms > math.MaxInt64/nanosPerMilli {
		r.fail(errOrder)
		return 0
	}
	if ms < 0 {
		return -1
	}
	return ms * nanosPerMilli
}

func (r *deltaReader) key() string { return string(r.span(MaxKeyBytes)) }

func (r *deltaReader) value() []byte { return r.span(MaxValueBytes) }

// span reads a string or bytes without copying.
func (r *deltaReader) span(most int) []byte {
	n := read(r, r.msgpack.DecodeBytesLen)
	if r.err == nil && (n < 0 || n > most || n > r.bytes.Len()) {
		r.fail(fmt.Errorf("%d bytes, %d are left and %d allowed", n, r.bytes.Len(), most))
	}
	if r.err != nil {
		return nil
	}
	at := len(r.all) - r.bytes.Len()
	_, r.err = r.bytes.Seek(int64(n), io.SeekCurrent)
	return r.all[at : at+n : at+n]
}
