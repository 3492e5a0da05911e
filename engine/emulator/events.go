package emulator

import (
	"fmt"

	"github.com/rhizome-router/rhizome/kv"
)

// EventForm is how events are written.
type EventForm string

const (
	// FormMap is the form of vLLM 0.24 and later, and of SGLang after 0.5.18.
	FormMap EventForm = "map"
	// FormArray is the form of vLLM 0.22 and 0.23, and of SGLang up to 0.5.18.
	FormArray EventForm = "array"
)

// ParseEventForm returns the form called s; an empty one is the engine's usual.
func ParseEventForm(s string) (EventForm, error) {
	switch f := EventForm(s); f {
	case "", FormMap, FormArray:
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
	salt        string        // of its sequence; empty: none
	media       [][]mediaItem // that reach into each block, at from its first token; nil: none anywhere
	group       uint16        // 0: full attention
	window      int           // tokens of another group's sliding window
}

// Types of events.
const (
	typeStored  = "BlockStored"
	typeRemoved = "BlockRemoved"
	typeCleared = "AllBlocksCleared"
)

// appendCleared appends an AllBlocksCleared.
func (f EventForm) appendCleared(b []byte) []byte {
	if f == FormArray {
		return appendString(appendArrayLen(b, 1), typeCleared)
	}
	return appendString(appendString(appendMapLen(b, 1), "type"), typeCleared)
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
