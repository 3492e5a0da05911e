// Package wire reads and writes msgpack between replicas: values one after the
// other, each within bounds.
//
// The central type is [Reader]; start there. It never allocates more than it
// was given bytes, and after an error it reads zeros, so that callers check
// once, at the end.
package wire

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/vmihailenco/msgpack/v5"
	"github.com/vmihailenco/msgpack/v5/msgpcode"
)

// Writer appends values to a buffer. The zero value is ready.
type Writer struct {
	buf     bytes.Buffer
	msgpack *msgpack.Encoder
}

// NewWriter returns a Writer that appends to dst.
func NewWriter(dst []byte) *Writer {
	w := new(Writer)
	w.buf = *bytes.NewBuffer(dst)
	return w
}

// encoder never fails: a bytes.Buffer does not.
func (w *Writer) encoder() *msgpack.Encoder {
	if w.msgpack == nil {
		w.msgpack = msgpack.NewEncoder(&w.buf)
		w.msgpack.UseCompactInts(true)
	}
	return w.msgpack
}

// Array begins an array of n values.
func (w *Writer) Array(n int) { _ = w.encoder().EncodeArrayLen(n) }

// Bool appends a truth value.
func (w *Writer) Bool(v bool) { _ = w.encoder().EncodeBool(v) }

// Uint appends a number.
func (w *Writer) Uint(v uint64) { _ = w.encoder().EncodeUint(v) }

// Int appends a number with a sign.
func (w *Writer) Int(v int64) { _ = w.encoder().EncodeInt(v) }

// Float appends a floating-point number.
func (w *Writer) Float(v float64) { _ = w.encoder().EncodeFloat64(v) }

// String appends a string.
func (w *Writer) String(s string) { _ = w.encoder().EncodeString(s) }

// Data appends bytes; nil is the same as none.
func (w *Writer) Data(b []byte) {
	_ = w.encoder().EncodeBytesLen(len(b))
	w.buf.Write(b)
}

// Len returns the number of bytes so far.
func (w *Writer) Len() int { return w.buf.Len() }

// Bytes returns all of them.
func (w *Writer) Bytes() []byte { return w.buf.Bytes() }

var (
	errNil    = errors.New("nil for a number")
	errTooBig = errors.New("more than allowed")
)

// Reader reads what a Writer wrote. What it returns lies in the bytes that it
// was given.
type Reader struct {
	all     []byte
	bytes   bytes.Reader
	msgpack *msgpack.Decoder
	err     error
}

// NewReader returns a Reader of b.
func NewReader(b []byte) *Reader {
	r := &Reader{all: b}
	r.bytes.Reset(b)
	r.msgpack = msgpack.NewDecoder(&r.bytes)
	return r
}

// Err returns the first thing that went wrong.
func (r *Reader) Err() error { return r.err }

// Fail records an error, if there is none yet.
func (r *Reader) Fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

// Left returns how many bytes were not read.
func (r *Reader) Left() int { return r.bytes.Len() }

// End returns the first thing that went wrong, which may be that bytes are left.
func (r *Reader) End() error {
	if r.err == nil && r.bytes.Len() > 0 {
		r.err = fmt.Errorf("%d bytes too many", r.bytes.Len())
	}
	return r.err
}

func read[T any](r *Reader, decode func() (T, error)) (v T) {
	if r.err != nil {
		return v
	}
	v, r.err = decode()
	if r.err == io.EOF {
		r.err = io.ErrUnexpectedEOF
	}
	return v
}

// Array begins an array and returns how many things of that many values it has.
func (r *Reader) Array(values int) int {
	n := read(r, r.msgpack.DecodeArrayLen)
	if r.err == nil && (n < 0 || n > r.bytes.Len() || n%values != 0) {
		r.err = fmt.Errorf("an array of %d in %d bytes", n, r.bytes.Len())
	}
	if r.err != nil {
		return 0
	}
	return n / values
}

// Bool reads a truth value.
func (r *Reader) Bool() bool { return read(r, r.msgpack.DecodeBool) }

// Uint reads a number of at most that.
func (r *Reader) Uint(most uint64) uint64 {
	if code := read(r, r.msgpack.PeekCode); code == 0xc0 {
		r.Fail(errNil) // the library reads it as 0
	}
	v := read(r, r.msgpack.DecodeUint64)
	if v > most {
		r.Fail(fmt.Errorf("%d is %w: %d", v, errTooBig, most))
		return 0
	}
	return v
}

// Int reads a number with a sign, of at least and at most that.
func (r *Reader) Int(least, most int64) int64 {
	if code := read(r, r.msgpack.PeekCode); code == 0xc0 {
		r.Fail(errNil)
	}
	v := read(r, r.msgpack.DecodeInt64)
	if r.err == nil && (v < least || v > most) {
		r.Fail(fmt.Errorf("%d is not %d to %d", v, least, most))
	}
	if r.err != nil {
		return 0
	}
	return v
}

// Float reads a finite floating-point number.
func (r *Reader) Float() float64 {
	v := read(r, r.msgpack.DecodeFloat64)
	if math.IsNaN(v) || math.IsInf(v, 0) {
		r.Fail(errors.New("not a finite number"))
		return 0
	}
	return v
}

// Data reads bytes or a string, of at most that many.
func (r *Reader) Data(most int) []byte {
	n := read(r, r.msgpack.DecodeBytesLen)
	if r.err == nil && (n < 0 || n > most || n > r.bytes.Len()) {
		r.err = fmt.Errorf("%d bytes: %d are left and %d allowed", n, r.bytes.Len(), most)
	}
	if r.err != nil {
		return nil
	}
	at := len(r.all) - r.bytes.Len()
	_, r.err = r.bytes.Seek(int64(n), io.SeekCurrent)
	return r.all[at : at+n : at+n]
}

// String reads a string of at most that many bytes.
func (r *Reader) String(most int) string { return string(r.Data(most)) }

// Skip reads over so many values, whatever they are: those that a later version
// appended.
func (r *Reader) Skip(values int) {
	for left := values; left > 0 && r.err == nil; left-- { // a peer's nesting is not to be ours
		switch code := read(r, r.msgpack.PeekCode); {
		case msgpcode.IsFixedArray(code), code == msgpcode.Array16, code == msgpcode.Array32:
			left += r.Array(1)
		case msgpcode.IsFixedMap(code), code == msgpcode.Map16, code == msgpcode.Map32:
			n := read(r, r.msgpack.DecodeMapLen)
			if r.err == nil && (n < 0 || n > r.bytes.Len()) {
				r.err = fmt.Errorf("a map of %d in %d bytes", n, r.bytes.Len())
				return
			}
			left += 2 * n
		case msgpcode.IsString(code), msgpcode.IsBin(code):
			r.Data(math.MaxInt)
		case msgpcode.IsExt(code):
			r.Fail(errors.New("an extension type"))
		case r.err == nil:
			r.err = r.msgpack.Skip()
			if r.err == io.EOF {
				r.err = io.ErrUnexpectedEOF
			}
		}
	}
}
