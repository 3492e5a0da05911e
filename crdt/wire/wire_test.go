package wire

import (
	"bytes"
	"math"
	"testing"
)

func TestReadsWhatWasWritten(t *testing.T) {
	w := NewWriter([]byte("#"))
	w.Array(8)
	w.Bool(true)
	w.Uint(math.MaxUint64)
	w.Int(math.MinInt64)
	w.Float(0.25)
	w.String("name")
	w.Data([]byte{1, 2})
	w.Data(nil)
	w.Array(0)
	r := NewReader(w.Bytes()[1:])
	if n := r.Array(4); n != 2 {
		t.Errorf("%d things of 4 values", n)
	}
	if !r.Bool() || r.Uint(math.MaxUint64) != math.MaxUint64 || r.Int(math.MinInt64, 0) != math.MinInt64 || r.Float() != 0.25 ||
		r.String(4) != "name" || !bytes.Equal(r.Data(2), []byte{1, 2}) || len(r.Data(0)) != 0 || r.Array(1) != 0 || r.End() != nil {
		t.Errorf("read something else: %v", r.Err())
	}
}

// TestReadsWithinBounds: what is too long, too large, cut off or of another type
// is an error, and whatever is read after it is nothing.
func TestReadsWithinBounds(t *testing.T) {
	for name, read := range map[string]func(r *Reader){
		"\xc0":                                 func(r *Reader) { r.Uint(9) },
		"\x0a":                                 func(r *Reader) { r.Uint(9) },
		"\xff":                                 func(r *Reader) { r.Int(0, 9) },
		"\xc0 ":                                func(r *Reader) { r.Int(0, 9) },
		"\xa4abcd":                             func(r *Reader) { r.String(3) },
		"\xa4abc":                              func(r *Reader) { r.String(9) },
		"\xdd\xff\xff\xff\xff":                 func(r *Reader) { r.Array(1) },
		"\x93\x01\x01\x01":                     func(r *Reader) { r.Array(2) },
		"\xcb\x7f\xf0\x00\x00\x00\x00\x00\x00": func(r *Reader) { r.Float() },
		"\xa1":                                 func(r *Reader) { r.Bool() },
		"":                                     func(r *Reader) { r.Bool() },
		"\xc3\xc3":                             func(r *Reader) { r.Bool() },
	} {
		r := NewReader([]byte(name))
		read(r)
		if r.End() == nil {
			t.Errorf("%q was read", name)
		}
		if r.Uint(9) != 0 || r.Array(1) != 0 || r.Data(9) != nil || r.Bool() || r.Float() != 0 || r.Int(5, 9) != 0 {
			t.Errorf("%q: read on after %v", name, r.Err())
		}
	}
}

// What a later version appended is read over, whatever it is; and however deep a
// peer nests, it is not the stack that says so.
func TestSkips(t *testing.T) {
	w := NewWriter(nil)
	w.Array(3)
	w.Uint(1)
	w.Array(2)
	w.String("x")
	w.Array(0)
	w.Float(2.5)
	w.Bool(true)
	w.Data([]byte{1, 2, 3})
	w.Int(-7)
	b := append(w.Bytes(), 0xc0, 0x81, 0x01, 0x92, 0x02, 0x03, 0x09) // nil, {1: [2, 3]}, and the last
	r := NewReader(b)
	if r.Skip(6); r.Uint(100) != 9 || r.End() != nil {
		t.Errorf("%v, %d bytes left", r.Err(), r.Left())
	}
	if r := NewReader(b[:len(b)-3]); true {
		if r.Skip(6); r.Err() == nil {
			t.Error("it skipped what is not there")
		}
	}
	deep := make([]byte, 1<<20)
	for i := range deep {
		deep[i] = 0x91
	}
	if r := NewReader(append(deep, 0x01)); true {
		if r.Skip(1); r.End() != nil {
			t.Errorf("nested deeply: %v", r.Err())
		}
	}
	for _, bad := range [][]byte{{0xd4, 0, 0}, {0xdf, 0xff, 0xff, 0xff, 0xff}, {0xc6, 0xff, 0xff, 0xff, 0xff}, {0xc1}} {
		if r := NewReader(bad); true {
			if r.Skip(1); r.Err() == nil {
				t.Errorf("% x is skipped", bad)
			}
		}
	}
}
