package kvwire

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/rhizome-router/rhizome/kv"
)

// stored decodes a BlockStored: an Insert of main attention's blocks, or an
// Also where the event tells presence only. The checks come in this order:
// hashes, placeholder, group, tokens, their number, the parent.
func (d *decoder) stored(f *fields) error {
	hashes, err := d.hashList(f)
	if err != nil {
		return err
	}
	op := kv.Op{Kind: kv.Also, Hashes: hashes}
	if op.Tier, err = d.tier(f); err != nil {
		return err
	}
	if op.Group, err = d.group(f); err != nil {
		return err
	}
	numTokens, err := d.numTokens(f)
	if err != nil {
		return err
	}
	if op.BlockTokens, err = d.blockSize(f); err != nil {
		return err
	}
	placeholder := numTokens == 0 || op.BlockTokens == 0
	kind := d.kind(f)
	if placeholder || !isMain(kind, op.Group) {
		if !placeholder {
			d.windowed(f, kind, Group{ID: op.Group, BlockTokens: op.BlockTokens})
		}
		op.BlockTokens = 0
		d.emit(op)
		return nil
	}
	op.Kind, op.Hashes = kv.Insert, nil
	if op.Blocks, err = d.run(f, hashes, numTokens, int(op.BlockTokens)); err != nil {
		return err
	}
	if op.HasParent = d.seek(f, FieldParent); op.HasParent {
		if op.Parent, err = Hash(&d.r); err != nil {
			return err
		}
		if slices.Contains(hashes, op.Parent) {
			return fmt.Errorf("%w: block %d is its own parent", ErrType, op.Parent)
		}
	} else if op.Root, err = d.rootKey(f); err != nil {
		return err
	}
	d.emit(op)
	return nil
}

// numTokens returns the length of token_ids and leaves the reader at the first.
func (d *decoder) numTokens(f *fields) (int, error) {
	if !d.seek(f, FieldTokens) {
		return 0, nil
	}
	return d.r.ArrayLen()
}

func (d *decoder) blockSize(f *fields) (uint32, error) {
	if !d.seek(f, FieldBlockSize) {
		return 0, nil
	}
	return d.r.Uint32()
}

// kind returns the name of the KV group's kind, empty where there is none.
func (d *decoder) kind(f *fields) []byte {
	if !d.seek(f, FieldKind) || d.r.Kind() != Str {
		return nil
	}
	kind, _ := d.r.Str() // whole, or Skip had failed
	return kind
}

// isMain reports whether a KV group is main attention, on which prefixes are
// matched. A known kind decides; else group 0 is.
func isMain(kind []byte, group uint16) bool {
	switch string(kind) {
	case "full_attention", "mla_attention", "sink_full_attention":
		return true
	case "sliding_window", "sliding_window_mla", "mamba", "chunked_local_attention",
		"encoder_only_attention", "cross_attention":
		return false
	}
	return group == 0
}

// windowed notes what the engine needs of a group that isn't main attention.
// Of a kind that isn't known, or a window that isn't told, nothing is.
func (d *decoder) windowed(f *fields, kind []byte, g Group) {
	switch string(kind) {
	case "sliding_window", "sliding_window_mla":
		if !d.seek(f, FieldWindow) {
			return
		}
		w, err := d.r.Uint32()
		if err != nil || w == 0 {
			return
		}
		g.WindowTokens = w
	case "mamba":
		g.WindowTokens = 1
	default:
		return
	}
	known := slices.ContainsFunc(d.batch.Groups, func(o Group) bool { return o.ID == g.ID })
	if !known && len(d.batch.Groups) < maxGroups {
		d.batch.Groups = append(d.batch.Groups, g)
	}
}

// run hashes the tokens and extras of each block.
func (d *decoder) run(f *fields, hashes []kv.EngineHash, numTokens, blockTokens int) ([]kv.Block, error) {
	if blockTokens > numTokens || numTokens != len(hashes)*blockTokens {
		return nil, fmt.Errorf("%w: %d tokens for %d blocks of %d", ErrType, numTokens, len(hashes), blockTokens)
	}
	extras, err := d.newExtras(f)
	if err != nil {
		return nil, err
	}
	if _, err := d.numTokens(f); err != nil { // back to the first token
		return nil, err
	}
	if cap(d.tokens) < blockTokens {
		d.tokens = make([]uint32, blockTokens)
	}
	tokens := d.tokens[:blockTokens]
	pairs := d.Pairs && d.r.Kind() == Array
	blocks := take(&d.blocks, len(hashes), d.r.Len())
	for i, h := range hashes {
		if pairs {
			err = d.readPairs(tokens)
		} else {
			err = d.readTokens(tokens)
		}
		if err != nil {
			return nil, err
		}
		words, err := extras.next()
		if err != nil {
			return nil, err
		}
		blocks[i] = kv.Block{Hash: h, Content: kv.ContentOf(tokens, words...)}
	}
	return blocks, nil
}

func (d *decoder) readTokens(tokens []uint32) (err error) {
	for i := range tokens {
		if tokens[i], err = d.r.Uint32(); err != nil {
			return err
		}
	}
	return nil
}

// readPairs reads pairs of a token and the next, and keeps the first of each.
func (d *decoder) readPairs(tokens []uint32) error {
	for i := range tokens {
		n, err := d.r.ArrayLen()
		if err != nil {
			return err
		}
		if n != 2 {
			return fmt.Errorf("%w: %d tokens where a pair should be", ErrType, n)
		}
		if tokens[i], err = d.r.Uint32(); err != nil {
			return err
		}
		if _, err = d.r.Uint32(); err != nil {
			return err
		}
	}
	return nil
}

// rootKey returns the key that a run without parent starts from.
func (d *decoder) rootKey(f *fields) (kv.Key, error) {
	adapter, err := d.adapter(f)
	if err != nil {
		return 0, err
	}
	salt, err := d.salt(f)
	if err != nil {
		return 0, err
	}
	if of := [2]string{adapter, salt}; !d.rooted || d.rootOf != of {
		d.root, d.rootOf, d.rooted = kv.Root(d.model, adapter, salt), of, true
	}
	return d.root, nil
}

// salt returns the cache salt of an engine that tells it apart. Metadata that
// is no map is an error: without it two different prefixes would look the
// same.
func (d *decoder) salt(f *fields) (salt string, err error) {
	if !d.Salted {
		return "", nil
	}
	if d.seek(f, FieldSalt) {
		s, err := d.r.Str()
		return string(s), err
	}
	if !d.seek(f, FieldMetadata) {
		return "", nil
	}
	n, err := d.r.MapLen()
	if err != nil {
		return "", err
	}
	for range n {
		key, err := d.key()
		if err != nil {
			return "", err
		}
		if string(key) != "cache_salt" {
			err = d.r.Skip()
		} else if !d.r.Nil() {
			var s []byte
			s, err = d.r.Str()
			salt = string(s)
		}
		if err != nil {
			return "", err
		}
	}
	return salt, nil
}

// adapter returns the LoRA adapter's name, "id:<n>" where only its number is
// known, or empty.
func (d *decoder) adapter(f *fields) (string, error) {
	name, err := d.loraName(f)
	if err != nil || len(name) > 0 {
		return string(name), err
	}
	if !d.seek(f, FieldLoraID) {
		return "", nil
	}
	id, negative, err := d.r.Int()
	if negative {
		return "id:" + strconv.FormatInt(int64(id), 10), err
	}
	return "id:" + strconv.FormatUint(id, 10), err
}

func (d *decoder) loraName(f *fields) ([]byte, error) {
	if !d.seek(f, FieldLoraName) {
		return nil, nil
	}
	return d.r.Str()
}
