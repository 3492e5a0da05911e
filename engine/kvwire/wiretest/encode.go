package wiretest

import (
	"bytes"

	"github.com/vmihailenco/msgpack/v5"
)

// Map is a map whose keys are written in order: key, value, key, value, …
type Map []any

// Encode writes v as an engine would: integers at their smallest, and pairs in
// their order.
func Encode(t interface{ Fatal(...any) }, v any) []byte {
	var buf bytes.Buffer
	enc := msgpack.NewEncoder(&buf)
	enc.UseCompactInts(true)
	var put func(v any) error
	put = func(v any) error {
		switch v := v.(type) {
		case Map:
			if err := enc.EncodeMapLen(len(v) / 2); err != nil {
				return err
			}
			for _, x := range v {
				if err := put(x); err != nil {
					return err
				}
			}
			return nil
		case []any:
			if err := enc.EncodeArrayLen(len(v)); err != nil {
				return err
			}
			for _, x := range v {
				if err := put(x); err != nil {
					return err
				}
			}
			return nil
		}
		return enc.Encode(v)
	}
	if err := put(v); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// Batch returns the payload of a batch of events, by rank 0.
func Batch(t interface{ Fatal(...any) }, events ...any) []byte {
	return Encode(t, []any{1700000000.5, events, 0})
}
