// Package kv is the vocabulary of the whole house: what a KV block is called,
// where it can be, who holds it, and how a change of that is said.
//
// The central type is [Op], one operation on the tree of prefixes (a
// TreeOperation): an engine adapter decodes events into ops, package crdt
// applies them, package index shows the result. [Key] is the name of a prefix.
// The package imports nothing else of this project.
package kv

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strings"
)

// Tier is a class of memory that can hold a KV block, fastest first.
type Tier uint8

// The tiers. Other is some slower medium of unknown kind: it is never taken
// for HBM.
const (
	HBM Tier = iota
	CPU
	Disk
	Remote
	Other
	NumTiers = 5
)

var tierNames = [NumTiers]string{"hbm", "cpu", "disk", "remote", "other"}

// String returns the tier's name as used in metrics and JSON.
func (t Tier) String() string {
	if int(t) < len(tierNames) {
		return tierNames[t]
	}
	return fmt.Sprintf("tier(%d)", uint8(t))
}

// ParseTier returns the tier of a name that String gives.
func ParseTier(s string) (Tier, error) {
	for i, n := range tierNames {
		if n == s {
			return Tier(i), nil
		}
	}
	return 0, fmt.Errorf("unknown tier %q (one of %s)", s, strings.Join(tierNames[:], ", "))
}

// TierMask is a set of tiers, bit t for tier t.
type TierMask uint8

// Mask returns the set that holds just t.
func (t Tier) Mask() TierMask { return 1 << t }

// Has reports whether t is in the set.
func (m TierMask) Has(t Tier) bool { return m&(1<<t) != 0 }

// EngineHash is a block's name in one engine's own scheme, reduced to 64 bits:
// signed values by two's complement, byte strings by their last 8 bytes,
// big-endian. It means something only within one stream, and there only
// together with a KV group.
type EngineHash uint64

// OpKind says what an Op does.
type OpKind uint8

const (
	// Insert adds a run of consecutive blocks, with content, on one tier.
	Insert OpKind = iota
	// Also says that known blocks are on a tier too.
	Also
	// Remove says that blocks left a tier.
	Remove
	// Clear empties whole tiers.
	Clear
)

var opNames = [...]string{"insert", "also", "remove", "clear"}

// String returns the kind's name as used in logs and goldens.
func (k OpKind) String() string {
	if int(k) < len(opNames) {
		return opNames[k]
	}
	return fmt.Sprintf("op(%d)", uint8(k))
}

// Block is one block of an Insert run.
type Block struct {
	Hash    EngineHash
	Content Content
}

// Op is one operation on the tree of prefixes that one stream reports. A move
// between tiers is a Remove and an Also in the same batch.
type Op struct {
	Kind  OpKind
	Group uint16 // KV-cache group of a hybrid model; 0 is main attention
	Tier  Tier   // Insert, Also, Remove

	// Insert. Either HasParent, and Parent is the hash of the block before the
	// first one, or Root is the chain's root key.
	HasParent   bool
	Parent      EngineHash
	Root        Key
	BlockTokens uint32 // tokens in each block; 0 when the engine doesn't say
	Blocks      []Block

	Hashes []EngineHash // Also, Remove
	Tiers  TierMask     // Clear
}

// WorkerID names a worker in every replica: the first 8 bytes, big-endian, of
// SHA-256(cluster, NUL, id).
type WorkerID uint64

// WorkerIDOf returns the id of the worker that a cluster knows as id, which is
// an explicit id or the worker's canonical URL.
func WorkerIDOf(cluster, id string) WorkerID {
	sum := sha256.Sum256([]byte(cluster + "\x00" + id))
	return WorkerID(binary.BigEndian.Uint64(sum[:8]))
}

// String returns the id as 16 hex digits.
func (w WorkerID) String() string { return fmt.Sprintf("%016x", uint64(w)) }

// NoRank is the rank of a target whose worker's ranks can't be addressed.
const NoRank = -1

// Target is what a request is sent to: a worker, or one data-parallel rank of
// it where the engine's adapter can address ranks.
type Target struct {
	Worker WorkerID
	Rank   int16 // NoRank or 0…
}

// String returns "worker" or "worker/rank".
func (t Target) String() string {
	if t.Rank == NoRank {
		return t.Worker.String()
	}
	return fmt.Sprintf("%s/%d", t.Worker, t.Rank)
}

// Boot is an opaque name of one life of a target's cache. Boots are compared
// for equality only; engine clocks lie, so they are never ordered.
type Boot uint64
