package emulator

import (
	"fmt"

	"github.com/rhizome-router/rhizome/kv"
)

// EventForm is how events are written.
type EventForm string

const (
	// FormMap is the form of vLLM 0.24 and later.
	FormMap EventForm = "map"
	// FormArray is the form of vLLM 0.22 and 0.23.
	FormArray EventForm = "array"
)

// ParseEventForm returns the form called s; an empty s means FormMap.
func ParseEventForm(s string) (EventForm, error) {
	switch f := EventForm(s); f {
	case "":
		return FormMap, nil
	case FormMap, FormArray:
		return f, nil
	}
	return "", fmt.Errorf("event form %q is unknown; use %q or %q", s, FormMap, FormArray)
}

// stored is a BlockStored. tokens holds blockTokens tokens for each hash.
type stored struct {
	hashes      []kv.EngineHash
	hasParent   bool
	parent      kv.EngineHash
	tokens      []uint32
	blockTokens int
	medium      string
	salt        string // of the first block; empty: none
}

const attentionKind = "full_attention"

// appendStored appends a BlockStored of the one group of a full-attention
// model.
func (f EventForm) appendStored(b []byte, e stored) []byte {
	if f == FormArray {
		b = appendString(appendArrayLen(b, 12), "BlockStored")
		b = appendHashes(b, e.hashes)
		b = appendParent(b, e)
		b = appendTokenIDs(b, e.tokens)
		b = appendUint(b, uint64(e.blockTokens))
		b = appendNil(b) // lora_id
		b = appendString(b, e.medium)
		b = appendNil(b) // lora_name
		b = appendExtraKeys(b, e)
		b = appendUint(b, 0) // group_idx
		b = appendString(b, attentionKind)
		return appendNil(b) // sliding window
	}
	b = appendMapLen(b, 11)
	b = appendString(appendString(b, "type"), "BlockStored")
	b = appendHashes(appendString(b, "block_hashes"), e.hashes)
	b = appendParent(appendString(b, "parent_block_hash"), e)
	b = appendTokenIDs(appendString(b, "token_ids"), e.tokens)
	b = appendUint(appendString(b, "block_size"), uint64(e.blockTokens))
	b = appendNil(appendString(b, "lora_id"))
	b = appendString(appendString(b, "medium"), e.medium)
	b = appendNil(appendString(b, "lora_name"))
	b = appendExtraKeys(appendString(b, "extra_keys"), e)
	b = appendUint(appendString(b, "group_idx"), 0)
	return appendString(appendString(b, "kv_cache_spec_kind"), attentionKind)
}

// appendRemoved appends a BlockRemoved.
func (f EventForm) appendRemoved(b []byte, hashes []kv.EngineHash, medium string) []byte {
	if f == FormArray {
		b = appendString(appendArrayLen(b, 4), "BlockRemoved")
		b = appendString(appendHashes(b, hashes), medium)
		return appendUint(b, 0)
	}
	b = appendMapLen(b, 4)
	b = appendString(appendString(b, "type"), "BlockRemoved")
	b = appendHashes(appendString(b, "block_hashes"), hashes)
	b = appendString(appendString(b, "medium"), medium)
	return appendUint(appendString(b, "group_idx"), 0)
}

// appendCleared appends an AllBlocksCleared.
func (f EventForm) appendCleared(b []byte) []byte {
	if f == FormArray {
		return appendString(appendArrayLen(b, 1), "AllBlocksCleared")
	}
	return appendString(appendString(appendMapLen(b, 1), "type"), "AllBlocksCleared")
}

// appendBatch appends a batch of n events that are encoded already.
func appendBatch(b []byte, timestampSeconds float64, n int, events []byte, rank int) []byte {
	b = appendFloat(appendArrayLen(b, 3), timestampSeconds)
	b = append(appendArrayLen(b, n), events...)
	return appendUint(b, uint64(rank))
}

func appendHashes(b []byte, hashes []kv.EngineHash) []byte {
	b = appendArrayLen(b, len(hashes))
	for _, h := range hashes {
		b = appendUint(b, uint64(h))
	}
	return b
}

func appendParent(b []byte, e stored) []byte {
	if !e.hasParent {
		return appendNil(b)
	}
	return appendUint(b, uint64(e.parent))
}

func appendTokenIDs(b []byte, tokens []uint32) []byte {
	b = appendArrayLen(b, len(tokens))
	for _, t := range tokens {
		b = appendUint(b, uint64(t))
	}
	return b
}

func appendExtraKeys(b []byte, e stored) []byte {
	b = appendArrayLen(b, len(e.hashes))
	for i := range e.hashes {
		if i == 0 && e.salt != "" {
			b = appendString(appendArrayLen(b, 1), e.salt)
		} else {
			b = appendNil(b)
		}
	}
	return b
}

// media are the names of the tiers on the wire.
var media = [kv.NumTiers]string{kv.HBM: "GPU", kv.CPU: "CPU", kv.Disk: "FS", kv.Remote: "STORAGE", kv.Other: "OTHER"}
