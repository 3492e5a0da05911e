package kvwire

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/rhizome-router/rhizome/kv"
)

// Batch is one decoded payload: what an engine did to its cache in one step.
type Batch struct {
	// TimestampSeconds is the engine's wall clock at publication, Unix time.
	// Engine clocks lie: for display only.
	TimestampSeconds float64
	// Rank is the data-parallel rank that the engine wrote, -1 where it wrote
	// none.
	Rank int
	// Ops are in the engine's order and share nothing with the payload.
	Ops []kv.Op
	// Groups are what the batch says of the model's KV groups besides main
	// attention, each once; none of what can't be told.
	Groups []Group
	// BadEvents counts events that could not be read; they cost only
	// themselves.
	BadEvents int
	// UnknownEvents counts events of a type this version doesn't know. Newer
	// engines may send them; they are no errors.
	UnknownEvents int
}

// Group is a KV group of a hybrid model besides main attention. To go on after
// a prefix the engine needs the group's blocks of the prefix's last
// WindowTokens tokens.
type Group struct {
	ID           uint16 // the engine's number, as in kv.Op
	WindowTokens uint32 // a sliding window's width; 1 where a state is all that is needed
	BlockTokens  uint32 // tokens in a block of the group
}

// maxGroups bounds the groups that a batch tells of.
const maxGroups = 32

// ReadRank reads a batch's data-parallel rank: -1 for nil and for whatever
// can't be a rank.
func ReadRank(r *Reader) (int, error) {
	if r.Kind() != Int {
		return -1, r.Skip()
	}
	v, negative, err := r.Int()
	if negative || v > math.MaxInt16 {
		return -1, err
	}
	return int(v), err
}

// Hash reads a block's hash: an integer of any width and sign, by two's
// complement, or a byte string, by its last 8 bytes, big-endian. Nil is an
// error; 0 is a hash like any other.
func Hash(r *Reader) (kv.EngineHash, error) {
	if r.Kind() != Bin {
		v, _, err := r.Int()
		return kv.EngineHash(v), err
	}
	b, err := r.Bin()
	if err != nil {
		return 0, err
	}
	if len(b) < 8 {
		return 0, fmt.Errorf("%w: hash of %d bytes, want at least 8", ErrType, len(b))
	}
	return kv.EngineHash(binary.BigEndian.Uint64(b[len(b)-8:])), nil
}
