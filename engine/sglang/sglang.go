// Package sglang knows what SGLang's KV events have to themselves, in every
// release from 0.5.6 on, so that they are decoded into operations on the tree
// of prefixes.
//
// The central function is [Decode]: one payload in, one batch of [kv.Op] out.
// How that is done for all engines alike is in kvwire. [Chained] says of which
// releases the events mean anything.
package sglang

import (
	"slices"
	"strconv"
	"strings"

	"github.com/rhizome-router/rhizome/engine/kvwire"
	"github.com/rhizome-router/rhizome/kv"
)

// Its clear resets the radix tree, and with it the host's copies. A salted
// block carries its salt, in a map at the end of the array form. Speculation
// with EAGLE makes the tree one of pairs: a page's key is that of the pairs'
// first tokens, so that a prompt which differs first in the token after a page
// is over-claimed by that page.
var dialect = kvwire.Dialect{
	Engine: "SGLang",
	Stored: []kvwire.Field{kvwire.FieldType, kvwire.FieldHashes, kvwire.FieldParent, kvwire.FieldTokens, kvwire.FieldBlockSize,
		kvwire.FieldLoraID, kvwire.FieldMedium, kvwire.FieldMetadata},
	Removed:    []kvwire.Field{kvwire.FieldType, kvwire.FieldHashes, kvwire.FieldMedium},
	Cleared:    []kvwire.Field{kvwire.FieldType, kvwire.FieldMedium},
	ClearTiers: kv.HBM.Mask() | kv.CPU.Mask(),
	Salted:     true,
	Pairs:      true,
}

// Decode decodes one batch of a worker that serves model, as
// [kvwire.Dialect.Decode] says. The release must be Chained.
//
// A LoRA adapter is no part of SGLang's hashes, and only its event format
// "dynamo" names the adapter: otherwise the blocks of an adapter look like the
// base model's.
func Decode(payload []byte, model string) (kvwire.Batch, error) {
	return dialect.Decode(payload, model)
}

// firstChained is the first release whose block hashes cover the whole prefix.
var firstChained = [3]int{0, 5, 6}

// Chained reports whether a release, as /server_info names it, hashes a block
// together with all before it. Before 0.5.6 equal blocks of different prefixes
// had one hash, so that its events can't be told apart; nor are the previews
// of 0.5.6 trusted, nor a version that can't be read.
func Chained(version string) bool {
	rest, _, _ := strings.Cut(strings.TrimPrefix(version, "v"), "+") // without the build
	var release [3]int
	for i := range release {
		end := 0
		for end < len(rest) && '0' <= rest[end] && rest[end] <= '9' {
			end++
		}
		n, err := strconv.Atoi(rest[:end])
		if err != nil {
			return false
		}
		release[i], rest = n, rest[end:]
		if i == len(release)-1 {
			break
		}
		var more bool
		if rest, more = strings.CutPrefix(rest, "."); !more {
			return false
		}
	}
	if release != firstChained {
		return slices.Compare(release[:], firstChained[:]) > 0
	}
	return rest == "" || strings.HasPrefix(rest, ".post")
}
