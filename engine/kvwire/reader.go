package kvwire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// ErrTruncated is wrapped by errors about a payload that ends too early, or
// announces more elements than it has bytes.
var ErrTruncated = errors.New("msgpack cut short")

// ErrType is wrapped by errors about a value that is well formed but of
// another type, or out of the range, that was asked for.
var ErrType = errors.New("unexpected msgpack value")

// Reader is a cursor over a msgpack payload. It reads in place, allocates
// nothing and has no reflection. Each method that returns a value advances past
// it; after an error the position is unspecified, and Seek sets it anew.
type Reader struct {
	b  []byte
	at int
}

// NewReader returns a reader at the start of payload.
func NewReader(payload []byte) Reader { return Reader{b: payload} }

// Pos returns the position, for Seek.
func (r *Reader) Pos() int { return r.at }

// Seek moves to a position that Pos returned.
func (r *Reader) Seek(pos int) { r.at = pos }

// Len returns how many bytes are left.
func (r *Reader) Len() int { return len(r.b) - r.at }

// Codes of msgpack's first byte that this package compares with.
const (
	codeNil     = 0xc0
	codeBin8    = 0xc4
	codeFloat32 = 0xca
	codeFloat64 = 0xcb
	codeUint8   = 0xcc
	codeUint16  = 0xcd
	codeUint32  = 0xce
	codeUint64  = 0xcf
	codeInt8    = 0xd0
	codeInt16   = 0xd1
	codeInt32   = 0xd2
	codeInt64   = 0xd3
	codeStr8    = 0xd9
	codeArray16 = 0xdc
	codeMap16   = 0xde
)

// Kind is the class of a value, told by its first byte.
type Kind uint8

// The kinds. Bool and extension types are Unknown: no engine sends them.
const (
	Unknown Kind = iota
	Nil
	Int
	Float
	Str
	Bin
	Array
	Map
)

// Kind returns the class of the next value without reading it; Unknown at the
// end of the payload.
func (r *Reader) Kind() Kind {
	if r.at >= len(r.b) {
		return Unknown
	}
	switch c := r.b[r.at]; {
	case c <= 0x7f || c >= 0xe0 || c >= codeUint8 && c <= codeInt64:
		return Int
	case c <= 0x8f || c == codeMap16 || c == codeMap16+1:
		return Map
	case c <= 0x9f || c == codeArray16 || c == codeArray16+1:
		return Array
	case c <= 0xbf || c >= codeStr8 && c <= codeStr8+2:
		return Str
	case c == codeNil:
		return Nil
	case c >= codeBin8 && c <= codeBin8+2:
		return Bin
	case c == codeFloat32 || c == codeFloat64:
		return Float
	}
	return Unknown
}

// Nil reads a nil and reports true, or reads nothing and reports false.
func (r *Reader) Nil() bool {
	if r.at < len(r.b) && r.b[r.at] == codeNil {
		r.at++
		return true
	}
	return false
}

// ArrayLen reads an array's header and returns the number of its elements,
// which is never more than the bytes left.
func (r *Reader) ArrayLen() (int, error) {
	return r.header("an array", 0x90, codeArray16, 1)
}

// MapLen reads a map's header and returns the number of its pairs, which is
// never more than half the bytes left.
func (r *Reader) MapLen() (int, error) {
	return r.header("a map", 0x80, codeMap16, 2)
}

func (r *Reader) header(what string, fix, code16 byte, perElement uint64) (int, error) {
	if r.at >= len(r.b) {
		return 0, ErrTruncated
	}
	c := r.b[r.at]
	var n uint64
	switch {
	case c&0xf0 == fix:
		n = uint64(c & 0x0f)
		r.at++
	case c == code16 || c == code16+1:
		var err error
		if n, err = r.size(2 << (c - code16)); err != nil {
			return 0, err
		}
	default:
		return 0, r.typeError(what)
	}
	if n*perElement > uint64(r.Len()) {
		return 0, fmt.Errorf("%w: %d elements announced, %d bytes left", ErrTruncated, n, r.Len())
	}
	return int(n), nil
}

// size reads past the code and a big-endian number of width bytes.
func (r *Reader) size(width int) (uint64, error) {
	if r.Len() < 1+width {
		return 0, ErrTruncated
	}
	b := r.b[r.at+1:]
	r.at += 1 + width
	switch width {
	case 1:
		return uint64(b[0]), nil
	case 2:
		return uint64(binary.BigEndian.Uint16(b)), nil
	case 4:
		return uint64(binary.BigEndian.Uint32(b)), nil
	}
	return binary.BigEndian.Uint64(b), nil
}

// Str reads a string and returns its bytes, which alias the payload.
func (r *Reader) Str() ([]byte, error) {
	if r.at < len(r.b) && r.b[r.at]&0xe0 == 0xa0 {
		n := int(r.b[r.at] & 0x1f)
		r.at++
		return r.take(uint64(n))
	}
	return r.sized("a string", codeStr8)
}

// Bin reads a byte string, which aliases the payload.
func (r *Reader) Bin() ([]byte, error) { return r.sized("a byte string", codeBin8) }

func (r *Reader) sized(what string, code8 byte) ([]byte, error) {
	if r.at >= len(r.b) {
		return nil, ErrTruncated
	}
	c := r.b[r.at]
	if c < code8 || c > code8+2 {
		return nil, r.typeError(what)
	}
	n, err := r.size(1 << (c - code8))
	if err != nil {
		return nil, err
	}
	return r.take(n)
}

func (r *Reader) take(n uint64) ([]byte, error) {
	if n > uint64(r.Len()) {
		return nil, ErrTruncated
	}
	b := r.b[r.at : r.at+int(n)]
	r.at += int(n)
	return b, nil
}

// Int reads an integer of any width and sign as its 64 bits in two's
// complement, and whether it is negative.
func (r *Reader) Int() (bits uint64, negative bool, err error) {
	if r.at >= len(r.b) {
		return 0, false, ErrTruncated
	}
	c := r.b[r.at]
	switch {
	case c <= 0x7f:
		r.at++
		return uint64(c), false, nil
	case c >= 0xe0:
		r.at++
		return uint64(int64(int8(c))), true, nil
	case c >= codeUint8 && c <= codeUint64:
		bits, err = r.size(1 << (c - codeUint8))
		return bits, false, err
	case c >= codeInt8 && c <= codeInt64:
		width := 1 << (c - codeInt8)
		if bits, err = r.size(width); err != nil {
			return 0, false, err
		}
		shift := 64 - 8*width
		v := int64(bits<<shift) >> shift
		return uint64(v), v < 0, nil
	}
	return 0, false, r.typeError("an integer")
}

// Uint32 reads an integer from 0 to 2^32-1. A wider, a negative one and nil
// are errors, never wrapped or taken for 0.
func (r *Reader) Uint32() (uint32, error) {
	b := r.b[min(r.at, len(r.b)):]
	switch { // the usual widths of a token, in line: this is the hottest loop
	case len(b) < 5: // whatever it is, near the end
	case b[0] <= 0x7f:
		r.at++
		return uint32(b[0]), nil
	case b[0] == codeUint16:
		r.at += 3
		return uint32(binary.BigEndian.Uint16(b[1:])), nil
	case b[0] == codeUint32:
		r.at += 5
		return binary.BigEndian.Uint32(b[1:]), nil
	}
	v, negative, err := r.Int()
	if err != nil {
		return 0, err
	}
	if negative || v > math.MaxUint32 {
		return 0, fmt.Errorf("%w: integer %#x doesn't fit 32 bits", ErrType, v)
	}
	return uint32(v), nil
}

// Float reads a number of any kind as a float64.
func (r *Reader) Float() (float64, error) {
	switch r.Kind() {
	case Float:
		wide := r.b[r.at] == codeFloat64
		if !wide {
			bits, err := r.size(4)
			return float64(math.Float32frombits(uint32(bits))), err
		}
		bits, err := r.size(8)
		return math.Float64frombits(bits), err
	case Int:
		v, negative, err := r.Int()
		if negative {
			return float64(int64(v)), err
		}
		return float64(v), err
	}
	return 0, r.typeError("a number")
}

func (r *Reader) typeError(want string) error {
	if r.at >= len(r.b) {
		return ErrTruncated
	}
	return fmt.Errorf("%w: want %s, found code %#x", ErrType, want, r.b[r.at])
}
