package kvwire

import "fmt"

// Skip moves past the next value, whatever it holds. It needs no stack and
// stops as soon as more is announced than is there.
func (r *Reader) Skip() error {
	for left := 1; left > 0; left-- {
		if left > r.Len() {
			return fmt.Errorf("%w: %d values announced, %d bytes left", ErrTruncated, left, r.Len())
		}
		c := r.b[r.at]
		switch {
		case c <= 0x7f || c >= 0xe0: // most of the time, as the next: tokens
			r.at++
			continue
		case c >= codeUint8 && c <= codeInt64:
			r.at += 1 + 1<<(c&3) // the codes of both signs go 1, 2, 4, 8 bytes
			if r.at > len(r.b) {
				return ErrTruncated
			}
			continue
		}
		inner, err := r.skipOne(c)
		if err != nil {
			return err
		}
		left += inner
	}
	return nil
}

// skipOne moves past a scalar, or past the header of a container, whose number
// of values it returns.
func (r *Reader) skipOne(c byte) (inner int, err error) {
	switch r.Kind() {
	case Array:
		return r.ArrayLen()
	case Map:
		n, err := r.MapLen()
		return 2 * n, err
	case Str:
		_, err = r.Str()
	case Bin:
		_, err = r.Bin()
	case Nil:
		r.at++
	case Float:
		_, err = r.Float()
	default:
		err = r.skipRare(c)
	}
	return 0, err
}

// skipRare moves past a bool or an extension value.
func (r *Reader) skipRare(c byte) error {
	var body uint64
	switch {
	case c == 0xc2 || c == 0xc3: // false, true
		r.at++
		return nil
	case c >= 0xc7 && c <= 0xc9: // ext 8, 16, 32: size, type, data
		n, err := r.size(1 << (c - 0xc7))
		if err != nil {
			return err
		}
		body = 1 + n
	case c >= 0xd4 && c <= 0xd8: // fixext 1…16: type, data
		r.at++
		body = 1 + 1<<(c-0xd4)
	default:
		return fmt.Errorf("%w: code %#x is not used by msgpack", ErrType, c)
	}
	_, err := r.take(body)
	return err
}
