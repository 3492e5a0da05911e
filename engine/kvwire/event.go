package kvwire

import (
	"fmt"

	"github.com/rhizome-router/rhizome/kv"
)

// Field names a field of an event.
type Field int

// The fields. FieldSalt is the map form's cache_salt, FieldMetadata a map that
// may hold it.
const (
	FieldType Field = iota
	FieldHashes
	FieldParent
	FieldTokens
	FieldBlockSize
	FieldLoraID
	FieldMedium
	FieldLoraName
	FieldExtraKeys
	FieldGroup
	FieldKind
	FieldWindow
	FieldLocality
	FieldSalt
	FieldMetadata
	numFields
)

// fields says where each field of an event stands in the payload; 0, where no
// field can stand, for one that is absent.
type fields [numFields]int

// fieldOf returns the field of a map key.
func fieldOf(key []byte) (Field, bool) {
	switch string(key) {
	case "type":
		return FieldType, true
	case "block_hashes":
		return FieldHashes, true
	case "parent_block_hash":
		return FieldParent, true
	case "token_ids":
		return FieldTokens, true
	case "block_size":
		return FieldBlockSize, true
	case "lora_id":
		return FieldLoraID, true
	case "medium":
		return FieldMedium, true
	case "lora_name":
		return FieldLoraName, true
	case "extra_keys":
		return FieldExtraKeys, true
	case "group_idx":
		return FieldGroup, true
	case "kv_cache_spec_kind":
		return FieldKind, true
	case "kv_cache_spec_sliding_window":
		return FieldWindow, true
	case "locality":
		return FieldLocality, true
	case "cache_salt":
		return FieldSalt, true
	case "metadata":
		return FieldMetadata, true
	}
	return 0, false
}

// event decodes the event at the reader, appends its op and returns where the
// event ends.
func (d *decoder) event() (end int, err error) {
	var f fields
	var tag []byte
	if d.r.Kind() == Map {
		tag, end, err = d.mapFields(&f)
	} else {
		tag, end, err = d.arrayFields(&f)
	}
	if err != nil {
		return 0, err
	}
	switch string(tag) {
	case "BlockStored":
		err = d.stored(&f)
	case "BlockRemoved":
		err = d.removed(&f)
	case "AllBlocksCleared":
		err = d.cleared(&f)
	default:
		d.batch.UnknownEvents++
	}
	return end, err
}

func (d *decoder) arrayFields(f *fields) (tag []byte, end int, err error) {
	n, err := d.r.ArrayLen()
	if err != nil {
		return nil, 0, err
	}
	if n == 0 {
		return nil, 0, fmt.Errorf("%w: event without a tag", ErrType)
	}
	if tag, err = d.r.Str(); err != nil {
		return nil, 0, err
	}
	var order []Field
	switch string(tag) {
	case "BlockStored":
		order = d.Stored
	case "BlockRemoved":
		order = d.Removed
	case "AllBlocksCleared":
		order = d.Cleared
	}
	for i := 1; i < n; i++ {
		if i < len(order) {
			f[order[i]] = d.r.Pos()
		}
		if err := d.r.Skip(); err != nil {
			return nil, 0, err
		}
	}
	return tag, d.r.Pos(), nil
}

func (d *decoder) mapFields(f *fields) (tag []byte, end int, err error) {
	n, err := d.r.MapLen()
	if err != nil {
		return nil, 0, err
	}
	for range n {
		key, err := d.key()
		if err != nil {
			return nil, 0, err
		}
		if at, known := fieldOf(key); known {
			f[at] = d.r.Pos()
		}
		if err := d.r.Skip(); err != nil {
			return nil, 0, err
		}
	}
	end = d.r.Pos()
	if !d.seek(f, FieldType) {
		return nil, 0, fmt.Errorf("%w: event without a type", ErrType)
	}
	tag, err = d.r.Str()
	return tag, end, err
}

// seek moves to a field and reports whether it is there and not nil.
func (d *decoder) seek(f *fields, at Field) bool {
	if f[at] == 0 {
		return false
	}
	d.r.Seek(f[at])
	return !d.r.Nil()
}

func (d *decoder) removed(f *fields) error {
	op := kv.Op{Kind: kv.Remove}
	var err error
	if op.Hashes, err = d.hashList(f); err != nil {
		return err
	}
	if op.Group, err = d.group(f); err != nil {
		return err
	}
	if op.Tier, err = d.tier(f); err != nil {
		return err
	}
	d.emit(op)
	return nil
}

// cleared empties what the engine empties, or just the medium that is named.
func (d *decoder) cleared(f *fields) error {
	op := kv.Op{Kind: kv.Clear, Tiers: d.ClearTiers}
	if d.seek(f, FieldMedium) {
		tier, err := d.tier(f)
		if err != nil {
			return err
		}
		op.Tiers = tier.Mask()
	}
	d.emit(op)
	return nil
}

// emit appends an op unless it says nothing.
func (d *decoder) emit(op kv.Op) {
	if op.Kind != kv.Clear && len(op.Hashes) == 0 && len(op.Blocks) == 0 {
		return
	}
	d.batch.Ops = append(d.batch.Ops, op)
}

// hashList reads block_hashes into a slice of its own.
func (d *decoder) hashList(f *fields) ([]kv.EngineHash, error) {
	if !d.seek(f, FieldHashes) {
		return nil, fmt.Errorf("%w: event without block_hashes", ErrType)
	}
	n, err := d.r.ArrayLen()
	if err != nil {
		return nil, err
	}
	list := take(&d.hashes, n, d.r.Len())
	for i := range list {
		if list[i], err = Hash(&d.r); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// take cuts n elements off a chunk, after making a new one where it is too
// short. left is how many payload bytes are to come: a bound of what they may
// still need.
func take[T any](chunk *[]T, n, left int) []T {
	if n > len(*chunk) {
		*chunk = make([]T, max(n, min(64, left/16)))
	}
	cut := (*chunk)[:n:n]
	*chunk = (*chunk)[n:]
	return cut
}

func (d *decoder) group(f *fields) (uint16, error) {
	if !d.seek(f, FieldGroup) {
		return 0, nil
	}
	g, err := d.r.Uint32()
	if err == nil && g > 1<<16-1 {
		return 0, fmt.Errorf("%w: group %d doesn't fit 16 bits", ErrType, g)
	}
	return uint16(g), err
}

// tier reads where the blocks are: locality REMOTE outranks the medium.
func (d *decoder) tier(f *fields) (kv.Tier, error) {
	if d.seek(f, FieldLocality) && d.r.Kind() == Str {
		if s, err := d.r.Str(); err == nil && string(s) == "REMOTE" {
			return kv.Remote, nil
		}
	}
	if !d.seek(f, FieldMedium) {
		return kv.HBM, nil
	}
	s, err := d.r.Str()
	return TierOf(s), err
}
