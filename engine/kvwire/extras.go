package kvwire

import (
	"bytes"
	"fmt"
	"strconv"
)

// extras walks extra_keys, one entry a block: nil, or a list of what besides
// the tokens makes the block what it is (media, a cache salt).
type extras struct {
	r        Reader // a cursor of its own, beside the one at the tokens
	left     int    // entries to come
	loraName []byte
	words    []string // scratch of next
}

func (d *decoder) newExtras(f *fields) (extras, error) {
	if !d.seek(f, FieldExtraKeys) {
		return extras{}, nil
	}
	n, err := d.r.ArrayLen()
	if err != nil {
		return extras{}, err
	}
	x := extras{r: d.r, left: n}
	x.loraName, err = d.loraName(f)
	return x, err
}

// next returns the words of the next block's entry that its content is hashed
// with; none once the entries are used up. The slice is valid until the next
// call.
func (x *extras) next() ([]string, error) {
	if x.left == 0 {
		return nil, nil
	}
	x.left--
	if x.r.Nil() {
		return nil, nil
	}
	n, err := x.r.ArrayLen()
	if err != nil {
		return nil, err
	}
	x.words = x.words[:0]
	for range n {
		word, err := x.word()
		if err != nil {
			return nil, err
		}
		if word != "" {
			x.words = append(x.words, word)
		}
	}
	return x.words, nil
}

// word returns one item's word, empty for the LoRA adapter's name, which the
// root holds already. An item of a kind we don't know is an error: without it
// two different blocks would look the same.
func (x *extras) word() (string, error) {
	switch x.r.Kind() {
	case Str:
		s, err := x.r.Str()
		if err != nil || len(s) > 0 && bytes.Equal(s, x.loraName) {
			return "", err
		}
		return "x:" + string(s), nil
	case Bin: // digest of prompt embeddings
		s, err := x.r.Bin()
		return "x:" + string(s), err
	case Array:
		return x.media()
	}
	return "", fmt.Errorf("%w: extra key of an unknown kind", ErrType)
}

// media reads [identifier, offset], or [identifier] alone.
func (x *extras) media() (string, error) {
	n, err := x.r.ArrayLen()
	if err != nil {
		return "", err
	}
	if n != 1 && n != 2 {
		return "", fmt.Errorf("%w: media item of %d elements", ErrType, n)
	}
	id, err := x.r.Str()
	if err != nil || n == 1 {
		return "mm:" + string(id), err
	}
	offset, negative, err := x.r.Int()
	if err != nil {
		return "", err
	}
	if negative {
		return "mm:" + string(id) + "@" + strconv.FormatInt(int64(offset), 10), nil
	}
	return "mm:" + string(id) + "@" + strconv.FormatUint(offset, 10), nil
}
