package kvwire

import (
	"bytes"
	"errors"
	"math"
	"testing"

	"github.com/vmihailenco/msgpack/v5"
	"pgregory.net/rapid"
)

// Every integer comes back in every width that another writer may choose.
func TestIntegers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := rapid.OneOf(rapid.Int64(), rapid.Int64Range(-200, 200), rapid.SampledFrom([]int64{
			math.MinInt8, math.MaxUint8, math.MaxUint16, math.MaxInt32, math.MinInt32, math.MaxUint32, math.MaxUint32 + 1,
		})).Draw(t, "v")
		var buf bytes.Buffer
		enc := msgpack.NewEncoder(&buf)
		enc.UseCompactInts(rapid.Bool().Draw(t, "compact"))
		enc.EncodeInt64(v)
		r := NewReader(buf.Bytes())
		if r.Kind() != Int {
			t.Fatalf("%x is of kind %d", buf.Bytes(), r.Kind())
		}
		bits, negative, err := r.Int()
		if err != nil || int64(bits) != v || negative != (v < 0) || r.Len() != 0 {
			t.Fatalf("%x reads as %d, %v, %v", buf.Bytes(), int64(bits), negative, err)
		}
		r.Seek(0)
		u, err := r.Uint32()
		if fits := v >= 0 && v <= math.MaxUint32; fits != (err == nil) || fits && int64(u) != v {
			t.Fatalf("%d reads as %d, %v", v, u, err)
		}
		r.Seek(0)
		if f, err := r.Float(); err != nil || f != float64(v) {
			t.Fatalf("%d reads as %v, %v", v, f, err)
		}
	})
}

// Skip moves past exactly what the library wrote, of any shape, and no prefix
// of it is complete.
func TestSkip(t *testing.T) {
	leaf := rapid.OneOf(
		rapid.Just[any](nil), rapid.Bool().AsAny(), rapid.Int64().AsAny(), rapid.Uint64().AsAny(), rapid.Float64().AsAny(),
		rapid.Float32().AsAny(), rapid.StringN(0, 40, -1).AsAny(), rapid.SliceOfN(rapid.Byte(), 0, 3).AsAny(),
		rapid.Just[any](string(make([]byte, 300))), rapid.Just[any](make([]byte, 300)), rapid.Just[any](make([]int, 20)))
	var value func(depth int) *rapid.Generator[any]
	value = func(depth int) *rapid.Generator[any] {
		if depth == 0 {
			return leaf
		}
		inner := value(depth - 1)
		return rapid.OneOf(leaf, rapid.SliceOfN(inner, 0, 4).AsAny(), rapid.MapOfN(rapid.StringN(0, 3, -1), inner, 0, 20).AsAny())
	}
	rapid.Check(t, func(t *rapid.T) {
		raw, err := msgpack.Marshal(value(2).Draw(t, "value"))
		if err != nil {
			t.Fatal(err)
		}
		r := NewReader(append(bytes.Clone(raw), 0xc0))
		if err := r.Skip(); err != nil || r.Pos() != len(raw) {
			t.Fatalf("stopped at %d of %d: %v", r.Pos(), len(raw), err)
		}
		r = NewReader(raw[:rapid.IntRange(0, len(raw)-1).Draw(t, "cut")])
		if err := r.Skip(); !errors.Is(err, ErrTruncated) {
			t.Fatalf("cut at %d of %d: %v", r.Len(), len(raw), err)
		}
	})
}

func TestSkipLong(t *testing.T) {
	for _, v := range []any{make([]byte, 70_000), string(make([]byte, 70_000)), make([]int, 70_000)} {
		raw, err := msgpack.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		r := NewReader(raw)
		if err := r.Skip(); err != nil || r.Len() != 0 {
			t.Errorf("%T: %d bytes left, %v", v, r.Len(), err)
		}
	}
}

func TestSkipExtensions(t *testing.T) {
	for _, raw := range [][]byte{
		{0xd4, 1, 0}, {0xd5, 1, 0, 0}, append([]byte{0xd8, 1}, make([]byte, 16)...),
		{0xc7, 2, 1, 0, 0}, {0xc8, 0, 1, 1, 0}, {0xc9, 0, 0, 0, 0, 1},
	} {
		r := NewReader(raw)
		if err := r.Skip(); err != nil || r.Len() != 0 {
			t.Errorf("%x: %d bytes left, %v", raw, r.Len(), err)
		}
	}
	r := NewReader([]byte{0xc1})
	if err := r.Skip(); !errors.Is(err, ErrType) {
		t.Errorf("the unused code: %v", err)
	}
}

// What is announced is never believed before it is there.
func TestAnnouncedLengths(t *testing.T) {
	for _, raw := range [][]byte{
		{0xdd, 0xff, 0xff, 0xff, 0xff}, {0xdf, 0xff, 0xff, 0xff, 0xff, 0}, {0xdf, 0x80, 0, 0, 0}, {0x9f, 0}, {0x82, 1, 2, 3},
		{0xdb, 0xff, 0xff, 0xff, 0xff}, {0xc6, 0xff, 0xff, 0xff, 0xff}, {0xc9, 0xff, 0xff, 0xff, 0xff, 0}, {0xdc}, {0xd9}, {0xcf, 0}, {0xca},
	} {
		r := NewReader(raw)
		if err := r.Skip(); !errors.Is(err, ErrTruncated) {
			t.Errorf("%x: %v", raw, err)
		}
	}
}

func TestWrongTypes(t *testing.T) {
	r := NewReader([]byte{0xc0})
	for name, read := range map[string]func() error{
		"array": func() error { _, err := r.ArrayLen(); return err },
		"map":   func() error { _, err := r.MapLen(); return err },
		"str":   func() error { _, err := r.Str(); return err },
		"bin":   func() error { _, err := r.Bin(); return err },
		"int":   func() error { _, _, err := r.Int(); return err },
		"u32":   func() error { _, err := r.Uint32(); return err },
		"float": func() error { _, err := r.Float(); return err },
	} {
		r.Seek(0)
		if err := read(); !errors.Is(err, ErrType) {
			t.Errorf("nil as %s: %v", name, err)
		}
		r.Seek(1)
		if err := read(); !errors.Is(err, ErrTruncated) {
			t.Errorf("the end as %s: %v", name, err)
		}
	}
}

func FuzzSkip(f *testing.F) {
	f.Add([]byte{0x93, 0xcb, 1, 2, 3, 4, 5, 6, 7, 8, 0x91, 0x81, 0xa1, 'k', 0xc0, 0})
	f.Fuzz(func(t *testing.T, raw []byte) {
		r := NewReader(raw)
		if err := r.Skip(); err == nil && (r.Pos() == 0 || r.Pos() > len(raw)) {
			t.Fatalf("at %d of %d", r.Pos(), len(raw))
		}
	})
}
