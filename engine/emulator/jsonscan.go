package emulator

import (
	"bytes"
	"errors"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// errShape says that a value is not of the JSON type that is needed.
var errShape = errors.New("wrong JSON type")

func validUTF8(b []byte) bool { return utf8.Valid(b) }

// eachMember calls f for each member of a JSON object, in order. The values
// are views of raw.
func eachMember(raw []byte, f func(name string, v jsontext.Value) error) error {
	return scan(raw, '{', func(d *jsontext.Decoder) error { return member(d, raw, f) })
}

// member reads the next member of an object of raw.
func member(d *jsontext.Decoder, raw []byte, f func(name string, v jsontext.Value) error) error {
	name, err := readName(d)
	if err != nil {
		return err
	}
	v, err := readView(d, raw)
	if err != nil {
		return err
	}
	return f(name, v)
}

func readName(d *jsontext.Decoder) (string, error) {
	name, err := d.ReadToken()
	if err != nil {
		return "", err
	}
	return name.String(), nil
}

// eachElement calls f for each element of a JSON array, in order.
func eachElement(raw []byte, f func(v jsontext.Value) error) error {
	return scan(raw, '[', func(d *jsontext.Decoder) error {
		v, err := readView(d, raw)
		if err != nil {
			return err
		}
		return f(v)
	})
}

// scan reads one object or array and nothing after it.
func scan(raw []byte, open jsontext.Kind, item func(*jsontext.Decoder) error) error {
	d := jsontext.NewDecoder(bytes.NewBuffer(raw), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if err := descend(d, open, func() error { return item(d) }); err != nil {
		return err
	}
	if len(bytes.TrimSpace(raw[d.InputOffset():])) > 0 {
		return errors.New("data after the JSON value")
	}
	return nil
}

// descend reads the next value, an object or array, item by item.
func descend(d *jsontext.Decoder, open jsontext.Kind, item func() error) error {
	if d.PeekKind() != open {
		if _, err := d.ReadToken(); err != nil {
			return err
		}
		return errShape
	}
	if _, err := d.ReadToken(); err != nil {
		return err
	}
	for {
		switch d.PeekKind() {
		case '}', ']':
			_, err := d.ReadToken()
			return err
		}
		if err := item(); err != nil {
			return err
		}
	}
}

// readView returns the next value as a view of raw, which stays valid when the
// decoder reads on.
func readView(d *jsontext.Decoder, raw []byte) (jsontext.Value, error) {
	v, err := d.ReadValue()
	if err != nil {
		return nil, err
	}
	end := int(d.InputOffset())
	return raw[end-len(v) : end : end], nil
}
